"""Entry point of the command line."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, get_type_hints

from cautious.cli.streams import surviving_streams

DESCRIPTION = """\
Learning to be cautious: act as usual in familiar states, carefully in novel ones. An ensemble of reward models is a belief \
about the reward. A k-of-n policy maximises the mean of the k worst of n sampled models: small k/n is cautious, k = n is \
ordinary."""

VERBS = {
    "demo": ("cautious_paper.cli.demo", "Demo"),
    "play": ("cautious_paper.cli.play", "Play"),
    "train": ("cautious.cli.train", "Train"),
    "calibrate": ("cautious.cli.calibrate", "Calibrate"),
    "solve": ("cautious.cli.solve", "Solve"),
    "evaluate": ("cautious.cli.evaluate", "Evaluate"),
    "reproduce": ("cautious_paper.cli.reproduce", "Reproduce"),
    "report": ("cautious_paper.cli.report", "Report"),
    "watch": ("cautious_paper.cli.watch", "Watch"),
    "data": ("cautious_paper.cli.data", "Data"),
    "bench": ("cautious_paper.cli.bench", "Bench"),
}
"""Module and class of each verb, as text: the library imports nothing of the reproduction."""
LINES = {
    "demo": ("what two trained beliefs do", "cautious demo"),
    "play": ("the playground in a browser", "cautious play"),
    "train": ("a belief from your table", "cautious train log.csv --action A --reward R"),
    "calibrate": ("the level to use", "cautious calibrate --belief belief --states x.csv"),
    "solve": ("decisions and certificates", "cautious solve --belief belief --states new.csv"),
    "evaluate": ("would caution have paid?", "cautious evaluate log.csv --label L --hold-out H"),
    "reproduce": ("an experiment of the paper", "cautious reproduce ask-for-help --scale small"),
    "report": ("a run's report, drawn again", "cautious report runs/ask-for-help-small"),
    "watch": ("two policies on one road", "cautious watch driving"),
    "data": ("which image sets are there", "cautious data"),
    "bench": ("the speed of this machine", "cautious bench"),
}
"""Of each verb: what comes of it, and the first thing to try."""
DESCRIBED = "(what the verb does)"
"""Where tyro is to put a verb's description."""
COMMAND = re.compile(r"(\w+ ?\w*: )?(cautious |CautiousPolicy)")
"""How a paragraph begins that is a command, or an example of one."""
EXAMPLES_FROM = 80
"""Columns of a terminal that has room for the examples beside the words."""
USAGE = 2
"""Exit status of a command line that cannot be understood."""
INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the number of the signal, as shells expect."""


def overview(columns: int) -> str:
    """All verbs on one screen, no line longer than a terminal of so many columns."""
    width = max(columns - 1, 20)
    wide = columns >= EXAMPLES_FROM
    lines = ["usage: cautious VERB [OPTIONS]", "", *textwrap.wrap(DESCRIPTION, min(width, 100)), ""]
    for verb, (words, example) in LINES.items():
        lines.append(f"  {example:49} {words}" if wide else f"  {verb:10} {words}")
    closing = "'cautious VERB --help' has the details and more examples, 'cautious --version' the version."
    start = (
        "Start with 'cautious demo'. Your own data: 'cautious train --help'; reward models: 'cautious solve --help'."
    )
    return "\n".join([*lines, "", *textwrap.wrap(f"{start} {closing}", min(width, 100))])


def unknown(verb: str) -> str:
    """What to say about a verb that there is not."""
    near = difflib.get_close_matches(verb.lower(), VERBS, n=1, cutoff=0.5)
    meant = f" Did you mean 'cautious {near[0]}'?" if near else ""
    return f"error: there is no verb {verb!r}.{meant} 'cautious --help' lists them all."


def parse(arguments: Sequence[str]) -> Any:
    """The verb of a command line, with its options."""
    import tyro

    word, *options = arguments
    module, name = VERBS[word]
    verb = getattr(importlib.import_module(module), name)
    _hide_empty_defaults(verb)
    columns = shutil.get_terminal_size().columns
    help_text = io.TextIOWrapper(io.BytesIO(), sys.stdout.encoding or "utf-8", write_through=True)
    try:
        with contextlib.redirect_stdout(help_text):  # tyro would join the lines of a paragraph again
            return tyro.cli(verb, prog=f"cautious {word}", description=DESCRIBED, args=options)
    finally:
        help_text.seek(0)
        usage, line_break, rest = help_text.read().partition("\n")
        described = rest.replace(DESCRIBED, wrapped(inspect.cleandoc(verb.__doc__), columns))
        print(wrapped(usage.replace(",", ", "), columns), described, sep=line_break, end="")


def wrapped(text: str, columns: int) -> str:
    """Paragraphs whose lines fit a terminal of so many columns and end between words; what continues a command is indented."""
    return "\n\n".join(
        textwrap.fill(
            " ".join(paragraph.split()),
            min(max(columns - 1, 20), 100),
            subsequent_indent="    " if COMMAND.match(paragraph) else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for paragraph in re.split(r"\n\s*\n", text)
    )


def _hide_empty_defaults(verb: Any) -> None:
    """Leave out tyro's "(default: None)" and "(default: )": the help text of such an option says what happens without it."""
    import tyro

    hints = get_type_hints(verb, include_extras=True)
    for field in fields(verb):
        if field.default is None or field.default == ():
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
        words = list(sys.argv[1:] if arguments is None else arguments)
        if words == ["--version"]:
            print(f"cautious {importlib.import_module('cautious').__version__}")
            return
        if not words or words[0] in ("-h", "--help", "help"):
            print(overview(shutil.get_terminal_size().columns))
            sys.exit(0 if words else USAGE)
        if words[0] not in VERBS:
            print(unknown(words[0]), file=sys.stderr)
            sys.exit(USAGE)
        verb = parse(words)
        from cautious.cli.console import run_verb
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run_verb(verb.run, vars(verb))


if __name__ == "__main__":
    main()
