"""Entry point of the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

DESCRIPTION = """Learning to be cautious: act as usual in familiar states, carefully in novel ones.

An ensemble of reward models is a belief about the reward. A k-of-n policy maximises the mean of the k worst of n sampled
models: small k/n is cautious, k = n is ordinary. Start with 'cautious demo'; then see 'cautious train --help' for your own
data, or 'cautious solve --help' for your own reward models. 'cautious --version' prints the version."""

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the number of the signal, as shells expect."""


def parse(arguments: Sequence[str] | None) -> Any:
    """The verb of a command line, with its options."""
    import tyro

    from cautious.cli.calibrate import Calibrate
    from cautious.cli.solve import Solve
    from cautious.cli.train import Train
    from cautious_paper.cli.bench import Bench
    from cautious_paper.cli.data import Data
    from cautious_paper.cli.demo import Demo
    from cautious_paper.cli.play import Play
    from cautious_paper.cli.report import Report
    from cautious_paper.cli.reproduce import Reproduce
    from cautious_paper.cli.watch import Watch

    for each in (Demo, Play, Train, Calibrate, Solve, Reproduce, Report, Watch, Data, Bench):
        _hide_none_defaults(each)
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


def _hide_none_defaults(verb: Any) -> None:
    """Leave out tyro's "(default: None)": the help text of such an option says what happens if it is not given."""
    import tyro

    hints = get_type_hints(verb, include_extras=True)
    for field in fields(verb):
        if field.default is None:
            verb.__annotations__[field.name] = Annotated[hints[field.name], tyro.conf.arg(help_behavior_hint="")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run the verb.

    Verbs import what they need when they run: `--help` then loads neither torch nor scipy, and an interrupt during the
    import ends without a traceback.
    """
    try:
        if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
            print(f"cautious {importlib.import_module('cautious').__version__}")
            return
        verb = parse(arguments)
        from cautious.cli.console import run_verb
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run_verb(verb.run, vars(verb))


if __name__ == "__main__":
    main()
