"""Tables in memory: data frames (pandas, polars, pyarrow), dictionaries of columns, lists of rows, read by columns' names.

No package of frames is imported to read one. A frame is what offers the dataframe interchange protocol (`__dataframe__`), or
the protocol of Arrow that follows it (`__arrow_c_stream__`), and has columns, which are reached as ``frame[name]``.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from cautious.errors import InvalidInputError, MissingPackageError
from cautious.tables.cells import NOT_TRIED, Column, as_cell_number, check_column
from cautious.tables.kinds import Kind, as_days

INSTALL = "pip install 'cautious[tables]'"
NO_VALUES = ("NAType", "NaTType", "Null")
"""Types of pandas' and others' values for "nothing", which are not even equal to themselves."""


@dataclass(frozen=True)
class FrameTable:
    """A table in memory."""

    origin: str
    columns: dict[str, Column]
    num_rows: int
    index: Any = None
    """The labels of a pandas frame's rows; None where rows have no labels but their numbers."""
    unit: str = "row"

    @property
    def header(self) -> list[str]:
        """The columns' names."""
        return list(self.columns)

    def __len__(self) -> int:
        """How many rows."""
        return self.num_rows

    def label(self, row: int) -> int | str:
        """The row's label in its frame; otherwise its number, from 0."""
        if self.index is None:
            return row
        value = self.index[row]
        return int(value) if isinstance(value, (int, np.integer)) else str(value)

    def read(self, name: str) -> Column:
        """The cells below a heading."""
        check_column(self, name)
        return self.columns[name]


def pandas_for(what: str) -> Any:
    """The package pandas, loaded on request.

    Raises:
        MissingPackageError: It is not installed, and `what` needs it.
    """
    try:
        import pandas
    except ImportError:
        raise MissingPackageError(f"{what} needs pandas, which is not installed: {INSTALL}.") from None
    return pandas


def is_frame(value: Any) -> bool:
    """Whether a value is a data frame of any package."""
    if isinstance(value, (np.ndarray, Tensor, type)):
        return False
    has_columns = hasattr(value, "columns") or hasattr(value, "column_names")  # a series has neither
    return hasattr(value, "__dataframe__") or (hasattr(value, "__arrow_c_stream__") and has_columns)


def is_row(value: Any) -> bool:
    """Whether a value is one row of a pandas frame: a series with labels, other than the numbers that every series has."""
    is_series = all(hasattr(value, part) for part in ("index", "to_dict", "iloc")) and getattr(value, "ndim", 0) == 1
    labels = list(value.index) if is_series else []
    has_names = all(isinstance(label, (str, int, np.integer)) for label in labels)
    return bool(labels) and has_names and labels != list(range(len(labels)))


def is_rows(value: Any) -> bool:
    """Whether a value is a list of rows, each a dictionary, as a service reads them from JSON."""
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(row, Mapping) for row in value)


def is_named(value: Any) -> bool:
    """Whether a value has columns with names."""
    return is_frame(value) or isinstance(value, Mapping) or is_row(value) or is_rows(value)


def as_table(value: Any, name: str) -> FrameTable:
    """A frame, a dictionary of columns (or of one row's cells), a list of rows or a row of a frame as a table.

    A cell is empty where a row of a list does not name its column.

    Args:
        value: What `is_named` accepts.
        name: What messages call it.
    """
    if is_row(value):
        value = value.to_dict()
    if is_rows(value):
        names = dict.fromkeys(name for row in value for name in row)
        value = {name: _as_objects([row.get(name) for row in value]) for name in names}
    columns = dict(value.items()) if isinstance(value, Mapping) else _columns_of(value, name)
    indices = [cells.index for cells in columns.values() if hasattr(cells, "iloc")]
    if not all(index.equals(indices[0]) for index in indices):
        raise InvalidInputError(
            f"{name}: columns whose rows have different labels; pass a DataFrame, which aligns them."
        )
    if not columns:
        raise InvalidInputError(f"{name}: there is no column.")
    found: dict[str, Column] = {}
    for label, cells in columns.items():
        heading = str(label)
        if heading in found:
            raise InvalidInputError(f"{name}: two columns are named {heading!r}; give each a name of its own.")
        found[heading] = _as_column(cells, f"{name}: column {heading!r}")
    lengths = {heading: len(column.numbers) for heading, column in found.items()}
    if len(set(lengths.values())) > 1:
        shortest, longest = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise InvalidInputError(
            f"{name}: columns of different lengths: {shortest!r} has {lengths[shortest]} rows, {longest!r} {lengths[longest]}."
        )
    num_rows = next(iter(lengths.values()))
    if not num_rows:
        raise InvalidInputError(f"{name}: there is no row; give at least one.")
    return FrameTable(name, found, num_rows, index_of(value))


def index_of(value: Any) -> Any:
    """The labels of a pandas frame's rows; None for anything else."""
    index = getattr(value, "index", None) if is_frame(value) else None
    return index if hasattr(index, "to_numpy") and not callable(index) else None


def _columns_of(frame: Any, name: str) -> dict[Any, Any]:
    labels = getattr(frame, "column_names", None)  # pyarrow's `columns` are the columns themselves
    labels = getattr(frame, "columns", None) if labels is None or callable(labels) else labels
    if labels is None or callable(labels) or not hasattr(frame, "__getitem__"):
        try:
            from pyarrow.interchange import from_dataframe
        except ImportError:
            raise MissingPackageError(
                f"{name}: reading a {type(frame).__name__} needs pyarrow: {INSTALL}; or pass a dictionary of its columns."
            ) from None
        return _columns_of(from_dataframe(frame), name)
    names = list(labels)
    if len(set(map(str, names))) < len(names):
        twice = next(label for label in names if names.count(label) > 1 or list(map(str, names)).count(str(label)) > 1)
        raise InvalidInputError(f"{name}: two columns are named {str(twice)!r}; give each a name of its own.")
    return {label: frame[label] for label in names}


def _as_column(cells: Any, name: str) -> Column:
    """The cells of a column of a frame, or of a dictionary: one value for a table of one row, or one per row."""
    try:
        if hasattr(cells, "to_numpy"):
            is_arrow = type(cells).__module__.startswith("pyarrow")
            array = cells.to_numpy(zero_copy_only=False) if is_arrow else cells.to_numpy()
        else:
            array = np.asarray(cells.detach().cpu() if isinstance(cells, Tensor) else cells)
            if array.dtype.kind in "US" and not isinstance(cells, (str, bytes, np.ndarray)):
                array = _as_objects(cells)  # numpy has turned numbers beside texts into texts
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInputError(f"{name}: cannot be read as one value per row ({error}).") from None
    array = array[None] if array.ndim == 0 else array
    if array.ndim != 1:
        raise InvalidInputError(f"{name}: expected one value per row, got an array of shape {list(array.shape)}.")
    if array.dtype.kind == "M":
        return _times(array, zoned=_has_zone(cells))
    kind = Kind.TEXT if _is_categorical(cells) else Kind.BOOLEAN if array.dtype.kind == "b" else Kind.NUMBER
    if array.dtype.kind == "m":  # differences of times, in seconds
        array, kind = array / np.timedelta64(1, "s"), Kind.DURATION
    if array.dtype.kind in "fiub":
        values = array.astype(np.float64)
        return Column(array, np.where(np.isfinite(values), values, np.nan), np.isnan(values), kind)
    column = _object_column(array.tolist() if array.dtype.kind in "OUS" else array.astype(str).tolist(), name)
    return column._replace(kind=kind) if kind else column


def _is_categorical(cells: Any) -> bool:
    """Whether a column of a frame says that its values are categories: pandas', polars' or Arrow's type for them."""
    kind = str(getattr(cells, "dtype", getattr(cells, "type", ""))).lower()
    return kind.startswith(("category", "categorical", "enum", "dictionary"))


def _has_zone(cells: Any) -> bool:
    """Whether a column of times says its time zone."""
    kind = getattr(cells, "dtype", getattr(cells, "type", None))
    return any(getattr(kind, part, None) is not None for part in ("tz", "time_zone"))


def _times(array: np.ndarray, *, zoned: bool) -> Column:
    """Times of numpy's type, which are in UTC where they have a zone."""
    days = (array - np.datetime64(0, "s")) / np.timedelta64(1, "D")
    missing = np.isnat(array)
    texts = np.datetime_as_string(array, unit="auto")
    return Column(texts.tolist(), np.where(missing, np.nan, days), missing, Kind.ZONED_TIME if zoned else Kind.TIME)


def _as_objects(cells: Any) -> np.ndarray:
    values = list(cells) if isinstance(cells, Sequence) else [cells]
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _object_column(cells: list[Any], name: str) -> Column:
    """Texts, truth values, numbers of any kind and nothing, one below the other."""
    values, missing = np.full(len(cells), np.nan), np.zeros(len(cells), dtype=bool)
    kinds: set[Kind] = set()
    for row, cell in enumerate(cells):
        if type(cell) is not str:  # nothing is found out about texts here
            kinds |= _kind_of_cell(cell)
        if isinstance(cell, str):
            missing[row] = cell.strip().lower() in NOT_TRIED
            number = as_cell_number(cell.strip())
            values[row] = np.nan if number is None else number
        elif cell is None or type(cell).__name__ in NO_VALUES:
            missing[row] = True
        elif isinstance(cell, datetime.timedelta):
            values[row] = cell.total_seconds()
        elif isinstance(cell, datetime.date):  # a time is a date, too
            values[row] = as_days(cell)[0]
        elif isinstance(cell, (numbers.Real, np.bool_)) or type(cell).__name__ == "Decimal":
            number = _as_float(cell)
            missing[row] = np.isnan(number)
            values[row] = number if np.isfinite(number) else np.nan
        elif isinstance(cell, (Mapping, list, tuple, set, np.ndarray)):
            raise InvalidInputError(f"{name}: row {row} is a {type(cell).__name__}; expected a number or a text.")
    has_texts = any(isinstance(cell, str) for cell, empty in zip(cells, missing, strict=True) if not empty)
    return Column(cells, values, missing, kinds.pop() if len(kinds) == 1 and not has_texts else Kind.NUMBER)


def _as_float(cell: Any) -> float:
    """A number as float64; infinite where it has too many digits for one."""
    try:
        return float(cell)
    except OverflowError:
        return np.inf if cell > 0 else -np.inf


def _kind_of_cell(cell: Any) -> set[Kind]:
    """What a cell is that is no text; nothing for an empty one."""
    if cell is None or type(cell).__name__ in NO_VALUES or (isinstance(cell, float) and np.isnan(cell)):
        return set()
    if isinstance(cell, (bool, np.bool_)):
        return {Kind.BOOLEAN}
    if isinstance(cell, datetime.timedelta):
        return {Kind.DURATION}
    zoned = as_days(cell)[1] if isinstance(cell, datetime.date) else None
    return {Kind.NUMBER if zoned is None else Kind.ZONED_TIME if zoned else Kind.TIME}
