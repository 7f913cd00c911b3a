"""What `cautious solve` has found: the files that it writes and the tables that it prints."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from cautious.cli.console import console, make_table, plural, say, warn

if TYPE_CHECKING:
    from torch import Tensor

    from cautious.cli.inputs import DecisionInputs
    from cautious.policy.decision import Decision
    from cautious.solvers.certificate import Certificate
    from cautious.tables.cells import Table as DataTable
    from cautious.tables.schema import StateRows

POLICY, CERTIFICATE, DECISIONS = "policy.safetensors", "certificate.json", "decisions.csv"
UNDECIDED = "undecided"
"""What decisions.csv says about a row that no model can judge, where no action is named for such rows."""
WIDE_GAP = 0.1
"""A gap above this share of the value is warned about."""


ADDED = ("new", "not judged", "disagreement", "ordinarily")
"""The first columns that are added to decisions.csv, in this order; those of the levels follow, and why rows depart."""


WHY = "why"
"""The last column: why the models disagree about a row that departs."""


def users_columns(header: Sequence[str]) -> set[str]:
    """Names of a table's columns that are the user's: all but those that an earlier call of this command added."""
    for place in range(len(header)):
        following = header[place + len(ADDED) :]
        if tuple(header[place : place + len(ADDED)]) == ADDED and all(
            name.startswith(("decided ", "caution ")) or name == WHY for name in following
        ):
            return set(header[:place])
    return set(header)


@dataclass(frozen=True)
class Answer:
    """What L levels do in S states; for a single level, `policies` and `certificates` have no dimension L."""

    levels: Sequence[str]
    policies: dict[str, Tensor]
    """By name, [L, S, A]."""
    certificates: dict[str, Certificate]
    """One per policy, by the same names; with a bound per state, NaN for states that no model can judge."""
    record: dict[str, Any]
    """The settings of the solver."""
    decisions: list[Decision]
    """One per level, about all S states."""
    by_rule: Decision | None = None
    """What the rule of --fallback does."""
    inputs: DecisionInputs | None = None
    """The belief and the states; None if the rewards were given as an array."""

    @property
    def names(self) -> list[str]:
        """The actions' names; their numbers, where they have no names."""
        known = None if self.inputs is None else self.inputs.belief.actions
        return list(known or map(str, range(self.decisions[0].ordinary.shape[-1])))

    @property
    def usual(self) -> Tensor:
        """The ordinary action in each state, [S]; -1 where no model can judge."""
        import torch

        first = self.decisions[0]
        return torch.where(first.judged, first.ordinary.nan_to_num().argmax(dim=-1), -1)

    @property
    def estimated(self) -> str | None:
        """What the bounds hold for, if the world is an estimate; the same for every certificate."""
        remark = next((certificate.estimated for certificate in self.certificates.values()), None)
        return None if remark is None else str(remark)

    def wide_gaps(self) -> list[str]:
        """Levels whose best policy has a gap above `WIDE_GAP` of the value; none where each state has bounds of its own."""
        if self.record.get("regime") == "single-state":
            return []
        best = self.certificates["best_policy"]
        lower, upper = (bound.reshape(len(self.levels)).tolist() for bound in (best.lower, best.upper))
        return [
            level
            for level, low, high in zip(self.levels, lower, upper, strict=True)
            if high - low > WIDE_GAP * max(abs(low), abs(high))
        ]

    def stacked(self, name: str) -> Tensor:
        """A field of the decisions, [L, S, ...]; for a single level [S, ...]."""
        import torch

        parts = [getattr(decision, name) for decision in self.decisions]
        return parts[0].contiguous() if len(parts) == 1 else torch.stack(parts)

    def in_all_rows(self, rows: StateRows, bad_rows_action: int | None) -> Answer:
        """The same about all rows: those that no model can judge have the policy of the decision, and NaN for bounds.

        Args:
            rows: All of them; this answer is about those that can be judged.
            bad_rows_action: What to do in the others; None leaves them undecided.
        """
        import torch

        from cautious.policy.decision import with_unjudged
        from cautious.solvers.certificate import Certificate

        decisions = [with_unjudged(decision, rows.problems, bad_rows_action) for decision in self.decisions]
        whole = replace(self, decisions=decisions)
        judged = decisions[0].judged.nonzero().flatten()
        of_bad_rows = whole.stacked("probabilities")

        def policy_in_all_rows(policy: Tensor) -> Tensor:
            return of_bad_rows.to(policy.dtype).index_copy(-2, judged, policy.cpu())

        def bound_in_all_rows(bound: Tensor) -> Tensor:
            if self.record.get("regime") != "single-state":
                return bound  # one per level, for all states together
            unknown = torch.full((*bound.shape[:-1], len(decisions[0].action)), torch.nan, dtype=bound.dtype)
            return unknown.index_copy(-1, judged, bound.cpu())

        policies = {name: policy_in_all_rows(policy) for name, policy in self.policies.items()}
        certificates = {
            name: Certificate(
                bound_in_all_rows(found.lower),
                bound_in_all_rows(found.upper),
                bound_in_all_rows(found.gap),
                found.level,
            )
            for name, found in self.certificates.items()
        }
        return replace(whole, policies=policies, certificates=certificates)

    def save(self, folder: Path) -> None:
        """Write policy.safetensors, certificate.json and, for a table, decisions.csv: all together, or the old ones stay."""
        from cautious.io.arrays import FORMAT, checksum_of_file, save_json, save_tensors
        from cautious.io.atomic import write_together
        from cautious.tables.files import FileTable

        table = None if self.inputs is None else self.inputs.table
        if isinstance(table, FileTable):
            table.check_unchanged()  # its text is read again for decisions.csv: before anything is written
        arrays = self.policies | {
            "action": self.stacked("action"),
            "caution": self.stacked("caution"),
            "ordinary_policy": self.stacked("ordinary"),
            "disagreement": self.decisions[0].disagreement,
        }
        if self.by_rule is not None:
            arrays["fallback_action"] = self.by_rule.action
        certificates = {
            name: {part: _with_nulls(getattr(certificate, part).tolist()) for part in ("lower", "upper", "gap")}
            for name, certificate in self.certificates.items()
        }
        record = {"verdict": self.verdict, "format": FORMAT, "solution": self.record, "certificates": certificates}
        if self.estimated is not None:
            record["estimated"] = self.estimated
        checksums: dict[str, str] = {}

        def write_policy(target: Path) -> None:
            checksums[POLICY] = save_tensors(target, arrays)

        def write_decisions(target: Path) -> None:
            self._write_decisions(target)
            checksums[DECISIONS] = checksum_of_file(target)

        files = {
            POLICY: write_policy,
            DECISIONS: None
            if table is None
            else write_decisions,  # an earlier call may have left one, about other states
            CERTIFICATE: lambda target: save_json(target, record, checksums),
        }
        write_together(folder, files)

    def _write_decisions(self, path: Path) -> None:
        """Write the rows of the table with the decisions.

        The columns that are added: what is new about a row, why it could not be judged, the models' disagreement, the ordinary
        action, each level's action with its caution, the action of the rule, and why a row departs.
        """
        import csv

        from cautious.tables.files import FileTable, as_cell

        assert self.inputs is not None
        table, columns = self.inputs.table, self.inputs.belief.columns
        assert table is not None
        assert columns is not None
        first, names, usual = self.decisions[0], self.names, self.usual
        # A column of the user's may have one of these names; it is theirs.
        features = {*(feature.name for feature in columns.features), *(columns.others or ())}
        taken = features | users_columns(table.header)
        why = self.why

        def named(some: Tensor) -> list[str]:
            return [UNDECIDED if action < 0 else names[action] for action in some.tolist()]

        def numbers(values: Tensor, digits: int) -> list[str]:
            return ["" if math.isnan(value) else f"{value:.{digits}f}" for value in values.tolist()]

        def added_to(block: DataTable, rows: slice) -> dict[str, list[str]]:
            """New columns for some rows."""
            new = ["; ".join(remarks) for remarks in columns.remarks(block)]
            not_judged = list(first.reasons[rows])
            ordinarily = ["" if action < 0 else names[action] for action in usual[rows].tolist()]
            values = (new, not_judged, numbers(first.disagreement[rows], 3), ordinarily)
            added = dict(zip(ADDED, values, strict=True))
            for level, decision in zip(self.levels, self.decisions, strict=True):
                added[f"decided {level}"] = named(decision.action[rows])
                added[f"caution {level}"] = numbers(decision.caution[rows], 4)
            if self.by_rule is not None:
                added["decided with fallback"] = named(self.by_rule.action[rows])
            added[WHY] = why[rows]
            return {f"{name} (cautious)" if name in taken else name: cells for name, cells in added.items()}

        with path.open("w", newline="", encoding="utf-8") as file:
            writer, start = csv.writer(file), 0
            for block in table.blocks() if isinstance(table, FileTable) else [table]:
                added = added_to(block, slice(start, start + len(block)))
                # A table that this command wrote before has these columns already: replace them.
                kept = {name: block.read(name).texts() for name in block.header if name not in added}
                if start == 0:
                    writer.writerow(map(as_cell, [*kept, *added]))
                cells = [list(map(as_cell, texts)) for texts in added.values()]
                writer.writerows(zip(*kept.values(), *cells, strict=True))
                start += len(block)

    @functools.cached_property
    def why(self) -> list[str]:
        """Why the models disagree about each row in which the rule, or else the first level to do so, departs; S texts."""
        from cautious.policy.explanation import MOST_EXPLAINED

        sentences, left = [""] * len(self.decisions[0].action), MOST_EXPLAINED
        for decision in [*([] if self.by_rule is None else [self.by_rule]), *self.decisions]:
            rows = [row for row in decision.departs.nonzero().flatten().tolist() if not sentences[row]]
            for row, sentence in zip(rows, decision.why(rows, left), strict=True):
                sentences[row] = sentence
            left = max(0, left - len(rows))
        return sentences

    @functools.cached_property
    def verdict(self) -> list[str]:
        """A sentence per level: where it decides otherwise than the ordinary policy, and what is new there."""
        noun = "state" if self.inputs is None or self.inputs.table is None else "row"
        total = int(self.decisions[0].judged.sum())
        if not total:
            return [f"No model can judge any of these {noun}s."]
        names, usual, sentences = self.names, self.usual, []
        for level, decision in zip(self.levels, self.decisions, strict=True):
            changed = decision.judged & (decision.action != usual)
            if not (count := int(changed.sum())):
                sentences.append(f"{level}: decides as the ordinary policy in all of {plural(total, noun)}.")
                continue
            taken, instead = (names[int(each[changed].bincount().argmax())] for each in (decision.action, usual))
            often = "" if count == 1 else "most often "
            sentences.append(
                f"{level}: decides otherwise than the ordinary policy in {count:,} of {plural(total, noun)}, "
                f"{often}{taken} instead of {instead}{self._what_is_new(changed)}."
            )
        return sentences

    def _what_is_new(self, rows: Tensor) -> str:
        """Which column of a table is most often new to training in some of its rows [S], in words."""
        from cautious.tables.files import FileTable

        if self.inputs is None or self.inputs.table is None or self.inputs.belief.columns is None:
            return ""
        table, found, start = self.inputs.table, collections.Counter[str](), 0
        for block in table.blocks() if isinstance(table, FileTable) else [table]:
            chosen = rows[start : start + len(block)].tolist()
            for feature in self.inputs.belief.columns.features:
                remarks = feature.remarks(block.read(feature.name))
                found[feature.name] += sum(bool(remark) and one for remark, one in zip(remarks, chosen, strict=True))
            start += len(block)
        [(name, count)] = found.most_common(1)
        return f"; {name} is new to training in {count:,} of these rows" if count else ""

    def show(self, tables: bool) -> None:
        """Print warnings and, if asked for, how many rows get which action and how good the decisions are."""
        first = self.decisions[0]
        if tables:
            console.print(self._actions_table())
        if bool(first.judged.any()):
            if tables:
                console.print(self._certificate_table())
            if wide := self.wide_gaps():
                warn(
                    f"the gap at {', '.join(wide)} is more than a tenth of the value: the policy may be far from the best. Use "
                    "a smaller --tolerance, or more --iterations where they are given."
                )
            if self.estimated is not None:
                say(f"these bounds are about the estimated world only: {self.estimated}.")
            if not tables:
                return
            console.print(self._caution_table())
            has_unit = self.inputs is not None and self.inputs.belief.familiar is not None
            console.print(disagreement_table(first.disagreement[first.judged], has_unit))

    def _actions_table(self) -> Table:
        """In how many states each action is taken ordinarily, by each level, and by the rule of --fallback."""
        rules = [*self.levels, *([] if self.by_rule is None else ["with fallback"])]
        deciding = [*self.decisions, *([] if self.by_rule is None else [self.by_rule])]
        actions, labels = [self.usual, *(decision.action for decision in deciding)], [UNDECIDED, *self.names]
        counts = [(each + 1).bincount(minlength=len(labels)).tolist() for each in actions]
        rows = [
            (label, *(f"{count:,}" for count in row))
            for label, *row in zip(labels, *counts, strict=True)
            if any(row) or (len(labels) <= 21 and label != UNDECIDED)
        ]
        rows = [*rows[1:], rows[0]] if any(count[0] for count in counts) else rows
        headings = ("action", "ordinarily", *rules)
        return make_table("number of states per action", headings, rows, text_columns=("action",))

    def _certificate_table(self) -> Table:
        """Per level and policy: its exact value, the bound for every policy, the gap (means, if there is one per state)."""
        rows = []
        for number, level in enumerate(self.levels):
            for name, certificate in self.certificates.items():
                parts = (certificate.lower, certificate.upper, certificate.gap)
                means = [float(part.reshape(len(self.levels), -1)[number].nanmean()) for part in parts]
                rows.append((level, name, *(f"{mean:.6f}" for mean in means)))
        headings = ("level", "policy", "value (lower)", "bound for all (upper)", "gap")
        return make_table("distance from the best possible policy", headings, rows, text_columns=headings[:2])

    def _caution_table(self) -> Table:
        """How much each level departs from the ordinary policy."""
        rows = []
        for level, decision in zip(self.levels, self.decisions, strict=True):
            values = decision.caution[decision.judged]
            high = int((values > 0.5).sum())
            numbers = (f"{float(values.mean()):.3f}", f"{float(values.max()):.3f}", f"{high:,}")
            rows.append((level, f"{len(values):,}", *numbers))
        return make_table(
            "distance from ordinary behaviour",
            ("level", "states", "mean caution", "maximum", "states above 0.5"),
            rows,
            text_columns=("level",),
            caption="caution: 0 acts as usual, 1 entirely differently",
        )


def disagreement_table(disagreement: Tensor, has_unit: bool) -> Table:
    """How much the models differ, [S]; in units of familiar states if the belief has that unit."""
    row = [f"{len(disagreement):,}", f"{float(disagreement.median()):.3g}", f"{float(disagreement.max()):.3g}"]
    headings = ["states", "median", "maximum"]
    if has_unit:
        row.append(f"{int((disagreement > 1).sum()):,}")
        headings.append("states above 1")
    unit = "95 % of familiar states are below 1" if has_unit else "in units of the reward"
    return make_table("disagreement of the models", headings, [row], caption=unit)


def _with_nulls(values: Any) -> Any:
    """Numbers for JSON, which has no NaN: of rows that could not be judged."""
    if isinstance(values, list):
        return [_with_nulls(value) for value in values]
    return None if math.isnan(values) else values
