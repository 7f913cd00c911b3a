"""Departures per hundred rows, with a control limit: whether what a policy is asked about has changed.

Familiar rows depart from the ordinary action at a known rate. Their number in a window of n rows is binomial. A number above

    c = min { c : P(Bin(n, rate) > c) <= false_alarms }

says that the rows have changed: a new kind of case, a sensor that is off, a column in another unit. Rows that no model can
judge count as departures, too.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtrc
from torch import Tensor

from cautious.errors import Argument, InvalidInputError
from cautious.ops.rates import binomial_upper_bound
from cautious.policy.decision import Decision
from cautious.validation import as_number, parse_count

MOST_WINDOWS = 1000
"""Windows that a monitor remembers."""


class Window(NamedTuple):
    """What happened in a window of rows."""

    first: int
    """The number of its first row, counted from 0 since the monitor began."""
    departures: int
    """Rows with another action than ordinarily, and rows that no model can judge."""
    not_judged: int
    """Of these, the rows that no model can judge."""
    alarm: bool
    """Whether there are more departures than the limit."""


def departure_limit(rate: float, num_rows: int = 100, false_alarms: float = 0.001) -> int:
    """The most departures among some rows that chance explains, where rows depart at a known rate.

        c = min { c : P(Bin(num_rows, rate) > c) <= false_alarms }

    Args:
        rate: The rate of departures in familiar rows, in [0, 1].
        num_rows: Rows of a window.
        false_alarms: The share of windows of familiar rows that may have more, in (0, 1).

    Returns:
        The limit. More departures than this are an alarm.

    >>> departure_limit(0.05), departure_limit(0.05, num_rows=1000), departure_limit(0.0)
    (13, 73, 0)
    """
    if not 0 <= as_number(rate) <= 1:
        raise InvalidInputError(Argument("rate", rate), " must be in [0, 1]: the share of familiar rows that depart.")
    if not 0 < as_number(false_alarms) < 1:
        raise InvalidInputError(Argument("false_alarms", false_alarms), " must be between 0 and 1, both excluded.")
    count = parse_count(num_rows, "num_rows")
    above = bdtrc(np.arange(count + 1), count, rate)
    return int(np.argmax(above <= false_alarms))


class DepartureMonitor:
    """Counts departures in windows of rows, and says where there are more than chance explains.

    It can be shared by the threads of a service. docs/monitor.md has one in use.

    >>> import torch
    >>> from cautious import CautiousPolicy
    >>> models = torch.tensor([[[1.0, 0.3], [1.0, 0.3]], [[0.9, 0.3], [-0.2, 0.3]]])  # they disagree about state 1
    >>> policy, monitor = CautiousPolicy(models, "1-of-2"), DepartureMonitor(0.05, num_rows=20)
    >>> monitor.limit, monitor.add(policy.decide([0] * 18 + [1] * 2)), monitor.add(policy.decide([1] * 20))
    (5, [Window(first=0, departures=2, not_judged=0, alarm=False)], [Window(first=20, departures=20, not_judged=0, alarm=True)])
    """

    def __init__(self, rate: float, *, num_rows: int = 100, false_alarms: float = 0.001) -> None:
        """Set the limit (`departure_limit`).

        Args:
            rate: The rate of departures in familiar rows: what `calibrate` found, for example; or use `of`.
            num_rows: Rows of a window. Larger windows show smaller changes, later.
            false_alarms: The share of windows of familiar rows that may give an alarm.
        """
        self.limit = departure_limit(rate, num_rows, false_alarms)
        """The most departures in a window without an alarm."""
        self.rate, self.num_rows, self.false_alarms = float(rate), int(num_rows), float(false_alarms)
        self.windows: deque[Window] = deque(maxlen=MOST_WINDOWS)
        """The last windows that are full, the newest last."""
        self._rows, self._departures, self._not_judged = 0, 0, 0
        self._lock = Lock()

    @classmethod
    def of(
        cls, familiar: Decision, *, num_rows: int = 100, false_alarms: float = 0.001, confidence: float = 0.95
    ) -> DepartureMonitor:
        """A monitor whose rate comes from decisions about familiar rows, which no model was trained on.

        Args:
            familiar: What the policy decided about them.
            num_rows: Rows of a window.
            false_alarms: The share of windows of familiar rows that may give an alarm.
            confidence: The rate is the upper bound with this confidence (Clopper and Pearson): few rows show little.
        """
        if not isinstance(familiar, Decision):
            raise InvalidInputError(f"familiar is a {type(familiar).__name__}; pass policy.decide(familiar_rows).")
        if not 0 < as_number(confidence) < 1:
            raise InvalidInputError(Argument("confidence", confidence), " must be between 0 and 1, both excluded.")
        count = int(_departing(familiar).sum())
        rate = binomial_upper_bound(count, len(familiar.action), 1 - confidence)
        return cls(rate, num_rows=num_rows, false_alarms=false_alarms)

    def add(self, decision: Decision) -> list[Window]:
        """Count the rows of a decision; returns the windows that they filled, each with its `alarm`."""
        if not isinstance(decision, Decision):
            raise InvalidInputError(f"decision is a {type(decision).__name__}; pass what policy.decide returned.")
        departing, bad = _departing(decision).numpy(), ~decision.judged.numpy()
        filled = []
        with self._lock:
            start = 0
            while start < len(departing):
                stop = start + self.num_rows - self._rows % self.num_rows
                self._departures += int(departing[start:stop].sum())
                self._not_judged += int(bad[start:stop].sum())
                self._rows += len(departing[start:stop])
                start = stop
                if self._rows % self.num_rows == 0:
                    alarm = self._departures > self.limit
                    filled.append(Window(self._rows - self.num_rows, self._departures, self._not_judged, alarm))
                    self._departures = self._not_judged = 0
            self.windows.extend(filled)
        return filled

    def to_dict(self) -> dict[str, Any]:
        """The limit and the last windows, for JSON: a chart of departures over time needs no more."""
        with self._lock:
            windows = list(self.windows)
        return {
            "rate": self.rate,
            "num_rows": self.num_rows,
            "limit": self.limit,
            "rows": self._rows,
            "alarms": sum(window.alarm for window in windows),
            "windows": [window._asdict() for window in windows],
        }

    def __repr__(self) -> str:
        """The limit, and how many windows were above it."""
        alarms = sum(window.alarm for window in list(self.windows))
        return f"DepartureMonitor(at most {self.limit} of {self.num_rows} rows, {alarms} alarms in {len(self.windows)} windows)"


def _departing(decision: Decision) -> Tensor:
    """Rows with another action than ordinarily, and rows that no model can judge, [B]."""
    return decision.departs | ~decision.judged
