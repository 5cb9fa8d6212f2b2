"""Create the virtual environments in which the packages are installed."""

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.speed.packages import Peer


def interpreter(peer: Peer, folder: Path) -> str:
    """Return the path of a Python that has the package, and install the package under ``folder`` if necessary."""
    if not peer.requirements:
        return sys.executable
    place = folder.absolute() / (peer.script if peer.own_env else "python")
    if not place.exists():
        venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    record, requirements = place / "installed.txt", " ".join(peer.requirements)
    if not record.exists() or requirements not in record.read_text().splitlines():
        print(f"installing {requirements}", file=sys.stderr, flush=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.requirements], check=True)
        with record.open("a") as file:
            print(requirements, file=file)
    return str(python)
