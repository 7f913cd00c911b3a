"""What `solve_mdp` returns in an uncertain world: a mixture of policies, its certificate, and its returns elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import (
    FORMAT,
    load_json,
    load_tensors,
    pick,
)
from cautious.io.content_names import Part, part_of, reading, save_parts
from cautious.mdp.tabular import TabularMDP
from cautious.mdp.uncertain import UncertainMDP, parse_uncertain
from cautious.risk import RiskMeasure, level_text, parse_level, risk_value
from cautious.seeding import make_rng
from cautious.solvers.certificate import Certificate
from cautious.solvers.uncertain.memory import MemoryMixture
from cautious.types import ArrayLike
from cautious.validation import as_distribution, as_folder, as_path, check_shape

DESCRIPTION, ARRAYS = "uncertain.json", "uncertain.safetensors"
"""Files of a saved solution; the name of the last also carries a stamp of its content."""


@dataclass(frozen=True, eq=False)
class PolicyMixture:
    """Policies, one of which is drawn at the start of an episode and kept to its end.

    Attributes:
        weights: How likely each is, [K].
        policies: [K, S, A]; with a horizon [K, T, S, A].
    """

    weights: Tensor
    policies: Tensor

    def __len__(self) -> int:
        """K."""
        return len(self.weights)

    def draw(self, seed: int) -> Tensor:
        """The policy of one episode, [S, A] or [T, S, A]; equal seeds draw the same."""
        return self.policies[int(make_rng(seed, "mixture").choice(len(self), p=self.weights.numpy()))]

    def returns(self, world: UncertainMDP, rewards: ArrayLike) -> Tensor:
        """Exact normalised returns in every model of a world, the mean over the draw: [M]."""
        return self.weights @ world.returns(self.policies, rewards)


@dataclass(frozen=True, eq=False)
class UncertainCertificate(Certificate):
    """Bounds on the problem of an uncertain world; `upper` holds for every policy, with memory or without.

    Attributes:
        depth: h: the upper bound is what could be had if the true model were revealed after at most h steps.
        num_histories: Histories that the bound tells apart.
    """

    depth: int = 0
    num_histories: int = 0

    def __str__(self) -> str:
        """The bounds, and how the upper one came about."""
        how = f"model revealed after at most {self.depth} steps, {self.num_histories:,} histories"
        return f"{super().__str__()} (h = {self.depth}: {how})" if self.depth else f"{super().__str__()} (h = 0)"


@dataclass(frozen=True, eq=False, repr=False)
class UncertainSolution:
    """A mixture of policies for an uncertain world, and how far it is from the best possible.

    Attributes:
        mixture: What to play without memory (`PolicyMixture`).
        memory: What to play with memory (`MemoryMixture`), where that was asked for; returns and certificate are then its own.
        level: The level.
        objective: ``"return"``; or ``"regret"``: each model's returns are taken less that model's own optimum.
        world: The world that it was solved for.
        rewards: [S, A] or [M, S, A].
        weights: The least favourable prior: the adversary's weights over the models at the upper bound, [M].
        upper: No policy's value exceeds this.
        depth: h of the upper bound (`UncertainCertificate`).
        num_histories: Histories that the upper bound tells apart.
        best_returns: Return of each model's own optimum, [M].
        record: How it was made; ``record["value_with_memory"]`` is what policies with memory were found to be worth.
    """

    mixture: PolicyMixture
    level: RiskMeasure
    objective: str
    world: UncertainMDP
    rewards: Tensor
    weights: Tensor
    upper: float
    depth: int
    num_histories: int
    best_returns: Tensor
    record: dict[str, Any]
    memory: MemoryMixture | None = None

    def __repr__(self) -> str:
        """Level, size and bounds."""
        return f"UncertainSolution({len(self.mixture)} policies, {self.certificate()})"

    def returns(self, world: UncertainMDP | TabularMDP | None = None, rewards: ArrayLike | None = None) -> Tensor:
        """Exact normalised returns, of the mixture or with memory, in every model of a world, held-out ones for example: [M].

        Args:
            world: Other models of the same states and actions; those that were solved for if not given.
            rewards: [S, A] or [M, S, A], one per model of `world`. May be left out where all models share one reward function,
                or with the world that was solved for.
        """
        play = self.mixture if self.memory is None else self.memory
        if world is None:
            return play.returns(self.world, self.rewards if rewards is None else rewards)
        other = parse_uncertain(world)
        if rewards is None and self.rewards.dim() == 3:
            raise InvalidInputError(
                "rewards: each model had its own here; pass those of the models of `world`, [M, S, A], or one [S, A] for all."
            )
        return play.returns(other, self.rewards if rewards is None else rewards)

    def exact_value(self) -> Tensor:
        """The exact value at the level, of the returns or (``objective="regret"``) of what each is short of its optimum."""
        offset = self.best_returns if self.objective == "regret" else 0.0
        return risk_value(self.level, self.returns() - offset)

    def certificate(self) -> UncertainCertificate:
        """`lower`, the exact value of the mixture; `upper`, a bound for every policy; and the `gap` between them."""
        lower = self.exact_value()
        upper = torch.tensor(
            max(self.upper, float(lower)), dtype=torch.float64
        )  # at the optimum rounding may cross them
        return UncertainCertificate(
            lower, upper, upper - lower, self.level, depth=self.depth, num_histories=self.num_histories
        )

    def save(self, folder: Path | str) -> None:
        """Write the solution with its world and rewards (safetensors and JSON, checksummed, never pickle)."""
        tensors = {f"world_{name}": part for name, part in self.world.tensors().items()}
        tensors |= {"weights": self.mixture.weights, "policies": self.mixture.policies, "rewards": self.rewards}
        tensors |= {"prior": self.weights, "best_returns": self.best_returns}
        described = {
            "format": FORMAT,
            "kind": "uncertain solution",
            "level": level_text(self.level),
            "objective": self.objective,
            "upper": self.upper,
            "depth": self.depth,
            "num_histories": self.num_histories,
            "record": self.record,
        }
        if self.memory is not None:
            tensors |= {f"memory_{name}": part for name, part in self.memory.tensors().items()}
        save_parts(as_folder(folder) / DESCRIPTION, described, {ARRAYS: Part.of(tensors)})

    @classmethod
    def load(cls, folder: Path | str) -> UncertainSolution:
        """Read what `save` wrote; runs no code from it.

        Raises:
            BadFileError: A file is damaged, is missing an array, or is of another kind.
        """
        path = as_path(folder, "folder")
        return reading(path, lambda: cls._read(path))

    @classmethod
    def _read(cls, path: Path) -> UncertainSolution:
        described = load_json(path / DESCRIPTION)
        if not isinstance(described, dict) or described.get("kind") != "uncertain solution":
            raise BadFileError(f"{path / DESCRIPTION}: not the solution of an uncertain world.")
        arrays, expected = part_of(path, described, ARRAYS)
        tensors = load_tensors(arrays, expected)
        parts, plans = (
            {name.removeprefix(start): part for name, part in tensors.items() if name.startswith(start)}
            for start in ("world_", "memory_")
        )
        names = ("weights", "policies", "rewards", "prior", "best_returns")
        weights, policies, rewards, prior, best_returns = (pick(tensors, name, arrays) for name in names)
        try:
            world = UncertainMDP.from_tensors(parts, arrays)
            check_shape(weights, "K", "weights", K=len(policies))
            mixture = PolicyMixture(as_distribution(weights, "weights"), world.checked_policies(policies))
            world.scaled_rewards(rewards)
            return cls(
                mixture=mixture,
                level=parse_level(described.get("level")),
                objective=str(described.get("objective")),
                world=world,
                rewards=rewards,
                weights=prior,
                upper=float(described["upper"]),
                depth=int(described["depth"]),
                num_histories=int(described["num_histories"]),
                best_returns=best_returns,
                record=described.get("record", {}),
                memory=MemoryMixture.from_tensors(plans, world, arrays) if plans else None,
            )
        except (InvalidInputError, KeyError, TypeError, ValueError) as error:
            raise BadFileError(f"{path}: {error} The files do not describe one solution.") from None
