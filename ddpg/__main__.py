"""``python -m ddpg`` is the ``ddpg`` command."""

import sys

from ddpg.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
