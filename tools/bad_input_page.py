"""The page "Bad input" of the site, from the rows that the tests run; `make docs` builds it (`tools/site_hooks.py`)."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from bad_input_cases import CALLS, COMMANDS, FILES, SETUP  # noqa: E402

OPENING = """\
---
search: {boost: 0.2}
---

# Bad input

What each public function and each verb does with input that breaks its rules. `make docs` builds this page from
`tests/bad_input_cases.py`. Each row is a test (`tests/test_bad_input.py`), which also checks that no file is left behind.

Every error is a `cautious.CautiousError`; the classes are in `cautious.errors`. `InvalidInputError` (a `ValueError`) is for
values, names and shapes, `MissingFileError` (a `FileNotFoundError`) for what is not there, `BadFileError` (a `ValueError`) for
files that are damaged or hold something else, `SolverError` (a `RuntimeError`) for a numerical method that could not finish,
`WriteError` (an `OSError`) for what could not be written, `FolderInUseError` for a run that another process is working on,
`ClusterError` (a `RuntimeError`) for a Ray cluster that cannot be reached or cannot work, `MissingPackageError` (an
`ImportError`) for an optional package that is not installed.
Each message names the value, the rule and the way out; the tables quote a part of it.
"""


def quoted(text: str) -> str:
    """As code in a table's cell."""
    fence = "``" if "`" in text else "`"
    space = " " if fence == "``" else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")


def page() -> str:
    """The whole page."""
    parts = [OPENING, "## From Python\n", "The rows use these names:\n", f"```python\n{SETUP}```\n"]
    for name, cases in groupby(CALLS, key=lambda case: case.name):
        rows = [f"| {quoted(case.code)} | `{case.error}` | {quoted(case.says)} |" for case in cases]
        parts.append("\n".join([f"### {name}\n", "| call | error | the message says |", "|---|---|---|", *rows, ""]))
    files = "; ".join(f"`{name}` ({what})" for name, what in FILES.items())
    parts.append(
        "## On the command line\n\nA mistake ends in a message on the error stream and exit status 2, without a traceback. "
        f"Rows are run in a folder with {files}. `nowhere` is not there.\n"
    )
    for verb, commands in groupby(COMMANDS, key=lambda case: case.verb):
        rows = [
            f"| {quoted(f'cautious {verb} {case.arguments}'.strip())} | {case.status} | {quoted(case.says)} |"
            for case in commands
        ]
        parts.append(
            "\n".join([f"### cautious {verb}\n", "| command | status | it says |", "|---|---|---|", *rows, ""])
        )
    return "\n".join(parts)
