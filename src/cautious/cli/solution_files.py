"""What `cautious solve` writes: policies, their certificates, and a table's rows with the decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

    from cautious.cli.inputs import DecisionInputs
    from cautious.policy.decision import Decision
    from cautious.solvers.certificate import Certificate
    from cautious.tables.cells import Table as DataTable

POLICY, CERTIFICATE, DECISIONS = "policy.safetensors", "certificate.json", "decisions.csv"
WIDE_GAP = 0.1
UNDECIDED = "undecided"
"""What decisions.csv says about a row that no model can judge, without --fallback."""


class Solved(NamedTuple):
    """Policies of L levels; for a single level, `policies` and `certificates` have no dimension L."""

    policies: dict[str, Tensor]
    """By name, [L, S, A]."""
    certificates: dict[str, Certificate]
    """One per policy, by the same names."""
    record: dict[str, Any]
    """The settings of the solver."""
    cautious: Tensor
    """The policy to follow, [L, S, A]."""
    ordinary: Tensor
    """The ordinary policy, [L, S, A]."""

    @property
    def estimated(self) -> str | None:
        """What the bounds hold for, if the world is an estimate; the same for every certificate."""
        remark = next((certificate.estimated for certificate in self.certificates.values()), None)
        return None if remark is None else str(remark)

    def wide_gaps(self, num_levels: int) -> list[int]:
        """Numbers of the levels whose best policy has a gap above `WIDE_GAP` of the value; none where states have one each."""
        if self.record.get("regime") == "single-state":
            return []
        best = self.certificates["best_policy"]
        lower, upper = (bound.reshape(num_levels).tolist() for bound in (best.lower, best.upper))
        return [
            number
            for number, (low, high) in enumerate(zip(lower, upper, strict=True))
            if high - low > WIDE_GAP * max(abs(low), abs(high))
        ]

    def in_all_rows(self, decision: Decision) -> Solved:
        """The same for files, where rows that could not be judged have the policy of the decision, and NaN for bounds."""
        import torch

        from cautious.solvers.certificate import Certificate

        judged = decision.judged

        def spread_out(values: Tensor, like: Tensor | None = None) -> Tensor:
            if like is None and self.record.get("regime") != "single-state":
                return values  # one bound per level, for all states together
            dim = -1 if like is None else -2
            shape = [*values.shape]
            shape[dim] = len(judged)
            missing = (
                torch.full(shape, torch.nan, dtype=values.dtype) if like is None else like.to(values.dtype).clone()
            )
            return missing.index_copy_(dim, judged.nonzero().flatten(), values.cpu())

        policies = {name: spread_out(policy, decision.probabilities) for name, policy in self.policies.items()}
        certificates = {
            name: Certificate(spread_out(found.lower), spread_out(found.upper), spread_out(found.gap), found.level)
            for name, found in self.certificates.items()
        }
        return self._replace(policies=policies, certificates=certificates)


def save_solution(
    folder: Path,
    inputs: DecisionInputs | None,
    levels: Sequence[str],
    solved: Solved,
    decision: Decision,
    fallback: Decision | None,
) -> None:
    """Write policy.safetensors, certificate.json and, for states of a table, decisions.csv.

    Args:
        folder: Where to.
        inputs: The belief and the states; None if the rewards were given as an array.
        levels: L of them.
        solved: Policies and certificates, one row per row of the user's file.
        decision: Of these levels, [L, S], or of a single level, [S].
        fallback: Of the fallback rule, [S].
    """
    from cautious.io.arrays import FORMAT, save_json, save_tensors
    from cautious.tables.csv import FileTable

    if inputs is not None and isinstance(inputs.table, FileTable):
        inputs.table.check_unchanged()  # its text is read again for decisions.csv: before anything is written
    decisions = {
        "action": decision.action,
        "caution": decision.caution,
        "ordinary_policy": decision.ordinary.contiguous(),
        "disagreement": decision.disagreement,
    }
    if fallback is not None:
        decisions["fallback_action"] = fallback.action
    files = {POLICY: save_tensors(folder / POLICY, solved.policies | decisions)}
    certificates = {
        name: {part: _with_nulls(getattr(certificate, part).tolist()) for part in ("lower", "upper", "gap")}
        for name, certificate in solved.certificates.items()
    }
    record = {"format": FORMAT, "solution": solved.record, "certificates": certificates}
    if solved.estimated is not None:
        record["estimated"] = solved.estimated
    save_json(folder / CERTIFICATE, record, files)
    if inputs is not None and inputs.columns is not None:
        write_decisions(folder / DECISIONS, inputs, levels, decision, fallback)
    else:
        (folder / DECISIONS).unlink(missing_ok=True)  # an earlier call may have left one, about other states


def write_decisions(
    path: Path, inputs: DecisionInputs, levels: Sequence[str], decision: Decision, fallback: Decision | None = None
) -> None:
    """Write the table's rows, each with what is new about it, the models' disagreement and the decisions.

    The decisions are the ordinary action, and each level's action with its caution.

    Args:
        path: The file to write.
        inputs: The table.
        levels: L of them.
        decision: Of these levels, [L, S], or of a single level, [S].
        fallback: Of the fallback rule, [S].
    """
    import csv

    from cautious.io.atomic import atomic_write
    from cautious.tables.csv import FileTable

    table, columns = inputs.table, inputs.columns
    assert table is not None
    assert columns is not None

    names = columns.actions or [str(number) for number in range(decision.ordinary.shape[-1])]
    ordinary = decision.ordinary.reshape(len(levels), -1, decision.ordinary.shape[-1])[0]  # the same for every level
    usual = ordinary.nan_to_num().argmax(dim=1)
    actions, caution = (part.reshape(len(levels), -1) for part in (decision.action, decision.caution))
    # A feature or an outcome of the user's may have one of these names; it is theirs.
    taken = {*(feature.name for feature in columns.features), *(columns.others or ())}

    def named(some: Tensor) -> list[str]:
        return [UNDECIDED if action < 0 else names[action] for action in some.tolist()]

    def numbers(values: Tensor, digits: int) -> list[str]:
        return ["" if math.isnan(value) else f"{value:.{digits}f}" for value in values.tolist()]

    def added_to(block: DataTable, rows: slice) -> dict[str, list[str]]:
        """New columns for some rows."""
        added = {"new": ["; ".join(remarks) for remarks in columns.remarks(block)]}
        added["not judged"] = list(decision.reasons[rows]) or [""] * len(block)
        added["disagreement"] = numbers(decision.disagreement[rows], 3)
        judged = zip(named(usual[rows]), added["not judged"], strict=True)
        added["ordinarily"] = ["" if reason else name for name, reason in judged]
        for number, level in enumerate(levels):
            added[f"decided {level}"] = named(actions[number, rows])
            added[f"caution {level}"] = numbers(caution[number, rows], 4)
        if fallback is not None:
            added["decided with fallback"] = named(fallback.action[rows])
        return {f"{name} (cautious)" if name in taken else name: cells for name, cells in added.items()}

    def write(target: Path) -> None:
        with target.open("w", newline="", encoding="utf-8") as file:
            writer, first = csv.writer(file), 0
            for block in table.blocks() if isinstance(table, FileTable) else [table]:
                added = added_to(block, slice(first, first + len(block)))
                # A table that this command wrote before has these columns already: replace them.
                kept = {name: block.read(name).texts() for name in block.header if name not in added}
                if first == 0:
                    writer.writerow([*kept, *added])
                writer.writerows(zip(*kept.values(), *added.values(), strict=True))
                first += len(block)

    atomic_write(path, write)


def _with_nulls(values: Any) -> Any:
    """Numbers for JSON, which has no NaN: of rows that could not be judged."""
    if isinstance(values, list):
        return [_with_nulls(value) for value in values]
    return None if math.isnan(values) else values
