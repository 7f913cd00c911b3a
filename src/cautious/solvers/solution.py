"""What a solver returns, as data: policies, how they came about, and what a certificate of them needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import FORMAT, load_json, load_tensors, pick
from cautious.io.content_names import Part, part_of, reading, save_parts
from cautious.mdp.files import load_mdp, tensors_of
from cautious.mdp.tabular import check_fits
from cautious.parallel import single_threaded
from cautious.risk import RiskMeasure, level_text, parse_levels
from cautious.solvers.adversary import SolveBatch
from cautious.solvers.certificate import Certificate, certify, exact_mixtures
from cautious.solvers.cfr import BanditGame, Game, MDPGame, PerStateGame, Problem, better_policy
from cautious.solvers.rewards import DenseRewards, as_rewards
from cautious.types import ArrayLike, Update
from cautious.validation import as_distribution, as_folder, as_path, check_shape, parse_count

REFINEMENTS = 20
"""Exact iterations that a certificate makes where the solver tracked no exact mixtures."""

DESCRIPTION, ARRAYS, WORLD = "solution.json", "solution.safetensors", "mdp.safetensors"
"""Files of a saved solution; the names of the last two also carry a stamp of their content."""

POLICIES, TRACE = ("policy", "average_policy", "best_policy"), ("sampled_value", "exact_value", "regret")
"""Tensors in the file, by the names of attributes."""


@dataclass(frozen=True, eq=False)
class Trace:
    """How a run went, iteration by iteration; each [..., T]. In the single-state regime values are means over states."""

    sampled_value: Tensor
    """Mean return of the iterate under the k worst of the sampled models (with exact sampling: its exact value)."""
    exact_value: Tensor
    """Exact k-of-N value of the iterate over all M models; NaN where it was not computed (`track_exact`)."""
    regret: Tensor
    """Largest cumulative regret over states and actions so far: what C^T of Theorem 1 bounds."""


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """Policies of one or several levels and runs.

    For one level and one run arrays are plain [S, A]; a sequence of levels adds a leading dimension [L], `num_runs` one
    more, [R] or [L, R].

    Attributes:
        policy: The last iterate, which is what the paper reports.
        average_policy: Weighted by occupancy in an MDP, so that its return is the average return of the iterates.
        best_policy: The highest exact k-of-N value seen: among the iterates where values were tracked, the last iterate
            and the average. In the single-state regime the best is taken in each state. Computed when it is first read.
        trace: Values and regret per iteration.
        level: The level, or the levels of the batch.
        record: How it was made: sampling, update, seed, sizes, how often the queue had to be shuffled again.
        problem: The game, the reward functions and the levels; None after `load` without the rewards that it needs.
        mixtures: The adversary's average mixtures of reward functions [W, B, S, A], which bound every policy's value;
            None where the solver tracked no exact values.
        best_iterate: The iterate of highest exact value [B, S, A], and that value; None where none was tracked.
        loaded_best_policy: `best_policy` as it was saved; None where it was not loaded from files.
    """

    policy: Tensor
    average_policy: Tensor
    trace: Trace
    level: RiskMeasure | tuple[RiskMeasure, ...]
    record: dict[str, Any]
    problem: Problem | None
    mixtures: Tensor | None
    best_iterate: tuple[Tensor, Tensor] | None = None
    loaded_best_policy: Tensor | None = None

    def __repr__(self) -> str:
        """Level and shape; the arrays are long."""
        levels = [str(level) for level in self.level] if isinstance(self.level, tuple) else str(self.level)
        return f"Solution(level={levels}, policy={list(self.policy.shape)}, record={self.record})"

    @cached_property
    @single_threaded
    def best_policy(self) -> Tensor:
        """The policy with the highest exact k-of-N value seen (see the class's attributes)."""
        if self.loaded_best_policy is not None:
            return self.loaded_best_policy
        # Computed on demand: where no iterate was tracked, it takes two passes over all reward functions.
        problem = self._known_problem()
        average, last = (policy.reshape(problem.shape) for policy in (self.average_policy, self.policy))
        best, value = self.best_iterate or (average, average.new_tensor(-torch.inf))
        for policy in (average, last):
            best, value = better_policy(policy, problem.exact_value(policy), best, value)
        return best.reshape(self.policy.shape)

    @single_threaded
    def exact_value(self, policy: ArrayLike | None = None) -> Tensor:
        """Exact k-of-N value over all M models of `policy` (of ``self.policy`` if none is given)."""
        value = self._known_problem().exact_value(self._as_batch(policy))
        return value.reshape(self.policy.shape[:-2] + value.shape[1:])

    @single_threaded
    def certificate(self, policy: ArrayLike | None = None, *, refine: int | None = None) -> Certificate:
        """How far `policy` is from the best possible k-of-N policy (`solvers.certificate.certify`).

        Args:
            policy: [S, A], or of the solution's batch shape; ``self.policy`` (the last iterate) if none is given. The
                average and the best policy are usually closer to optimal.
            refine: Make this many exact iterations first to find a better adversary: a tighter upper bound for more
                work. Where the run did not track exact values (very large beliefs), a few are made in any case.
        """
        problem, batch = self._known_problem(), self._as_batch(policy)
        mixtures = [] if self.mixtures is None else [self.mixtures]
        if refine is not None or not mixtures:
            num_iterations = REFINEMENTS if refine is None else parse_count(refine, "refine")
            update = Update(self.record.get("update", Update.REGRET_MATCHING))
            mixtures.append(exact_mixtures(problem, num_iterations, update))
        certificate = certify(problem, batch, torch.cat(mixtures))
        shape = self.policy.shape[:-2] + certificate.lower.shape[1:]
        lower, upper, gap = (bound.reshape(shape) for bound in (certificate.lower, certificate.upper, certificate.gap))
        return Certificate(lower, upper, gap, self.level, certificate.estimated)

    def _as_batch(self, policy: ArrayLike | None) -> Tensor:
        """`policy`, checked, for every level and run: [B, S, A]; ``self.policy`` if none is given."""
        num_states, num_actions = self.policy.shape[-2:]
        given = self.policy if policy is None else as_distribution(policy, "policy", self.policy.device)
        check_shape(given, "... S A", "policy", S=num_states, A=num_actions)
        if given.dim() != 2 and given.shape != self.policy.shape:
            raise InvalidInputError(
                f"policy: expected shape {[num_states, num_actions]} or {list(self.policy.shape)} as this solution has, "
                f"got {list(given.shape)}."
            )
        return torch.broadcast_to(given, self.policy.shape).reshape(-1, num_states, num_actions)

    def _known_problem(self) -> Problem:
        if self.problem is None:
            raise InvalidInputError(
                "rewards: this solution was loaded without its reward functions, which exact values and certificates need. "
                "They were streamed when it was solved and are not in its files: pass them to Solution.load(folder, rewards)."
            )
        return self.problem

    def save(self, folder: Path | str) -> None:
        """Write the solution (safetensors and JSON, checksummed; a reader sees the old files or the new ones, never half).

        Reward functions that are in memory are written too, so that certificates can be computed after `load`. Reward
        functions that were streamed are not: pass them to `load` again. `best_policy` is computed first if it was not yet,
        which for streamed rewards takes two passes over all of them.
        """
        path, problem = as_folder(folder), self._known_problem()
        levels = [level_text(level) for level in problem.batch.levels]
        tensors: dict[str, Tensor] = {name: getattr(self, name) for name in POLICIES}
        tensors |= {name: getattr(self.trace, name) for name in TRACE}
        if self.mixtures is not None:
            tensors["mixtures"] = self.mixtures
        if isinstance(problem.rewards, DenseRewards):
            tensors["rewards"] = problem.rewards.tensor
        if isinstance(problem.game, BanditGame):
            tensors["state_dist"] = problem.game.state_dist
        several = isinstance(self.level, tuple)
        described = {
            "format": FORMAT,
            "kind": "solution",
            "game": "mdp"
            if isinstance(problem.game, MDPGame)
            else "single-state"
            if problem.game.per_state
            else "bandit",
            "level": levels if several else levels[0],
            "num_runs": problem.batch.num_runs,
            "record": self.record,
        }
        world = Part.of(tensors_of(problem.game.mdp)) if isinstance(problem.game, MDPGame) else None
        save_parts(path / DESCRIPTION, described, {ARRAYS: Part.of(tensors), WORLD: world})

    @classmethod
    def load(cls, folder: Path | str, rewards: Any = None) -> Solution:
        """Read what `save` wrote; runs no code from it.

        Args:
            folder: Where it was saved.
            rewards: The reward functions, as the solver took them, where they were streamed and so are not in the files.
                Without them policies, trace and record are there, but `exact_value` and `certificate` raise an error.

        Raises:
            BadFileError: A file is damaged, is missing an array, or is of another kind.
        """
        path = as_path(folder, "folder")
        return reading(path, lambda: cls._read(path, rewards))

    @classmethod
    def _read(cls, path: Path, rewards: Any) -> Solution:
        described = load_json(path / DESCRIPTION)
        if not isinstance(described, dict) or described.get("format") != FORMAT or described.get("kind") != "solution":
            raise BadFileError(f"{path / DESCRIPTION}: not a solution that this version reads (format {FORMAT}).")
        arrays, expected = part_of(path, described, ARRAYS)
        tensors = load_tensors(arrays, expected)
        policy, average, best, *trace = (pick(tensors, name, arrays) for name in (*POLICIES, *TRACE))
        try:
            several = isinstance(described.get("level"), list)
            levels = parse_levels(described.get("level", ()))
            batch = SolveBatch(levels, parse_count(described.get("num_runs"), "num_runs"))
            check_shape(policy, "... S A", "policy")
            shapes = {tuple(array.shape) for array in (policy, average, best)}
            if len(shapes) > 1 or policy[..., 0, 0].numel() != batch.size:
                raise InvalidInputError(f"policies of shapes {sorted(shapes)}, for {batch.size} of [S, A]")
            game = _load_game(path, described, tensors, arrays)
            if isinstance(game, MDPGame):
                check_fits(game.mdp, batch.size, policy.shape[-2], policy.shape[-1])
            table = as_rewards(tensors["rewards"], "cpu") if "rewards" in tensors else None
        except InvalidInputError as error:
            raise BadFileError(f"{path}: {error} The files do not describe one solution.") from None
        if table is None and rewards is not None:
            table = as_rewards(rewards, "cpu")
        if table is not None and (table.num_states, table.num_actions) != policy.shape[-2:]:
            raise InvalidInputError(
                f"rewards: they are about {table.num_states} states and {table.num_actions} actions, the policies in {path} "
                f"about {policy.shape[-2]} and {policy.shape[-1]}."
            )
        return cls(
            policy=policy,
            average_policy=average,
            trace=Trace(*trace),
            level=levels if several else levels[0],
            record=described.get("record", {}),
            problem=None if table is None else Problem(game, table, batch),
            mixtures=tensors.get("mixtures"),
            loaded_best_policy=best,  # computed before it was saved: no need to compute it again
        )


def _load_game(path: Path, described: dict[str, Any], tensors: dict[str, Tensor], arrays: Path) -> Game:
    if described.get("game") == "mdp":
        return MDPGame(load_mdp(*part_of(path, described, WORLD)), torch.device("cpu"))
    if described.get("game") == "single-state":
        return PerStateGame()
    return BanditGame(as_distribution(pick(tensors, "state_dist", arrays), "state_dist"))
