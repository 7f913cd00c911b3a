"""What the cells of a column are: numbers, texts, yes or no, times, or lengths of time.

A frame says so by its types. A file says it by its texts: dates and times there are written as ISO 8601 has them (2026-11-19,
2026-11-19 08:30, 2026-11-19T08:30:00+01:00). Times become days since 1970, in UTC.
"""

from __future__ import annotations

import datetime
import math
from enum import StrEnum
from typing import Any

import numpy as np

from cautious.tables.cells import Column

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SECONDS_PER_DAY = 86_400.0
TRUTHS = {"true": 1.0, "false": 0.0}


class Kind(StrEnum):
    """What the cells of a column are; the values are kept in files."""

    NUMBER = ""
    TEXT = "text"
    BOOLEAN = "boolean"
    TIME = "time"
    """Dates, and times without a zone."""
    ZONED_TIME = "time with zone"
    DURATION = "duration"
    """Lengths of time, in seconds."""

    @property
    def words(self) -> str:
        """What messages call it."""
        return {Kind.TIME: "date or time without a zone", Kind.ZONED_TIME: "time with a zone"}.get(self, "number")

    @property
    def is_time(self) -> bool:
        """Whether cells are points in time."""
        return self in (Kind.TIME, Kind.ZONED_TIME)


def kind_of(column: Column) -> Kind | None:
    """The kind that a frame's types, or a file's texts, leave no doubt about; None where the cells have to be looked at."""
    if column.kind:
        return Kind(column.kind)
    known = np.flatnonzero(~column.missing).tolist()
    if not known or not np.isnan(column.numbers[known]).all():  # some are numbers
        return None
    zoned = as_days(column.cells[known[0]])[1]
    if zoned is None or any(as_days(column.cells[row])[1] is not zoned for row in known):
        return None
    return Kind.ZONED_TIME if zoned else Kind.TIME


def as_kind(column: Column, kind: Kind) -> Column:
    """The same cells, with the numbers that they are as this kind; NaN where they are something else."""
    given = Kind(column.kind)
    if given is kind or (not kind.is_time and not given.is_time and kind is not Kind.BOOLEAN):
        return column
    if kind is Kind.BOOLEAN and not given.is_time:
        truths = np.array([TRUTHS.get(str(cell).strip().casefold(), math.nan) for cell in column.cells])
        return column._replace(numbers=np.where(np.isnan(truths), column.numbers, truths))
    numbers = np.full(len(column.numbers), np.nan)
    if kind.is_time and not given.is_time:
        for row, cell in enumerate(column.cells):
            days, zoned = as_days(cell)
            numbers[row] = days if zoned is (kind is Kind.ZONED_TIME) else math.nan
    return column._replace(numbers=numbers)


def as_days(cell: Any) -> tuple[float, bool | None]:
    """A date or time as days since 1970, and whether it says its zone; NaN and None for anything else.

    >>> as_days("1970-01-03"), as_days("1970-01-01T12:00:00+06:00"), as_days("soon")
    ((2.0, False), (0.25, True), (nan, None))
    """
    if isinstance(cell, str):
        text = cell.strip()
        if len(text) < 8 or not text[:4].isdigit() or "-" not in text[4:8]:
            return math.nan, None
        try:
            cell = datetime.datetime.fromisoformat(text)
        except ValueError:
            return math.nan, None
    if isinstance(cell, datetime.datetime):
        zoned = cell.tzinfo is not None
        at = cell if zoned else cell.replace(tzinfo=datetime.UTC)
        return (at - EPOCH).total_seconds() / SECONDS_PER_DAY, zoned
    if isinstance(cell, datetime.date):
        return float((cell - EPOCH.date()).days), False
    return math.nan, None


def shown(number: float, kind: Kind) -> str:
    """A number of a column as people write it.

    >>> shown(19_000.5, Kind.TIME), shown(1.5, Kind.NUMBER), shown(1.0, Kind.BOOLEAN)
    ('2022-01-08 12:00', '1.5', 'true')
    """
    if kind is Kind.BOOLEAN:
        return "true" if number else "false"
    if kind is Kind.DURATION:
        return f"{number:g} s"
    if not kind.is_time:
        return f"{number:g}"
    try:
        at = EPOCH + datetime.timedelta(days=number)
    except OverflowError:
        return f"{number:g} days since 1970"
    return f"{at:%Y-%m-%d}" if number == math.floor(number) else f"{at:%Y-%m-%d %H:%M}"
