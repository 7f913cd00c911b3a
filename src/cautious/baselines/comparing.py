"""`compare`: methods on problems with several seeds, judged in what may be true, as a tidy frame with paired intervals.

A method is any function of (world, rewards) to a policy. A method that needs more has arguments named `seed`, `novelty`, or
like a key of `Problem.extras`. If `out` names a folder, each result is a row on disk as soon as it is known, and the same
call resumes from these rows.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cautious.baselines.kept_rows import keep_rows, known_rows
from cautious.baselines.policies import all_rewards
from cautious.baselines.step_rewards import mean_reward
from cautious.errors import InvalidInputError
from cautious.executors import Executor, LocalExecutor
from cautious.mdp.tabular import TabularMDP
from cautious.mdp.uncertain import UncertainMDP
from cautious.ops.means import student_margin
from cautious.progress import Progress, TitledProgress, as_progress
from cautious.risk import parse_level, risk_value
from cautious.seeding import check_seed
from cautious.solvers.optimal import optimal_actions, optimal_policy
from cautious.solvers.solve import solve_mdp
from cautious.tables.frames import pandas_for
from cautious.types import ArrayLike
from cautious.validation import as_float_tensor, as_folder, as_number, check_shape

if TYPE_CHECKING:
    import pandas

Method = Callable[..., Any]
"""(world, rewards, and what it names of a problem) -> policy [S, A], or whatever `Problem.judge` takes."""
ROWS = "rows.jsonl"
KEYS = ("problem", "method", "seed")


@dataclass(frozen=True)
class Problem:
    """A novel world, what is believed about its rewards, and what may be true there.

    Attributes:
        world: A `TabularMDP`, or an `UncertainMDP`; with `judge`, whatever the methods take.
        rewards: What M models say, [M, S, A], in any form that `solve_mdp` takes.
        truths: Reward functions that may be true, equally likely, [T, S, A] (or one, [S, A]); methods never see them. None: the
            models themselves.
        familiar: A world in which a method should act as usual, as a problem of its own.
        novelty: How novel states are, for methods that ask for it, [S] or [S, A].
        judge: policy -> returns in what may be true, [T]; for worlds that are not tables, or where the dynamics may be others.
            `truths` is then not needed.
        extras: Whatever else a method may ask for by name.
    """

    world: Any
    rewards: Any
    truths: ArrayLike | None = None
    familiar: Problem | None = None
    novelty: ArrayLike | None = None
    judge: Callable[[Any], ArrayLike] | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    def returns(self, policy: Any) -> Tensor:
        """Normalised return of a policy under each of the truths, [T]."""
        if self.judge is not None:
            found = as_float_tensor(self.judge(policy), "judge's returns").double().reshape(-1)
        elif isinstance(self.world, UncertainMDP):
            if self.truths is not None:
                raise InvalidInputError("truths: what may be true of an UncertainMDP are models; pass judge instead.")
            found = returns_in_models(self.world, self.rewards, policy)
        else:
            truths = as_float_tensor(self.rewards if self.truths is None else self.truths, "truths").double()
            sizes = {"S": self.world.num_states, "A": self.world.num_actions}
            check_shape(truths, "... S A", "truths", **sizes)
            occupancy = _mixed_occupancy(self.world, policy)
            found = (truths.reshape(-1, sizes["S"], sizes["A"]) * occupancy).sum(dim=(-2, -1))
        if not len(found) or not bool(found.isfinite().all()):
            source = "judge's returns" if self.judge is not None else "truths"
            raise InvalidInputError(
                f"{source}: a policy is worth {found.tolist()[:5]} in what may be true; give one finite number at least."
            )
        return found


def returns_in_models(world: UncertainMDP, rewards: ArrayLike, policy: Any) -> Tensor:
    """Returns of a policy, or of a mixture of policies, in every model of an uncertain world, [M]."""
    return policy.returns(world, rewards) if hasattr(policy, "returns") else world.returns(policy, rewards)


Problems = Mapping[str, "Problem | Callable[[int], Problem]"]
"""Name -> a problem, or a function of a seed that makes one."""


def compare(
    problems: Problems,
    methods: Mapping[str, Method] | Sequence[Method],
    seeds: int | Iterable[int] = 10,
    *,
    level: Any = "1-of-20",
    confidence: float = 0.95,
    reference: str | None = None,
    out: Path | str | None = None,
    executor: Executor | None = None,
    progress: bool | Progress = True,
) -> pandas.DataFrame:
    """Run every method on every problem with every seed, and say how they compare.

    Args:
        problems: Name -> `Problem`, or a function seed -> `Problem` where worlds or beliefs are drawn.
        methods: Name -> function of (world, rewards) to a policy, those of `cautious.baselines` or your own; a sequence of
            functions goes by their names. A function with an argument `seed`, `novelty` or any key of `Problem.extras` is
            given it.
        seeds: Number of seeds (0, 1, ...), or the seeds themselves.
        level: The risk measure of the column "tail" and of its certificate.
        confidence: Of the intervals, which take the mean of the seeds to be near normal (Student's t).
        reference: The method that others are compared with, seed by seed; by default the first.
        out: Folder that keeps each row as soon as it is known; the same call resumes from these rows.
        executor: Runs problems and seeds elsewhere (`cautious.executors.open_executor("ray")`); by default in this process.
        progress: Show it, or a function of (done, total).

    Returns:
        A pandas frame with one row per problem, method and metric: mean over the seeds with its interval (`low`, `high`),
        difference to the reference on the same seeds with its interval, and the number of seeds. Metrics, as far as a problem
        has them:

        - "return": mean over what may be true;
        - "worst_tenth": mean of the worst tenth of what may be true;
        - "tail": the risk measure `level` of the models' returns, which is what k-of-N maximises;
        - "shortfall": how much higher any policy's tail can be (upper bound of a certificate less "tail");
        - "departure": share of the method's steps in the familiar world that no ordinary policy takes there (actions that are
        not optimal for the mean of the models);
        - "seconds": how long the method took.

    >>> import torch
    >>> from cautious import TabularMDP, compare, baselines
    >>> def draw(seed):
    ...     models = torch.randn(40, 1, 3, generator=torch.Generator().manual_seed(seed)) * torch.tensor([0.1, 0.5, 1.0])
    ...     return Problem(TabularMDP(torch.ones(1, 3, 1), [1.0], 0.5), models)
    >>> frame = compare({"bets": draw}, [baselines.k_of_n, baselines.risk_neutral], seeds=4, progress=False)
    >>> tail = frame[frame.metric == "tail"].set_index("method")
    >>> bool(tail.loc["risk_neutral", "difference"] < 0)
    True
    """
    named = _named_methods(methods)
    if not isinstance(problems, Mapping) or not problems:
        raise InvalidInputError("problems: pass a dictionary of names and problems, such as {'lake': Problem(...)}.")
    reference = next(iter(named)) if reference is None else reference
    if reference not in named:
        raise InvalidInputError(f"reference={reference!r} is not among the methods: {', '.join(named)}.")
    share = as_number(confidence)
    if not 0 < share < 1:
        raise InvalidInputError(f"confidence={confidence!r} must lie between 0 and 1.")
    numbers = list(range(seeds)) if isinstance(seeds, int) else [check_seed(seed) for seed in seeds]
    if not numbers:
        raise InvalidInputError("seeds: there are none; pass the number of seeds, or the seeds themselves.")
    pandas = pandas_for("compare")
    path = None if out is None else as_folder(out, "out") / ROWS
    measure_of = str(parse_level(level))
    earlier = known_rows(path, KEYS)
    known = {
        key: row for key, row in earlier.items() if row.get("level", measure_of) == measure_of
    }  # "tail" depends on it
    pieces = [
        (problem, seed, [name for name in named if (problem, name, seed) not in known])
        for problem in problems
        for seed in numbers
    ]
    todo = [piece for piece in pieces if piece[2]]
    shown = as_progress(progress, "comparing")
    shared = (dict(problems), named, parse_level(level))
    for done, (_, rows) in enumerate(
        (executor or LocalExecutor()).map(_run_piece, shared, todo, device="cpu", title="comparing"), start=1
    ):
        keep_rows(path, rows, known, KEYS)
        if shown is not None:
            shown(done, len(todo))
    wanted = {(problem, name, seed) for problem in problems for name in named for seed in numbers}
    rows = pandas.DataFrame([row for key, row in known.items() if key in wanted])
    return _summary(pandas, rows, list(problems), list(named), reference, share)


def measure(problem: Problem, method: Method, seed: int, level: Any) -> dict[str, float]:
    """Metrics of one method on one problem (`compare` says which)."""
    given = {"seed": seed, "novelty": problem.novelty, **problem.extras}
    started = time.perf_counter()
    policy = _call(method, problem, given)
    found = {"seconds": time.perf_counter() - started}
    returns = problem.returns(policy).sort().values
    found |= {
        "return": float(returns.mean()),
        "worst_tenth": float(returns[: max(1, len(returns) // 10)].mean()),
    }
    if isinstance(problem.world, TabularMDP | UncertainMDP):
        found["tail"] = float(risk_value(parse_level(level), Problem(problem.world, problem.rewards).returns(policy)))
    if problem.familiar is not None:
        usual = problem.familiar
        found["departure"] = _departure(usual, _call(method, usual, given | {"novelty": usual.novelty, **usual.extras}))
    return found


def _run_piece(
    shared: tuple[Any, ...], piece: tuple[str, int, list[str]], progress: TitledProgress | None
) -> list[dict[str, Any]]:
    """Rows of some methods on one problem with one seed."""
    problems, methods, level = shared
    name, seed, wanted = piece
    problem = problems[name]
    problem = problem if isinstance(problem, Problem) else problem(seed)
    upper = None
    if isinstance(problem.world, TabularMDP | UncertainMDP):
        upper = float(solve_mdp(problem.world, problem.rewards, level).certificate().upper)
    rows = []
    for method in wanted:
        found = measure(problem, methods[method], seed, level)
        if upper is not None:
            found["shortfall"] = upper - found["tail"]
        rows.append({"problem": name, "method": method, "seed": seed, "level": str(level), **found})
    return rows


def _call(method: Method, problem: Problem, given: Mapping[str, Any]) -> Any:
    """The method's policy, with what it names among `given`."""
    try:
        parameters = list(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        parameters = []
    bound = method.keywords if isinstance(method, partial) else {}
    asked = {
        name: given[name]
        for name in parameters
        if name in given and given[name] is not None and name not in bound and name not in ("world", "rewards")
    }
    try:
        inspect.signature(method).bind(problem.world, problem.rewards, **asked)
    except TypeError as error:
        raise InvalidInputError(
            f"methods: {getattr(method, '__name__', method)!r} cannot be called with world and rewards: {error}. What it asks "
            "for by name must be in the problem (novelty, extras), and in its `familiar` problem too, or have a default."
        ) from None
    except ValueError:
        pass  # some compiled functions have no signature
    return method(problem.world, problem.rewards, **asked)


def _departure(familiar: Problem, policy: Any) -> float:
    """Share of the policy's steps in which it does what no ordinary policy does: actions not optimal for the mean reward.

    Equally good actions are no departure, so that it does not matter which of several shortest paths a solver happens to take.
    """
    reward = mean_reward(all_rewards(familiar.world, familiar.rewards))
    ordinary = optimal_actions(familiar.world, reward, optimal_policy(familiar.world, reward).action_values)
    return float((_mixed_occupancy(familiar.world, policy) * ~ordinary).sum())


def _mixed_occupancy(world: TabularMDP, policy: Any) -> Tensor:
    """Occupancy [S, A] of a policy [S, A], or of a mixture of policies with `weights` [K] and `policies` [K, S, A]."""
    if hasattr(policy, "policies") and hasattr(policy, "weights"):
        weights = as_float_tensor(policy.weights, "weights").double()
        return torch.einsum("k,ksa->sa", weights, world.occupancy(policy.policies))
    return world.occupancy(policy)


def _named_methods(methods: Mapping[str, Method] | Sequence[Method]) -> dict[str, Method]:
    named = dict(methods) if isinstance(methods, Mapping) else {}
    if not isinstance(methods, Mapping):
        for method in methods:
            name = getattr(method, "__name__", None)
            if name is None or name in named or name == "<lambda>":
                raise InvalidInputError(
                    f"methods: {method!r} has no name of its own; pass a dictionary, such as {{'mine': {name or 'function'}}}."
                )
            named[name] = method
    if not named or not all(callable(method) for method in named.values()):
        raise InvalidInputError(
            "methods: pass functions of (world, rewards) that return a policy, by name or in a list."
        )
    return named


def _summary(
    pandas: Any, rows: Any, problems: list[str], methods: list[str], reference: str, confidence: float
) -> pandas.DataFrame:
    """Means, and differences to the reference on the same seeds, each with an interval."""
    metrics = [name for name in ("return", "worst_tenth", "tail", "shortfall", "departure", "seconds") if name in rows]
    entries = []
    for problem in problems:
        for metric in metrics:
            values = rows[rows.problem == problem].pivot(index="seed", columns="method", values=metric)
            if values.isna().all(axis=None):
                continue
            for method in methods:
                mean, low, high = _interval(values[method].to_numpy(), confidence)
                pair, pair_low, pair_high = _interval((values[method] - values[reference]).to_numpy(), confidence)
                entries.append(
                    {
                        **{"problem": problem, "method": method, "metric": metric},
                        **{"mean": mean, "low": low, "high": high},
                        **{"difference": pair, "difference_low": pair_low, "difference_high": pair_high},
                        "seeds": len(values),
                    }
                )
    return pandas.DataFrame(entries)


def _interval(values: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """Mean and Student's interval; with one value it is not known."""
    mean = float(values.mean())
    if len(values) == 1:
        return mean, float("nan"), float("nan")
    reach = float(student_margin(values, (1 - confidence) / 2))
    return mean, mean - reach, mean + reach
