"""Flags that several commands have."""

import argparse


def add_import_flag(parser: argparse.ArgumentParser) -> None:
    """Let the environment of a run, where it is named ``module:Id``, import that module."""
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="MODULE",
        help="let the run's environment, module:Id, import MODULE",
    )
