"""Puts ``benchmarks`` and its scripts for other packages on the path, behind an installed ``ddpg``."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmarks" / "speed" / "peers")]
