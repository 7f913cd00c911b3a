"""`evaluate`: would caution have paid on this table? One group of rows at a time is left out of training, and is then novel.

For each group: train on the others, keep a part of their rows aside as familiar test rows, and decide about these and about the
group that was left out. k-of-N at several levels stands beside a forest with a threshold, nearest neighbours and a Mahalanobis
distance, each with a threshold at which it departs on as many of the same familiar rows.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cautious.baselines.evaluation import ORDINARY, OURS, Evaluation, judge
from cautious.baselines.kept_rows import keep_rows, known_rows
from cautious.baselines.refer_rules import SCORES, Known, check_installed, forest_probabilities, referring
from cautious.beliefs.diagnostics import BeliefWarning
from cautious.beliefs.fit import fit_ensemble
from cautious.beliefs.training.estimate import LongTrainingWarning
from cautious.errors import Argument, InvalidInputError
from cautious.parallel import single_threaded
from cautious.policy.policy import CautiousPolicy
from cautious.progress import Progress, as_progress
from cautious.risk import RiskMeasure, parse_levels, weights_by_rank
from cautious.seeding import check_seed, derive_seed, make_rng
from cautious.tables.cells import Table, check_column, in_order
from cautious.tables.files import read_tables
from cautious.tables.frames import FrameTable, as_table, is_named
from cautious.tables.learn import Missing, TableWarning, as_names, learn, select
from cautious.tables.payoffs import Payoffs, label_numbers, read_payoffs
from cautious.validation import as_folder, as_number, as_path, parse_choice, parse_count

LEVELS = tuple(f"{k}-of-20" for k in (18, 15, 12, 10, 8, 6, 4, 3, 2, 1))
REFER = "refer"
METHODS = (OURS, *SCORES)
KEYS = ("run", "group", "method", "level")
STORE = "unfinished.jsonl"
MOST_GROUPS, FEWEST_ROWS = 50, 2
"""Groups that are left out in turn, and rows of each."""
FIT_STEPS = 100
"""Steps of a progress bar that the training for one group counts as."""


class _Task(NamedTuple):
    """A table with its labels, groups and payoffs, all of whose rows can be used."""

    table: Table
    features: tuple[str, ...]
    """Columns of the state."""
    categorical: tuple[str, ...]
    """Those of them that hold kinds."""
    labels: np.ndarray
    """Number of each row's label, [S]."""
    groups: np.ndarray
    """Each row's value of the hold-out column, [S]."""
    payoffs: Payoffs
    """What each action pays for each label."""
    held_out: tuple[str, ...]
    """Groups that are left out in turn."""
    missing: Missing
    """What becomes of rows with an empty cell."""
    notes: tuple[str, ...]


class _Split(NamedTuple):
    """The rows of one group left out: numbers of rows of the table."""

    training: np.ndarray
    familiar: np.ndarray
    """Kept aside from training."""
    novel: np.ndarray

    @property
    def asked(self) -> np.ndarray:
        """Rows to decide about: familiar ones, then novel ones."""
        return np.concatenate([self.familiar, self.novel])


class _Training(NamedTuple):
    """How the models of each group are trained."""

    num_models: int
    num_epochs: int | None
    seed: int


@single_threaded
def evaluate(
    data: Any,
    *,
    label: str,
    hold_out: str,
    payoffs: Any = None,
    wrong: float = 1.0,
    levels: Sequence[Any] = LEVELS,
    at_most: float = 0.05,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: str = "leave-out",
    aside: float = 0.25,
    num_models: int = 100,
    num_epochs: int | None = None,
    max_groups: int = MOST_GROUPS,
    seed: int = 0,
    out: Path | str | None = None,
    progress: bool | Progress = True,
) -> Evaluation:
    """Whether caution would have paid on a table: leave one group of rows out at a time, and see what each method earns there.

    Groups are the values of a column: the label itself (a kind of row that training did not have), or a hospital, a supplier, a
    month. The models are trained on the other groups, but for a part of their rows that is kept aside as familiar test rows.
    Beside k-of-N stand a random forest, nearest neighbours and a Mahalanobis distance, each with a threshold beyond which it
    takes the action with the best worst case, and below which it does what the forest says. A threshold is set on familiar rows
    alone: at most as many of their decisions depart as with k-of-N at the level that it is compared with.

    Args:
        data: A table: a frame (pandas, polars), a dictionary of columns, or one or several files (.csv, .parquet).
        label: The column with what turned out to be true of each row.
        hold_out: The column whose values are left out in turn; may be `label`. No method sees this column: to use what is
            judged here, train without it.
        payoffs: What each action pays for each label: a frame or a .csv file with a column of labels and one column per action,
            a dictionary {label: {action: payoff}}, as for `fit_ensemble`. Without it the actions are one answer per label and
            "refer": a right answer pays 1, a wrong one costs `wrong`, and to refer pays 0.
        wrong: What a wrong answer costs, without `payoffs`. With 1, to refer is best where every answer is more likely wrong
            than right.
        levels: Levels of k-of-N, any risk measures.
        at_most: Methods are judged at the most cautious level that departs from the ordinary on at most this share of familiar
            rows, on average over the groups.
        ignore: Columns that are no part of a row's state, such as names and dates.
        categorical: Columns whose numbers only name kinds, as postcodes do.
        missing: What becomes of rows with an empty cell: "leave-out" or "indicator" (`read_log`).
        aside: Share of each label's rows that is kept aside from training as familiar test rows.
        num_models: Models of each belief.
        num_epochs: Passes over the data of each training; by default that of `fit_ensemble`.
        max_groups: Most groups that are left out in turn; the largest ones.
        seed: Starts the choice of familiar rows, the trainings and the forest.
        out: Folder for evaluation.csv (all rows), evaluation.png and evaluation.json (the summary and the verdict), which
            appear together. Finished methods of finished groups are kept there meanwhile: after an interruption, the same call
            resumes, and ends with the same bits.
        progress: True shows a line; or a function of (steps done, steps in all); False is silent.

    Returns:
        An `Evaluation`: `verdict` says in words which method to use, `to_frame()` has a row per group, method and level.

    Raises:
        InvalidInputError: A column is missing, fewer than two groups can be left out, or a label has no payoffs.
        MissingPackageError: scikit-learn, which has the forest and the distances, is not installed.

    Warns:
        TableWarning: Rows, columns or groups were left out.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> kind = np.repeat(["a", "b", "c", "d"], 30)
    >>> table = {"x": np.repeat([0.0, 3.0, 6.0, 9.0], 30) + rng.normal(size=120), "y": rng.normal(size=120), "kind": kind}
    >>> found = evaluate(table, label="kind", hold_out="kind", levels=["5-of-10"], num_models=10, num_epochs=5, progress=False)
    >>> sorted(found.to_frame().group.unique())
    ['a', 'b', 'c', 'd']
    """
    check_installed("evaluate")
    chosen = tuple({str(level): level for level in parse_levels(list(levels))}.values())
    if not 0 < as_number(at_most) < 1:
        raise InvalidInputError(Argument("at_most", at_most), " must be between 0 and 1, both excluded.")
    if not 0 < as_number(aside) < 1:
        raise InvalidInputError(Argument("aside", aside), " must be between 0 and 1, both excluded.")
    rule = parse_choice(Missing, missing, "missing")
    epochs = None if num_epochs is None else parse_count(num_epochs, "num_epochs")
    training = _Training(parse_count(num_models, "num_models"), epochs, check_seed(seed))
    for level in chosen:
        weights_by_rank(level, training.num_models)  # raises for a level that these models cannot serve
    columns = (label, hold_out, as_names(ignore, "ignore"), as_names(categorical))
    task = _task(data, columns, payoffs, wrong, rule, parse_count(max_groups, "max_groups", 2))
    for note in task.notes:
        warnings.warn(TableWarning(note), stacklevel=3)
    folder = None if out is None else as_folder(out, "out")
    path = None if folder is None else folder / STORE
    run = _fingerprint(task, training, [str(level) for level in chosen], aside)
    known = known_rows(path, KEYS)
    settings = [ORDINARY, *map(str, chosen)]
    report = _Steps(as_progress(progress, "evaluating"), len(task.held_out))
    for number, group in enumerate(task.held_out):
        split = _split(task, group, aside, training.seed)
        for place, method in enumerate(METHODS):
            if any(
                (run, group, method, setting) not in known for setting in settings
            ):  # a block may have been cut short
                rows = (
                    _by_k_of_n(task, split, chosen, training, report.of_fit(number))
                    if method == OURS
                    else _by_rule(
                        task, split, method, [known[run, group, OURS, str(level)] for level in chosen], training
                    )
                )
                keep_rows(path, [{"run": run, "group": group, "method": method, **row} for row in rows], known, KEYS)
            report.tell(number, FIT_STEPS + place)
    rows = [known[run, group, method, level] for group in task.held_out for method in METHODS for level in settings]
    found = judge([{name: value for name, value in row.items() if name != "run"} for row in rows], at_most, task.notes)
    if folder is not None and path is not None:
        from cautious.baselines.evaluation_files import save_evaluation

        save_evaluation(found, folder)
        path.unlink(missing_ok=True)
    return found


class _Steps:
    """One progress for the groups: each is a training and the methods."""

    def __init__(self, progress: Progress | None, num_groups: int) -> None:
        """Report to `progress`, where there is one."""
        self._progress = progress
        self._each = FIT_STEPS + len(METHODS) - 1
        self._total = num_groups * self._each

    def tell(self, group: int, steps: int) -> None:
        """So many steps of a group are done."""
        if self._progress is not None:
            self._progress(group * self._each + steps, self._total)

    def of_fit(self, group: int) -> Progress:
        """The progress of the training for a group."""
        return lambda done, total: self.tell(group, FIT_STEPS * done // max(total, 1))


def _task(
    data: Any,
    columns: tuple[str, str, tuple[str, ...], tuple[str, ...]],
    payoffs: Any,
    wrong: float,
    rule: Missing,
    most: int,
) -> _Task:
    """The table with its groups, checked, without rows that cannot be used; `columns` as of `evaluate`."""
    label, hold_out, ignore, categorical = columns
    if is_named(data):
        table: Table = as_table(data, "data")
    else:
        table = read_tables([as_path(path, "data") for path in (data if isinstance(data, (list, tuple)) else [data])])
    for name in (label, hold_out, *ignore):
        check_column(table, name)
    notes = []
    holes = table.read(label).missing | table.read(hold_out).missing
    if holes.all():
        raise InvalidInputError(f"{table.origin}: no row has both a {label!r} and a {hold_out!r}.")
    if holes.any():
        named = repr(label) if label == hold_out else f"{label!r} or {hold_out!r}"
        notes.append(f"{int(holes.sum()):,} of {len(table):,} rows have no {named}: left out.")
        table = select(table, np.flatnonzero(~holes))
    others = tuple(dict.fromkeys((label, hold_out, *ignore)))
    learned = learn(table, others, rule, (), categorical)
    notes += [str(note) for note in learned.notes]
    table = select(table, learned.rows)
    groups = np.array(table.read(hold_out).texts())
    numbers, names = label_numbers(table.read(label).texts(), len(table))
    known, unused = read_payoffs(_answers(names, wrong) if payoffs is None else payoffs, names)
    if unused:
        notes.append(f"payoffs for labels that no row has: {', '.join(map(repr, unused))}.")
    held_out, more = _held_out(groups, numbers.numpy(), hold_out, most)
    checked = known.checked_for(learned.schema)
    features = tuple(feature.name for feature in learned.schema.features)
    kinds = tuple(feature.name for feature in learned.schema.features if feature.texts is not None)
    return _Task(table, features, kinds, numbers.numpy(), groups, checked, held_out, rule, (*notes, *more))


def _held_out(groups: np.ndarray, labels: np.ndarray, column: str, most: int) -> tuple[tuple[str, ...], list[str]]:
    """Groups to leave out in turn, and what to say about the others."""
    sizes, num_rows = {group: int((groups == group).sum()) for group in in_order(groups.tolist())}, len(groups)
    if len(sizes) == 1:
        raise InvalidInputError(
            Argument("hold_out", column),
            f": the column holds {next(iter(sizes))!r} in every row; a column with two groups at least is needed.",
        )
    notes = []
    lonely = [group for group, size in sizes.items() if size < FEWEST_ROWS]
    if lonely:
        shown = ", ".join(map(repr, lonely[:5])) + (", ..." if len(lonely) > 5 else "")
        notes.append(
            f"column {column!r}: {len(lonely)} of {len(sizes)} groups have a single row ({shown}); they are trained on, and "
            "not left out in turn."
        )
    blind = [group for group in sizes if len(set(labels[groups != group].tolist())) < 2]
    if blind:
        notes.append(
            f"column {column!r}: without {', '.join(map(repr, blind[:5]))} a single label is left to learn; not left out in "
            "turn."
        )
    usable = [group for group in sizes if group not in lonely and group not in blind]
    if len(usable) < 2:
        words = f"; its {len(sizes)} values in {num_rows} rows are no groups" if 2 * len(sizes) > num_rows else ""
        raise InvalidInputError(
            Argument("hold_out", column), f": fewer than two groups can be left out{words}. {' '.join(notes)}".rstrip()
        )
    if len(usable) > most:
        largest = sorted(usable, key=lambda group: -sizes[group])[:most]
        notes.append(
            f"column {column!r} has {len(sizes)} groups in {num_rows} rows; the {most} largest are left out in turn, the "
            "others are trained on."
        )
        usable = [group for group in usable if group in set(largest)]
    return tuple(usable), notes


def _answers(names: Sequence[str], wrong: float) -> dict[str, dict[str, float]]:
    """Payoffs of one answer per label and "refer": a right answer pays 1, a wrong one costs `wrong`.

    >>> _answers(("cat", "dog"), 2)["cat"]
    {'cat': 1.0, 'dog': -2.0, 'refer': 0.0}
    """
    cost = as_number(wrong)
    if not 0 <= cost < float("inf"):
        raise InvalidInputError(
            Argument("wrong", wrong), ": what a wrong answer costs must be zero or a positive number."
        )
    refer = REFER if REFER not in names else f"{REFER} (no answer)"
    return {name: {other: 1.0 if other == name else -float(cost) for other in names} | {refer: 0.0} for name in names}


def _split(task: _Task, group: str, aside: float, seed: int) -> _Split:
    """Rows of the other groups, a share of each label's kept aside, and those of the group."""
    novel = task.groups == group
    draws, kept = make_rng(seed, "evaluate", group), []
    for number in range(len(task.payoffs.labels)):
        own = np.flatnonzero(~novel & (task.labels == number))
        kept.append(draws.permutation(own)[: int(aside * len(own))])
    familiar = np.sort(np.concatenate(kept))
    if not len(familiar):
        raise InvalidInputError(
            Argument("aside", aside),
            f": without {group!r} no label has enough rows to keep one aside; give more rows, or a larger share.",
        )
    training = np.setdiff1d(np.flatnonzero(~novel), familiar)
    return _Split(training, familiar, np.flatnonzero(novel))


class _Asked(NamedTuple):
    """One group's training rows, and the rows to decide about: B of them, of which the first F are familiar."""

    known: Known
    usable: np.ndarray
    """Which of the split's rows can be judged after this training, [familiar + novel]."""
    num_familiar: int
    payoffs: np.ndarray
    """What each action pays for each label in each row, [B, L, A]."""
    paid: np.ndarray
    """What each action pays in truth, [B, A]."""
    careful: np.ndarray
    """The action with the best worst case among the labels of the training, [B]."""

    def row(self, level: str, actions: np.ndarray, departs: np.ndarray) -> dict[str, Any]:
        """What actions [B] earn, and how often they depart from the ordinary ones."""
        earned, cut = self.paid[np.arange(len(actions)), actions], self.num_familiar
        found: dict[str, Any] = {"level": level}
        for name, part in (("familiar", slice(0, cut)), ("novel", slice(cut, None))):
            found |= {
                f"{name}_payoff": float(earned[part].mean()),
                f"{name}_departures": float(departs[part].mean()),
                f"{name}_rows": len(earned[part]),
            }
        return found


def _asked(task: _Task, split: _Split, seed: int) -> _Asked:
    """What the rules learn from and are asked, with columns read as the training rows of this group have them."""
    learned = learn(_features(task, split.training), (), task.missing, (), task.categorical)
    read = learned.schema.read(_features(task, split.asked))
    usable = read.problems.usable
    num_familiar = int(usable[: len(split.familiar)].sum())
    if num_familiar in (0, len(read.states)):
        raise InvalidInputError(f"{read.problems}; no familiar row, or no novel one, is left to judge by.")
    labels = task.labels[split.training]
    payoffs = task.payoffs.of_rows(read.states, learned.schema)
    each = payoffs.expand(len(read.states), *payoffs.shape[-2:]).numpy()
    truth = task.labels[split.asked][usable]
    known = Known(
        learned.states.numpy(), labels, read.states.numpy(), len(task.payoffs.labels), derive_seed(seed, "forest")
    )
    careful = each[:, np.unique(labels)].min(axis=1).argmax(axis=1)
    return _Asked(known, usable, num_familiar, each, each[np.arange(len(truth)), truth], careful)


def _features(task: _Task, rows: np.ndarray) -> FrameTable:
    """The columns of the state in some rows."""
    part = select(task.table, rows)
    return replace(part, columns={name: part.columns[name] for name in task.features})


def _by_k_of_n(
    task: _Task, split: _Split, levels: Sequence[RiskMeasure], training: _Training, progress: Progress
) -> list[dict[str, Any]]:
    """Rows of k-of-N at each level, and of its ordinary policy."""
    asked = _asked(task, split, training.seed)
    known, rows = (_cells(_features(task, part)) for part in (split.training, split.asked[asked.usable]))
    epochs: dict[str, Any] = {} if training.num_epochs is None else {"num_epochs": training.num_epochs}
    with warnings.catch_warnings():
        for category in (BeliefWarning, TableWarning, LongTrainingWarning):
            warnings.simplefilter("ignore", category)
        belief = fit_ensemble(
            known,
            labels=[task.payoffs.labels[number] for number in task.labels[split.training]],
            payoffs=task.payoffs,
            num_models=training.num_models,
            missing=str(task.missing),
            categorical=task.categorical,
            seed=training.seed,
            progress=progress,
            **epochs,
        )
        decisions = CautiousPolicy(belief, levels[0]).decide_at(levels, rows, allow_undecided=True)
    ordinary = decisions[0].ordinary.nan_to_num().argmax(dim=-1).numpy()
    found = [asked.row(ORDINARY, ordinary, np.zeros(len(ordinary), dtype=bool))]
    for level, decision in zip(levels, decisions, strict=True):
        action = decision.action.numpy()  # -1 where a prediction overflows
        found.append(asked.row(str(level), np.where(action < 0, asked.careful, action), decision.departs.numpy()))
    return found


def _cells(table: FrameTable) -> dict[str, Any]:
    return {name: column.cells for name, column in table.columns.items()}


def _by_rule(
    task: _Task, split: _Split, method: str, ours: Sequence[dict[str, Any]], training: _Training
) -> list[dict[str, Any]]:
    """Rows of another rule, at as many familiar departures as k-of-N has in each row of `ours`, and of the ordinary forest."""
    asked = _asked(task, split, training.seed)
    probabilities = forest_probabilities(asked.known)
    ordinary = np.einsum("bl,bla->ba", probabilities, asked.payoffs).argmax(axis=1)
    doubt = SCORES[method](asked.known, probabilities)
    found = [asked.row(ORDINARY, ordinary, np.zeros(len(ordinary), dtype=bool))]
    for row in ours:
        allowed = round(row["familiar_departures"] * row["familiar_rows"])
        actions = referring(doubt, ordinary, asked.careful, asked.num_familiar, allowed)
        found.append(asked.row(row["level"], actions, actions != ordinary))
    return found


def _fingerprint(task: _Task, training: _Training, levels: Sequence[str], aside: float) -> str:
    """A hash of all that results depend on: rows of another call are not taken for those of this one."""
    digest = hashlib.sha256()
    settings = [
        *training,
        levels,
        aside,
        task.held_out,
        task.payoffs.labels,
        task.payoffs.described(),
        str(task.missing),
        task.categorical,
    ]
    digest.update(json.dumps(settings).encode())
    for name in task.features:
        digest.update(json.dumps([name, task.table.read(name).texts()]).encode())
    digest.update(json.dumps([task.labels.tolist(), task.groups.tolist()]).encode())
    return digest.hexdigest()[:16]
