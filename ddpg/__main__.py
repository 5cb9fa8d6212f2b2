"""The ``ddpg`` command, also as ``python -m ddpg``; Ctrl-C while its modules are imported is answered in one line."""

import sys


def main() -> int:
    """Run the command line and return its exit status."""
    try:
        from ddpg.cli.main import main as command
    except KeyboardInterrupt:
        print("ddpg: interrupted", file=sys.stderr)
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
