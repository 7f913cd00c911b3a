"""Why models disagree about a row: what each feature causes, and which values are beyond the training.

A feature's contribution is how far the disagreement d falls when its value alone is replaced by its familiar counterpart: the
value that it has in the familiar row y which is nearest in all other features,

    c_f(x) = d(x) - d(x with x_f := y_f),    y = argmin_y min_t |(x + t e_f - y) W|,

where W is the metric of the prior (`beliefs.prior`), in which features that move together count once. A feature that is unusual
by itself, or beside the others, causes all of the disagreement; of features that are unusual only together each causes a part.
Contributions need not sum to d. A feature of several numbers (a category, or a number beside "is empty") is replaced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.beliefs.belief import TableBelief
from cautious.beliefs.disagreement import FamiliarDisagreement, disagreement, in_units_of
from cautious.errors import InvalidInputError
from cautious.parallel import single_threaded
from cautious.tables.cells import Column, Problems, shortened
from cautious.tables.files import FileTable
from cautious.tables.frames import pandas_for
from cautious.tables.schema import RANGES_KEPT_AS, ROWS_KEPT_AS, Feature
from cautious.validation import as_float_tensor, check_shape

if TYPE_CHECKING:
    from cautious.policy.decision import Decision

MOST_EXPLAINED = 1000
"""Rows that are explained without being asked for, in a frame of decisions and in decisions.csv: seconds of work."""
CHANGED_ROWS = 4096
"""Rows with a replaced feature that a belief is asked about at a time."""
LEAST_SHARE = 0.01
"""A value that causes less of the disagreement explains nothing."""
MAIN_SHARE = 0.5
"""A sentence names a second feature where the first one causes less than this share."""
ROUNDING = 1e-4
"""The familiar rows of a prior are rounded: a value less than this share of its range beyond them is not outside."""


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why models disagree about each of B rows, by F features."""

    features: tuple[str, ...]
    """Names of the features: the columns of the training's table; or, of arrays, "feature 0", "feature 1", ..."""
    contribution: Tensor
    """How much of a row's disagreement each feature causes, [B, F], in units of `Decision.disagreement`; below zero where its
    value makes the row more familiar. NaN in rows that no model can judge."""
    outside: Tensor
    """Which values are beyond what training had, [B, F]: numbers out of their range, and categories never seen."""
    sentences: tuple[str, ...]
    """One sentence per row: the action, the feature that causes most of the disagreement, its value and the familiar ones."""
    index: Any = None
    """The labels of the rows of a pandas frame, where that is what was asked about."""

    def to_frame(self) -> Any:
        """The explanations as a pandas frame: the sentence, each feature's contribution, and whether it is outside."""
        columns: dict[str, Any] = {"why": list(self.sentences)}
        columns |= {f"contribution of {name}": self.contribution[:, f].tolist() for f, name in enumerate(self.features)}
        columns |= {f"{name} outside": self.outside[:, f].tolist() for f, name in enumerate(self.features)}
        return pandas_for("to_frame").DataFrame(columns, index=self.index)

    def __repr__(self) -> str:
        """Sizes."""
        return f"Explanation({len(self.sentences)} rows, {len(self.features)} features)"


class _Cell(NamedTuple):
    """A value as a sentence needs it."""

    text: str
    number: float
    missing: bool
    outside: bool


class _Familiar(NamedTuple):
    """Familiar rows, and what is near, in the units of the rows that are asked about."""

    rows: Tensor
    """[L, D], float64."""
    metric: Tensor
    """W W', [D, D], float64."""


@dataclass(frozen=True)
class Asked:
    """The rows that a decision is about, and the belief that was asked about them."""

    belief: Any
    states: Any
    """The G rows that can be judged, as the belief takes them."""
    problems: Problems | None
    """What is wrong with the others; None where that is not known."""
    unit: FamiliarDisagreement | None
    """The unit of disagreement."""
    predict: Callable[[Any], tuple[Tensor, Tensor]]
    """Opinions of the models about rows, and which rows overflow (`policy.states.predict`)."""

    def opinions(self) -> Tensor:
        """What each model says each action pays, [M, G, A]."""
        return self.predict(self.states)[0]

    @single_threaded
    def explain(self, decision: Decision, chosen: Sequence[int] | None = None, familiar: Any = None) -> Explanation:
        """Why the models disagree about rows.

        Args:
            decision: What was decided about all B rows.
            chosen: Numbers of the rows to explain; None for all.
            familiar: Familiar rows; None for those that the belief keeps.
        """
        chosen = range(len(decision.action)) if chosen is None else chosen
        rows = _numbers(self.belief, self.states)
        near = _familiar(self.belief, rows.shape[1], familiar)
        features = _features(self.belief, near)
        slots = _slots(features)
        judged, place = decision.judged, (decision.judged.cumsum(dim=0) - 1).tolist()
        cells = self._cells(features, slots, chosen, rows, judged, place)
        contribution = torch.full((len(chosen), len(features)), torch.nan, dtype=torch.float64)
        sentences = [_not_judged(decision, row) for row in chosen]
        asked = [number for number, row in enumerate(chosen) if judged[row]]
        size = max(1, CHANGED_ROWS // len(features))
        for first in range(0, len(asked), size):
            numbers = asked[first : first + size]
            some = rows[[place[chosen[number]] for number in numbers]]
            nearest = torch.stack([_nearest(row, near, slots) for row in some.double()])
            apart = decision.disagreement[[chosen[number] for number in numbers]]
            contribution[numbers] = self._contribution(some, apart, nearest, near, slots)
            for number, counterparts in zip(numbers, nearest.tolist(), strict=True):
                usual = [
                    _decoded(feature, near.rows[row, slot])
                    for feature, slot, row in zip(features, slots, counterparts, strict=True)
                ]
                sentences[number] = _sentence(
                    decision, chosen[number], contribution[number], cells[number], features, usual, self
                )
        outside = torch.tensor([[cell.outside for cell in row] for row in cells], dtype=torch.bool)
        return Explanation(
            tuple(feature.name for feature in features),
            contribution,
            outside.reshape(contribution.shape),
            tuple(sentences),
            None if decision.index is None else decision.index[list(chosen)],
        )

    def _contribution(
        self, rows: Tensor, apart: Tensor, nearest: Tensor, familiar: _Familiar, slots: Sequence[slice]
    ) -> Tensor:
        """Contributions [n, F] of rows [n, D] with disagreement `apart` [n], by the familiar rows `nearest` [n, F]."""
        changed = rows[:, None].repeat(1, len(slots), 1)  # [n, F, D]
        for feature, slot in enumerate(slots):
            changed[:, feature, slot] = familiar.rows[nearest[:, feature], slot].to(rows.dtype)
        differs = (changed != rows[:, None]).any(dim=2)
        left = apart[:, None].repeat(1, len(slots))
        if bool(differs.any()):
            opinions, too_large = self.predict(changed[differs])
            spread = torch.full((len(too_large),), torch.nan, dtype=torch.float64)
            spread[~too_large] = in_units_of(self.unit, disagreement(opinions).cpu())
            left[differs] = spread
        return (apart[:, None] - left).nan_to_num(0.0)  # of infinite disagreement, whose unit is 0, nothing can be said

    def _cells(
        self,
        features: Sequence[Feature],
        slots: Sequence[slice],
        chosen: Sequence[int],
        rows: Tensor,
        judged: Tensor,
        place: Sequence[int],
    ) -> list[list[_Cell]]:
        """The values of the chosen rows, as the user wrote them where they came by name."""
        table = None if self.problems is None else self.problems.table
        if table is not None and {feature.name for feature in features} <= set(table.header):
            found: list[list[_Cell]] = []
            start = 0
            for block in table.blocks() if isinstance(table, FileTable) else [table]:
                numbers = [row - start for row in chosen if start <= row < start + len(block)]
                start += len(block)
                if numbers:
                    columns = [_column_cells(feature, block.read(feature.name), numbers) for feature in features]
                    found += [list(cells) for cells in zip(*columns, strict=True)]
            return found
        unknown = _Cell("", float("nan"), True, False)
        return [
            [
                _decoded(feature, rows[place[row], slot]) if judged[row] else unknown
                for feature, slot in zip(features, slots, strict=True)
            ]
            for row in chosen
        ]


def explained(belief: Any, decision: Decision, familiar: Any = None) -> Explanation:
    """Why the models disagree about all rows of a decision; raises where these have no features."""
    if decision._explain is not None:
        return decision._explain(decision, familiar=familiar)
    shape = tuple(getattr(belief, "state_shape", None) or ())
    if len(shape) > 1:
        raise InvalidInputError(
            f"explain: the belief is about states of shape {list(shape)}, such as images, in which a single number means "
            "little. Train one on features of them, a row of numbers for each; or read decision.opinions()."
        )
    raise InvalidInputError(
        "explain: the belief is about numbered states or a whole world, which have no features. Train one on features with "
        "fit_ensemble; or read decision.opinions(): what each model says there."
    )


def is_explainable(belief: Any) -> bool:
    """Whether a belief is about rows of features."""
    if isinstance(belief, TableBelief):
        return False
    shape = getattr(belief, "state_shape", None)
    return shape is None or len(shape) == 1


def _numbers(belief: Any, states: Any) -> Tensor:
    """Rows as numbers, [G, D]."""
    numbers = belief.as_trained(states) if callable(getattr(belief, "as_trained", None)) else states
    rows = as_float_tensor(numbers, "states").cpu()
    if len(rows):  # there may be none that can be judged
        check_shape(rows, "B F", "states")
    return rows


def _familiar(belief: Any, length: int, given: Any) -> _Familiar:
    """The familiar rows that a belief keeps, or those that are given, and the prior's metric."""
    units = getattr(getattr(belief, "network", None), "units", None)
    shift, scale = (
        (torch.zeros(length), torch.ones(length)) if units is None else map(torch.tensor, (units.shift, units.scale))
    )
    shift, scale = shift.double(), scale.double()
    prior = getattr(belief, "prior", None)
    whitening = None if prior is None else prior.whitening.cpu().double() / scale[:, None]
    if given is not None:
        rows = _numbers(belief, given).double()
        check_shape(rows, "L D", "familiar", D=length)
        deviation = rows.std(dim=0, correction=0)
        plain = torch.where(deviation > 0, 1 / deviation, 1.0).diag()
        whitening = plain if whitening is None else whitening
    elif prior is not None and whitening is not None:
        centre = prior.centre.cpu().double() * scale + shift
        if whitening.shape[0] > whitening.shape[1]:  # projected: only the mean can be recovered
            rows = centre[None]
        else:
            rows = prior.rows.cpu().double() @ torch.linalg.pinv(whitening) + centre
    elif units is not None:
        rows, whitening = shift[None], (1 / scale).diag()
    else:
        raise InvalidInputError(
            "explain: the belief keeps no familiar rows to compare with; pass some, policy.explain(rows, familiar=...)."
        )
    return _Familiar(_exact(belief, rows), whitening @ whitening.T)


def _exact(belief: Any, rows: Tensor) -> Tensor:
    """Familiar rows [L, D], whose columns of 0 and 1 are that exactly."""
    columns = getattr(belief, "columns", None)
    if columns is not None and len(rows) > 1:
        for feature, slot in zip(columns.features, _slots(columns.features), strict=True):
            whole = range(slot.start + (feature.texts is None), slot.stop)
            rows[:, list(whole)] = rows[:, list(whole)].round()
    return rows


def _features(belief: Any, familiar: _Familiar) -> tuple[Feature, ...]:
    """The columns of the training; of arrays, numbers with the range that they had there."""
    columns = getattr(belief, "columns", None)
    if columns is not None:
        return tuple(columns.features)
    ranges = _settings(belief).get(RANGES_KEPT_AS)
    if ranges is None:
        low, high = familiar.rows.amin(dim=0), familiar.rows.amax(dim=0)
        margin = ROUNDING * (high - low)
        ranges = torch.stack([low - margin, high + margin], dim=1).tolist()
    return tuple(Feature(f"feature {number}", None, low, high) for number, (low, high) in enumerate(ranges))


def _slots(features: Sequence[Feature]) -> list[slice]:
    """Which numbers of a row each feature is."""
    ends = np.cumsum([feature.width for feature in features]).tolist()
    return [slice(end - feature.width, end) for feature, end in zip(features, ends, strict=True)]


def _nearest(row: Tensor, familiar: _Familiar, slots: Sequence[slice]) -> Tensor:
    """For each feature the number of the familiar row that is nearest in all others: [D] -> [F].

    The squared distance with the numbers g of a feature left free is  v M v' - (v M)_g (M_gg)^-1 (v M)_g',  v = x - y.
    """
    apart = row - familiar.rows
    pulled = apart @ familiar.metric
    square = (apart * pulled).sum(dim=1)
    found = []
    for slot in slots:
        own = pulled[:, slot]
        gain = (own @ torch.linalg.inv(familiar.metric[slot, slot]) * own).sum(dim=1)
        found.append((square - gain).argmin())
    return torch.stack(found)


def _column_cells(feature: Feature, column: Column, numbers: Sequence[int]) -> list[_Cell]:
    """Some cells of a column."""
    few = Column([column.cells[row] for row in numbers], column.numbers[numbers], column.missing[numbers])
    remarks = feature.remarks(few)
    return [
        _Cell(shortened(few.text(row)), float(few.numbers[row]), bool(few.missing[row]), bool(remark))
        for row, remark in enumerate(remarks)
    ]


def _decoded(feature: Feature, numbers: Tensor) -> _Cell:
    """The value that some numbers of a row stand for."""
    values = numbers.tolist()
    if feature.fill is not None and values[-1] > 0.5:
        return _Cell("", float("nan"), True, False)
    if feature.texts is None:
        return _Cell(f"{values[0]:.4g}", values[0], False, not feature.low <= values[0] <= feature.high)
    best = max(range(len(feature.texts)), key=values.__getitem__)
    known = values[best] > 0
    return _Cell(feature.texts[best] if known else "another category", float("nan"), False, not known)


def _not_judged(decision: Decision, row: int) -> str:
    action = decision.names[row] if len(decision.action) == 1 else decision._name(int(decision.action[row]))
    return f"{'undecided' if action is None else action}: no model can judge this row, because {decision.reasons[row]}."


def _sentence(
    decision: Decision,
    row: int,
    caused: Tensor,
    cells: Sequence[_Cell],
    features: Sequence[Feature],
    usual: Sequence[_Cell],
    asked: Asked,
) -> str:
    """Why the models disagree about a row, in words."""
    apart, departs = float(decision.disagreement[row]), bool(decision.departs[row])
    action = decision._name(int(decision.action[row]))
    action = f"action {action}" if decision.actions is None else action
    if not departs and asked.unit is not None and apart <= 1:
        familiar = f"({_amount(apart)}; 95 % of these are below 1)"
        return f"{action}, as usual: the models disagree no more than in familiar rows {familiar}."
    begin = f"{action}: " if departs else f"{action}, as usual, although "
    order = caused.argsort(descending=True, stable=True).tolist()
    first = order[0]
    most = float(caused[first])
    if not most > LEAST_SHARE * apart:
        return f"{begin}no single value explains the disagreement of {_amount(apart)}; the values are unusual together."
    value = _value(features[first], cells[first], usual[first], _settings(asked.belief).get(ROWS_KEPT_AS))
    share = most / apart
    said = f"{begin}{value} causes {_amount(most)} of the disagreement of {_amount(apart)} ({share:.0%})".replace(
        "%)", " %)"
    )
    if share < MAIN_SHARE and len(order) > 1 and float(caused[order[1]]) > 0:
        second = order[1]
        said += (
            f", and {features[second].name} {cells[second].text or '(empty)'} causes {_amount(float(caused[second]))}"
        )
    return f"{said}."


def _value(feature: Feature, cell: _Cell, usual: _Cell, num_rows: int | None) -> str:
    """A value and the familiar ones: "lactate 12.4, above all 4,210 familiar rows (0.3 to 9.8),"."""
    every = "all familiar rows" if num_rows is None else f"all {num_rows:,} familiar rows"
    familiar = usual.text or "nothing"
    if cell.missing:
        return f"{feature.name}, which is empty here and {familiar} in familiar rows like this one,"
    if feature.texts is not None:
        where = f"unlike {every}" if cell.outside else f"where familiar rows like this one have {familiar!r}"
        return f"{feature.name} {cell.text!r}, {where},"
    span = f"{feature.low:.4g} to {feature.high:.4g}"
    if cell.outside:
        where = f"{'above' if cell.number > feature.high else 'below'} {every} ({span})"
    else:
        where = f"where familiar rows like this one have {familiar} (all: {span})"
    return f"{feature.name} {cell.text}, {where},"


def _amount(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _settings(belief: Any) -> dict[str, Any]:
    found = getattr(belief, "settings", None)
    return found if isinstance(found, dict) else {}
