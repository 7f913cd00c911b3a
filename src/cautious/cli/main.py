"""Entry point of the command line."""

from __future__ import annotations

import functools
import importlib
import operator
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

from cautious.cli.streams import surviving_streams

DESCRIPTION = """Learning to be cautious: act as usual in familiar states, carefully in novel ones.

An ensemble of reward models is a belief about the reward. A k-of-n policy maximises the mean of the k worst of n sampled
models: small k/n is cautious, k = n is ordinary. Start with 'cautious demo'; then see 'cautious train --help' for your own
data, or 'cautious solve --help' for your own reward models. 'cautious --version' prints the version."""

VERBS = {
    "demo": ("cautious_paper.cli.demo", "Demo"),
    "play": ("cautious_paper.cli.play", "Play"),
    "train": ("cautious.cli.train", "Train"),
    "calibrate": ("cautious.cli.calibrate", "Calibrate"),
    "solve": ("cautious.cli.solve", "Solve"),
    "reproduce": ("cautious_paper.cli.reproduce", "Reproduce"),
    "report": ("cautious_paper.cli.report", "Report"),
    "watch": ("cautious_paper.cli.watch", "Watch"),
    "data": ("cautious_paper.cli.data", "Data"),
    "bench": ("cautious_paper.cli.bench", "Bench"),
}
"""Module and class of each verb, as text: the library imports nothing of the reproduction."""
INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the number of the signal, as shells expect."""


def parse(arguments: Sequence[str] | None) -> Any:
    """The verb of a command line, with its options."""
    import tyro

    verbs = [getattr(importlib.import_module(module), name) for module, name in VERBS.values()]
    for each in verbs:
        _hide_none_defaults(each)
    named = [Annotated[each, tyro.conf.subcommand(word)] for word, each in zip(VERBS, verbs, strict=True)]
    verb: Any = functools.reduce(operator.or_, named)
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
    with surviving_streams():
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> None:
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
