"""The front door of the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any

DESCRIPTION = """Learning to be cautious: act as usual where things are familiar, carefully where they are not.

An ensemble of reward models is a belief about what pays. A k-of-n policy is robust to the k worst of every n models:
small k/n is cautious, k = n is ordinary. Start with 'cautious demo'; then 'cautious train --help' for your own data, or
'cautious solve --help' for reward models of your own. 'cautious --version' says which version this is."""

INTERRUPTED = 130
"""What a shell expects of a command that Ctrl-C ended: 128 and the signal's number."""


def parse(arguments: Sequence[str] | None) -> Any:
    """The verb that the command line names, with its options."""
    import tyro

    from cautious.cli.bench import Bench
    from cautious.cli.calibrate import Calibrate
    from cautious.cli.data import Data
    from cautious.cli.demo import Demo
    from cautious.cli.play import Play
    from cautious.cli.report import Report
    from cautious.cli.reproduce import Reproduce
    from cautious.cli.solve import Solve
    from cautious.cli.train import Train
    from cautious.cli.watch import Watch

    verb = (
        Annotated[Demo, tyro.conf.subcommand("demo")]
        | Annotated[Play, tyro.conf.subcommand("play")]
        | Annotated[Train, tyro.conf.subcommand("train")]
        | Annotated[Calibrate, tyro.conf.subcommand("calibrate")]
        | Annotated[Solve, tyro.conf.subcommand("solve")]
        | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
        | Annotated[Report, tyro.conf.subcommand("report")]
        | Annotated[Watch, tyro.conf.subcommand("watch")]
        | Annotated[Data, tyro.conf.subcommand("data")]
        | Annotated[Bench, tyro.conf.subcommand("bench")]
    )
    return tyro.cli(verb, prog="cautious", description=DESCRIPTION, args=arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the verb.

    What takes long to load is imported here or by the verb, so that an interrupt while it loads ends quietly.
    """
    try:
        if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
            print(f"cautious {importlib.import_module('cautious').__version__}")
            return
        verb = parse(arguments)
        from cautious.cli.console import run_verb
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run_verb(verb.run)


if __name__ == "__main__":
    main()
