"""Rows of results on disk, each kept as soon as it is known, so that the same call resumes from them after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cautious.errors import BadFileError
from cautious.io.atomic import translate_os_errors

Rows = dict[tuple[Any, ...], dict[str, Any]]
"""Rows by the values of their keys."""


def known_rows(path: Path | None, keys: tuple[str, ...]) -> Rows:
    """Rows of an earlier call by their keys; a last line that was cut short is left out, and cut from the file."""
    if path is None or not path.exists():
        return {}
    known = {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            known[tuple(row[key] for key in keys)] = row
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines) and not line.endswith("\n"):
                path.write_text("".join(lines[:-1]), encoding="utf-8")
                break
            raise BadFileError(
                f"{path}: line {number} is not a row of a comparison; delete the file to begin anew."
            ) from error
    return known


def keep_rows(path: Path | None, rows: list[dict[str, Any]], known: Rows, keys: tuple[str, ...]) -> None:
    """Add rows to those that are known, and to the end of the file."""
    known.update({tuple(row[key] for key in keys): row for row in rows})
    if path is not None:
        with translate_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row) + "\n" for row in rows))
