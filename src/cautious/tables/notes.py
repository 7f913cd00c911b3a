"""What the owner of a table should know about it: columns that name rows, never vary, or hold codes; and values far off.

Each kind of oddity is one note, however many columns have it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from cautious.errors import Advice, worded
from cautious.tables.cells import Column, Problems, Table, place
from cautious.tables.kinds import Kind, as_kind, shown
from cautious.tables.schema import MOST_CATEGORIES, Feature

ID_NAME = re.compile(r"(^|[^a-z])(id|nr|no|uuid|key)$", re.IGNORECASE)
CODE_NAME = re.compile(
    r"(^|[^a-z])(code|zip|zipcode|postcode|postal|plz|id|nr|type|kind|class|category|group|branch|store|region|district|"
    r"department|dept|sector|naics|sic|icd)([^a-z]|$)",
    re.IGNORECASE,
)
FEWEST_NAMES = 10
"""So many different texts, in fewer than twice as many rows, are names of the rows and not features."""
FAR_OFF = 1e4
"""A number so many deviations of all others away from their middle is a typing error, or rules the training."""
FEWEST_CODES, ROWS_PER_CODE, GAPS = 3, 5, 10
"""Whole numbers look like codes if there are so many different ones at least, each in so many rows on average, and the usual
distance from one to the next is larger than this."""
MOST_LISTED = 12
"""Of more columns with one oddity, so many are named."""


class Note(NamedTuple):
    """Something about a table that its owner should know; as a text for Python, or for the command line (`errors.worded`)."""

    parts: tuple[Any, ...]
    """Texts and arguments, one after another."""
    problems: Problems | None = None
    """The cells that it is about; they are shown before the text."""

    def __str__(self) -> str:
        """For Python."""
        return f"{'' if self.problems is None else self.problems}{worded(self.parts)}"


def about_empty(names: Sequence[str]) -> list[Note]:
    """Columns without any cell."""
    if not names:
        return []
    return [Note((f"{_columns(names)} {'is' if len(names) == 1 else 'are'} empty in every row: left out.",))]


def about_names(table: Table, names: Sequence[str]) -> list[Note]:
    """Columns of texts that nearly all differ."""
    if not names:
        return []
    counts = [len(set(table.read(name).texts())) for name in names]
    many = f"{counts[0]}" if len(names) == 1 else f"{min(counts)} to {max(counts)}"
    has, what, it = ("has", "a name or a note", "it") if len(names) == 1 else ("have", "names or notes", "them")
    says = (
        f"{_columns(names)} {has} {many} different texts in {len(table)} rows: {what} of each row, and no feature; left out. "
        f"Leave {it} out yourself ("
    )
    return [Note((says, _ignoring(names), f"), or write what matters in {it} as a number or a few texts."))]


def names_rows(column: Column) -> bool:
    """Whether the texts of a column nearly all differ: names of the rows, or notes about them."""
    known = [text for text, empty in zip(column.texts(), column.missing, strict=True) if not empty]
    count = len(set(known))
    return count >= FEWEST_NAMES and 2 * count > len(known)


def about_features(table: Table, features: Sequence[Feature]) -> list[Note]:
    """What is odd about columns that are learned from; nothing of a table of one row, where everything is constant."""
    if len(table) == 1:
        return []
    constant = {feature.name: value for feature in features if (value := _only_value(feature)) is not None}
    varying = [feature for feature in features if feature.texts is None and feature.low < feature.high]
    columns = {feature.name: as_kind(table.read(feature.name), Kind(feature.kind)) for feature in varying}
    times = [feature for feature in varying if Kind(feature.kind).is_time]
    numbers = [feature for feature in varying if Kind(feature.kind) is Kind.NUMBER]
    counting = [feature for feature in numbers if _counts_rows(columns[feature.name].numbers, feature.name)]
    others = [feature for feature in numbers if feature not in counting]
    codes = [feature for feature in others if _are_codes(columns[feature.name].numbers, feature.name)]
    notes = [*_about_constants(constant), *_about_times(times), *_about_counting(table, counting)]
    notes += _about_codes([(feature.name, columns[feature.name].numbers) for feature in codes])
    far = [(feature.name, row) for feature in others if (row := far_off(columns[feature.name].numbers)) is not None]
    return notes + _about_far(table, far)


def _only_value(feature: Feature) -> str | None:
    """The only value of a column, in words; None where there are several, or empty cells are a value of their own."""
    if feature.fill is not None:
        return None
    if feature.texts is not None:
        return repr(feature.texts[0]) if len(feature.texts) == 1 else None
    return shown(feature.low, Kind(feature.kind)) if feature.low == feature.high else None


def _about_constants(constant: dict[str, str]) -> list[Note]:
    if not constant:
        return []
    names = list(constant)
    what = f"is {constant[names[0]]}" if len(names) == 1 else "are the same"
    them = "it" if len(names) == 1 else "them"
    says = (
        f"{_columns(names)} {what} in every row: nothing can be learned from {them}, and a row with anything else will look "
        f"unusual. Leave {them} out if that is not what you want ("
    )
    return [Note((says, _ignoring(names), ")."))]


def _about_times(features: Sequence[Feature]) -> list[Note]:
    if not features:
        return []
    names = [feature.name for feature in features]
    first, kind = features[0], Kind(features[0].kind)
    span = f" ({shown(first.low, kind)} to {shown(first.high, kind)})" if len(names) == 1 else ""
    has, them = ("holds points in time", "it") if len(names) == 1 else ("hold points in time", "them")
    says = f"{_columns(names)} {has}{span}: later rows lie outside of that, and look novel for that alone. Leave {them} out ("
    return [
        Note((says, _ignoring(names), "), or pass what matters, such as the weekday or an age, unless that is wanted."))
    ]


def _about_counting(table: Table, features: Sequence[Feature]) -> list[Note]:
    if not features:
        return []
    names = [feature.name for feature in features]
    first = features[0]
    span = f", from {first.low:.15g} to {first.high:.15g}" if len(names) == 1 else ""
    has, if_it, it = ("has", "it is an identifier or a row number", "it")
    if len(names) > 1:
        has, if_it, it = ("have", "they are identifiers or row numbers", "them")
    says = (
        f"{_columns(names)} {has} another whole number in each of {len(table)} rows{span}: if {if_it}, leave {it} out ("
    )
    return [Note((says, _ignoring(names), "): new rows have others, and would look unusual for that alone."))]


def _about_codes(codes: Sequence[tuple[str, np.ndarray]]) -> list[Note]:
    if not codes:
        return []
    names = [name for name, _ in codes]
    counts = ", ".join(f"{len(np.unique(values))}" for _, values in codes[:MOST_LISTED])
    has = "holds" if len(names) == 1 else "hold"
    says = (
        f"{_columns(names)} {has} few different whole numbers ({counts}): do they name kinds, as postcodes do? "
        "If so, say it ("
    )
    return [Note((says, Advice("categorical", names), "); as numbers, 12 lies between 10 and 14."))]


def _about_far(table: Table, far: Sequence[tuple[str, int]]) -> list[Note]:
    if not far:
        return []
    name, row = far[0]
    value = table.read(name).text(row)
    others = f" So is a value of {_columns([name for name, _ in far[1:]])}." if len(far) > 1 else ""
    says = (
        f"{place(table, row)}: column {name!r} is {value}, more than {FAR_OFF:g} times as far from the others as they are from "
        f"each other: correct it, or empty the cell if it stands for something unknown.{others}"
    )
    return [Note((says,))]


def about_rewards(actions: Sequence[str], rewards: Tensor, table: Table) -> list[Note]:
    """What the owner of a log should know about its rewards, [S, A]: one action only, or a reward that rules all others."""
    notes = []
    if rewards.shape[1] == 1:
        only = f"{actions[0]!r} is the only action" if actions else "there is only one action"
        notes.append(Note((f"{only}: there is nothing to decide. Give rows, or a column, of another action too.",)))
    known = (~rewards.isnan()).nonzero()
    far = far_off(rewards[~rewards.isnan()].numpy())
    if far is not None:
        row, action = known[far].tolist()
        name = actions[action] if actions else f"number {action}"
        says = (
            f"{place(table, row)}: the reward of {name} is {float(rewards[row, action]):g}, more than {FAR_OFF:g} times as far "
            "from the others as they are from each other: models will learn little else. Correct it, or leave the row out; if "
            "it is right, learn from its logarithm."
        )
        notes.append(Note((says,)))
    return notes


def _columns(names: Sequence[str]) -> str:
    """Columns by their names, as a sentence begins with them."""
    if len(names) == 1:
        return f"column {names[0]!r}"
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"columns {', '.join(map(repr, names[:MOST_LISTED]))}{more}"


def _ignoring(names: Sequence[str]) -> Advice:
    return Advice("ignore", list(names))


def _counts_rows(values: np.ndarray, name: str) -> bool:
    """Whether numbers look like identifiers: whole, all different; and consecutive, rising, or in a column named like one."""
    if np.isnan(values).any() or len(values) < FEWEST_NAMES or not (values == np.floor(values)).all():
        return False
    if len(np.unique(values)) < len(values):
        return False
    consecutive = values.max() - values.min() == len(values) - 1
    return bool(consecutive or (np.diff(values) > 0).all() or ID_NAME.search(name) is not None)


def _are_codes(values: np.ndarray, name: str) -> bool:
    """Whether whole numbers look like codes: few, often repeated; and with wide gaps, or in a column named like one.

    Round numbers, such as amounts of money, have gaps too; they do not count.
    """
    known = values[~np.isnan(values)]
    different = np.unique(known)
    few = FEWEST_CODES <= len(different) <= min(MOST_CATEGORIES, len(known) // ROWS_PER_CODE)
    if not few or not (different == np.floor(different)).all():
        return False
    has_gaps = np.median(np.diff(different)) > GAPS and not (different % 10 == 0).all()
    return bool(has_gaps or CODE_NAME.search(name) is not None)


def far_off(values: np.ndarray) -> int | None:
    """The place of the number that is farthest from the others, if it is so far off that it would rule what is learned.

    The number may occur several times, as a number that stands for "unknown" does: its copies do not count as others.
    """
    known = values[~np.isnan(values)]
    if len(known) < 3:
        return None
    distance = np.abs(values - np.median(known))
    far = int(np.nanargmax(distance))
    rest = known[known != values[far]]
    return far if len(rest) > 1 and distance[far] > FAR_OFF * float(rest.std()) > 0 else None
