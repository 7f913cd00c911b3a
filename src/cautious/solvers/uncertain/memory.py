"""Policies that remember: they carry the posterior over the models down a tree of histories, then follow a memoryless policy.

A node of the tree is a posterior (a time, a state, how often each kind of step was seen). A plan has an action for each node;
in a leaf it names a memoryless policy, which is followed to the end. So its return in each model is exact, as that of a
memoryless policy is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious.compiling import compiled
from cautious.errors import InvalidInputError
from cautious.io.arrays import pick
from cautious.mdp.evaluation import policy_values
from cautious.mdp.uncertain import UncertainMDP
from cautious.seeding import make_rng
from cautious.solvers.uncertain.oracle import DoubleOracle
from cautious.solvers.uncertain.revealed import MemorySearch, RevealedTree
from cautious.types import ArrayLike
from cautious.validation import as_distribution, check_shape

NEGLIGIBLE = 1e-12
"""Plans that are drawn less often are left out."""


class Nodes(NamedTuple):
    """Part of a `RevealedTree`: the nodes that some plan comes to."""

    stage: np.ndarray
    """[nodes]."""
    state: np.ndarray
    """[nodes]."""
    likelihood: np.ndarray
    """Of the history in each model, up to a factor, [nodes, M]."""
    child_first: np.ndarray
    """Where the children of each node begin, -1 in leaves, [nodes]."""
    children: np.ndarray
    """The node that each place of a node's state leads to, -1 where no model goes or no plan comes, [children]."""


@dataclass(frozen=True, eq=False)
class MemoryMixture:
    """Plans, one of which is drawn at the start of an episode and kept to its end.

    Attributes:
        weights: How likely each is, [K].
        actions: What each does in each node: an action, or -1 - p to follow ``policies[p]`` from there on, [K, nodes].
        policies: Memoryless policies, [P, S, A] or [P, T, S, A]. The first is followed after steps that no model allows.
        nodes: The tree.
        world: The world that it was solved for.
        prior: Weights of the models that `Episode.posterior` starts from, [M].
    """

    weights: Tensor
    actions: np.ndarray
    policies: Tensor
    nodes: Nodes
    world: UncertainMDP
    prior: Tensor

    def __len__(self) -> int:
        """K."""
        return len(self.weights)

    def begin(self, seed: int) -> Episode:
        """The policy of one episode; equal seeds draw the same."""
        return Episode(self, seed)

    def returns(self, world: UncertainMDP, rewards: ArrayLike) -> Tensor:
        """Exact normalised returns in every model of a world of the same states and actions, the mean over the draw: [M]."""
        if (world.num_states, world.num_actions, world.horizon) != (
            self.world.num_states,
            self.world.num_actions,
            self.world.horizon,
        ):
            raise InvalidInputError("world: it must have the states, actions and horizon of the world that was solved.")
        table = world.scaled_rewards(rewards)
        policies = self.policies.numpy() if world.horizon is not None else self.policies[:, None].numpy()
        after = np.array([policy_values(world.dynamics, table, policy, world.horizon) for policy in policies])
        nodes, own = self.nodes, self.world.dynamics
        # The place of the solved world that leads where each place of `world` does; -1 where none does.
        keys, wanted = _keys(own.first, own.successor, world.num_states), None
        wanted = _keys(world.dynamics.first, world.dynamics.successor, world.num_states)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        place = np.where(keys[at] == wanted, at, -1)
        order = np.argsort(-nodes.stage, kind="stable")
        first, successor, chance, start, discount = world.dynamics
        total = np.zeros(len(world))
        for weight, actions in zip(self.weights.numpy(), self.actions, strict=True):
            values = _plan_values(
                first, successor, chance, table, discount, order, nodes.stage, nodes.state, nodes.child_first,
                nodes.children, own.first, place, actions, after, world.horizon is not None, world.num_actions,
            )  # fmt: skip
            roots = np.flatnonzero(nodes.stage == 0)
            known = np.zeros(world.num_states, bool)
            known[nodes.state[roots]] = True
            total += weight * (start[nodes.state[roots]] @ values[roots] + (start * ~known) @ after[0, 0])
        return torch.from_numpy(total)

    def tensors(self) -> dict[str, Tensor]:
        """What a file holds of it, without the world."""
        nodes = {name: torch.from_numpy(part) for name, part in self.nodes._asdict().items()}
        own = {"weights": self.weights, "actions": torch.from_numpy(self.actions), "policies": self.policies}
        return {**own, "prior": self.prior, **nodes}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], world: UncertainMDP, path: Path) -> MemoryMixture:
        """The mixture that `tensors` describes; `path` is for errors."""
        weights, actions, policies, prior = (
            pick(tensors, name, path) for name in ("weights", "actions", "policies", "prior")
        )
        nodes = Nodes(*(pick(tensors, name, path).numpy() for name in Nodes._fields))
        num_nodes, places = len(nodes.stage), np.diff(world.dynamics.first).reshape(world.num_states, -1).sum(axis=1)
        check_shape(actions, "K N", "actions", K=len(weights), N=num_nodes)
        if any(len(part) != num_nodes for part in nodes[:4]) or nodes.likelihood.shape[1:] != (len(world),):
            raise InvalidInputError("the nodes' arrays have different lengths.")
        opened = np.flatnonzero(nodes.child_first >= 0)
        within = (nodes.state >= 0).all() and (nodes.state < world.num_states).all() and (nodes.stage >= 0).all()
        if (
            not within
            or bool((actions >= world.num_actions).any() or (actions < -len(policies)).any())
            or (nodes.child_first[opened] + places[nodes.state[opened]] > len(nodes.children)).any()
            or (nodes.children >= num_nodes).any()
            or bool((actions[:, nodes.child_first < 0] >= 0).any())
        ):
            raise InvalidInputError("the plans lead outside of their tree.")
        return cls(
            as_distribution(weights, "weights"), actions.numpy(), world.checked_policies(policies), nodes, world, prior
        )


class Episode:
    """One plan on its way through an episode."""

    def __init__(self, mixture: MemoryMixture, seed: int) -> None:
        """Draw the plan."""
        self._mixture = mixture
        self._rng = make_rng(seed, "memory")
        self._plan = int(self._rng.choice(len(mixture), p=mixture.weights.numpy()))
        self._node = -1
        self._policy: int | None = None
        self._stage = 0
        self._before: tuple[int, int] | None = None

    @property
    def posterior(self) -> Tensor:
        """The weights over the models in the last node of the tree that the episode came to, [M].

        Where the prior rules out every model that the history allows, those count by their likelihoods.
        """
        likelihood = torch.from_numpy(self._mixture.nodes.likelihood[max(self._node, 0)])
        weights = self._mixture.prior * likelihood
        weights = weights if bool(weights.sum() > 0) else likelihood
        return weights / weights.sum()

    def act(self, state: int) -> int:
        """The action in the state that the episode has come to; to be called once per step."""
        self._move(int(state))
        if self._policy is None:
            choice = int(self._mixture.actions[self._plan, self._node])
            self._policy = None if choice >= 0 else -1 - choice
        if self._policy is None:
            action = choice
        else:
            policy = self._mixture.policies[self._policy]
            horizon = self._mixture.world.horizon
            row = policy[state] if horizon is None else policy[min(self._stage, horizon - 1), state]
            action = int(self._rng.choice(len(row), p=row.numpy()))
        self._before, self._stage = (int(state), action), self._stage + 1
        return action

    def _move(self, state: int) -> None:
        """To the node of the new state; where there is none, the first memoryless policy takes over."""
        if self._policy is not None:
            return
        nodes, dynamics = self._mixture.nodes, self._mixture.world.dynamics
        if self._before is None:
            found = np.flatnonzero((nodes.stage == 0) & (nodes.state == state))
            following = int(found[0]) if len(found) else -1
        else:
            num_actions = self._mixture.world.num_actions
            pair = self._before[0] * num_actions + self._before[1]
            places = np.arange(dynamics.first[pair], dynamics.first[pair + 1])
            place = places[dynamics.successor[places] == state]
            start = nodes.child_first[self._node] - dynamics.first[self._before[0] * num_actions]
            following = int(nodes.children[start + place[0]]) if len(place) else -1
        if following < 0:
            self._policy = 0
        else:
            self._node = following


def memory_mixture(
    world: UncertainMDP, tree: RevealedTree, search: MemorySearch, oracle: DoubleOracle
) -> MemoryMixture:
    """The equilibrium of a `MemorySearch`, with what it needs to be played."""
    mixture = search.equilibrium.mixture
    kept = np.flatnonzero(mixture > NEGLIGIBLE)
    weights = mixture[kept] / mixture[kept].sum()
    num_memoryless = len(mixture) - len(search.plans)
    plain = [k for k in kept if k < num_memoryless]
    # A plan's policies come first, the likeliest leading, then those that are drawn without any memory.
    numbers = [*search.numbers.tolist(), *(k for k in plain if k not in search.numbers)]
    actions = np.full((len(kept), tree.num_nodes), -1, np.int64)
    for row, k in enumerate(kept):
        if k < num_memoryless:
            actions[row] = -1 - numbers.index(k)
        else:
            plan = search.plans[k - num_memoryless].actions
            actions[row, : len(plan)] = plan
    policies = torch.from_numpy(np.array([oracle.policies[k] for k in numbers]))
    nodes, actions = _visited(tree.nodes(), actions, world)
    return MemoryMixture(
        torch.from_numpy(weights),
        actions,
        policies if world.horizon is not None else policies[:, 0],
        nodes,
        world,
        torch.from_numpy(search.equilibrium.weights),
    )


def _visited(nodes: Any, actions: np.ndarray, world: UncertainMDP) -> tuple[Nodes, np.ndarray]:
    """The nodes that some plan comes to, numbered anew, and the plans on them."""
    stage, state, likelihood, child_first, children = nodes
    first, num_actions = world.dynamics.first, world.num_actions
    comes = np.zeros((len(actions), len(stage)), bool)
    comes[:, stage == 0] = True
    for n in np.argsort(stage, kind="stable"):
        for a in np.unique(actions[comes[:, n], n]):
            if a >= 0:
                pair = state[n] * num_actions + a
                offset = child_first[n] - first[state[n] * num_actions]
                following = children[offset + first[pair] : offset + first[pair + 1]]
                comes[:, following[following >= 0]] |= (comes[:, n] & (actions[:, n] == a))[:, None]
    kept = np.flatnonzero(comes.any(axis=0))
    number = np.full(len(stage) + 1, -1, np.int64)
    number[kept] = np.arange(len(kept))
    opened = (comes[:, kept] & (actions[:, kept] >= 0)).any(axis=0)
    counts = np.where(opened, first[(state[kept] + 1) * num_actions] - first[state[kept] * num_actions], 0)
    begins = np.where(opened, np.r_[0, np.cumsum(counts)[:-1]], -1)
    blocks = [
        number[children[child_first[n] : child_first[n] + count]]
        for n, count in zip(kept, counts, strict=True)
        if count
    ]
    flat = np.concatenate(blocks) if blocks else np.empty(0, np.int64)
    return Nodes(stage[kept], state[kept], likelihood[kept], begins, flat), np.where(comes, actions, -1)[:, kept]


def _keys(first: np.ndarray, successor: np.ndarray, num_states: int) -> np.ndarray:
    """One number for the pair and the successor of each place, [Z], ascending."""
    return np.repeat(np.arange(len(first) - 1), np.diff(first)) * num_states + successor


@compiled
def _plan_values(  # type: ignore[no-untyped-def]
    first, successor, chance, rewards, discount, order, stage, state, child_first, children, own_first, place, actions, after,
    has_horizon, num_actions,
):  # fmt: skip
    """Values [nodes, M] of one plan in the models of any world, from the last stage to the first."""
    values = np.zeros((len(stage), chance.shape[1]))
    for n in order:
        s = state[n]
        t = stage[n] if has_horizon else 0
        if actions[n] < 0 or child_first[n] < 0:
            if t < after.shape[1]:
                values[n] = after[max(-1 - actions[n], 0), t, s]
            continue
        pair = s * num_actions + actions[n]
        values[n] = rewards[pair]
        for z in range(first[pair], first[pair + 1]):
            child = -1 if place[z] < 0 else children[child_first[n] + place[z] - own_first[s * num_actions]]
            following = stage[n] + 1 if has_horizon else 0
            for m in range(chance.shape[1]):
                if child >= 0:
                    values[n, m] += discount * chance[z, m] * values[child, m]
                elif following < after.shape[1]:
                    values[n, m] += discount * chance[z, m] * after[0, following, successor[z], m]
    return values
