"""Virtual environments of the packages."""

import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.speed.packages import Peer


def interpreter(peer: Peer, folder: Path) -> str:
    """Return the Python that has a package; install it under ``folder`` where it does not."""
    if not peer.requirements:
        return sys.executable
    place = folder.absolute() / (peer.script if peer.own else "python")
    if not place.exists():
        venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    done, wanted = place / "installed.txt", " ".join(peer.requirements)
    if not done.exists() or wanted not in done.read_text().splitlines():
        print(f"installing {wanted}", file=sys.stderr, flush=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.requirements], check=True)
        with done.open("a") as file:
            print(wanted, file=file)
    return str(python)
