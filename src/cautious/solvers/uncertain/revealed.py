"""A bound on what any policy can earn, whatever it remembers: the revealed-model tree.

Give the policy more than it can have: after some steps somebody tells it which model is true, and from there on it earns that
model's own optimum. What is best then is a finite problem, a tree of histories. Under prior weights w over the models

    U(h) = max_a Σ_m w_m L_m(h) [ r_m(s,a) + γ Σ_s' P_m(s'|s,a) u_m(h a s') ],     u_m(leaf) = V*_m(s)

with L_m(h) the likelihood of the history. Since max_π min_w Σ w_m V_m(π) <= max_π Σ w_m V_m(π) for each w of the envelope, U at
the root bounds every policy; it is convex in w, so cutting planes find a low one.

Histories with the same time, state and posterior have one future: they share a node. Successors whose likelihoods are
proportional to each other in all models move the posterior alike, so that a node is (time, state, how often each kind was
seen). Leaves are opened where the best policy of the relaxed problem goes and where the truth is still worth most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cautious.compiling import compiled
from cautious.seeding import make_rng
from cautious.solvers.envelope import EnvelopeGame
from cautious.solvers.uncertain.oracle import DoubleOracle
from cautious.solvers.uncertain.problem import UncertainProblem

MOST_NODES, LARGEST_TREE = 50_000, 2**22
"""A tree is full when it has so many nodes, or so many nodes times models: likelihoods and values take 32 MB each."""
LEAVES_AT_ONCE = 1000
MOST_CUTS = 60
SLOWEST = 0.1
"""A tree of more than `SMALL_TREE` nodes grows as long as doubling them closes this share of the gap."""
SMALL_TREE = 2_000
OPENED, FEWEST_OPENED = 0.9, 64
"""In a round leaves are opened that have this share of all doubts, at most half as many as there are nodes or this number."""
ALIKE = 12
"""Likelihoods are proportional if they agree in this many decimals of the largest."""


class Plan(NamedTuple):
    """A policy on a tree."""

    row: np.ndarray
    """Its return in each model, less the problem's offset, [M]."""
    actions: np.ndarray
    """What it does in each node, [nodes]: an action; in a leaf -1 - k, from where on it follows what comes k-th after it."""


class RevealedTree:
    """Nodes (histories with the same future), those that are open with all their successors.

    Attributes:
        problem: The world and the rewards.
        depth: Stages in which some node is open: h. Without open nodes the model is revealed at once.
        num_nodes: How many.
    """

    def __init__(self, problem: UncertainProblem) -> None:
        """Begin with the start states, none of them open."""
        self.problem = problem
        first, _, chance, start, _ = problem.dynamics
        num_pairs = len(first) - 1
        num_states = len(start)
        self.num_actions = num_pairs // num_states
        self._places = [
            np.arange(first[s * self.num_actions], first[(s + 1) * self.num_actions]) for s in range(num_states)
        ]
        largest = np.maximum(chance.max(axis=1, keepdims=True), 1e-300)
        kinds, kind_of = np.unique(np.round(chance / largest, ALIKE), axis=0, return_inverse=True)
        # A history is known by a sum of random numbers: those of its time, its state and the kinds of its steps. Kinds that
        # move no posterior count nothing.
        rng = make_rng(0, "revealed tree")
        of_kind = rng.integers(0, 2**64, len(kinds), dtype=np.uint64)
        of_kind[(kinds == 1).all(axis=1)] = 0
        self._kind_key = of_kind[kind_of.reshape(-1)]
        self._likelihood_of_place = kinds[kind_of.reshape(-1)]  # up to a factor that all models share
        self._state_key = rng.integers(0, 2**64, num_states, dtype=np.uint64)
        self._stage_key = rng.integers(0, 2**64, 1, dtype=np.uint64)[0]
        roots = np.flatnonzero(start > 0)
        self._known: dict[int, int] = {}
        self._stage = np.zeros(len(roots), np.int64)
        self._state = roots.astype(np.int64)
        self._key = np.zeros(len(roots), np.uint64)
        self._likelihood = np.ones((len(roots), problem.num_models))
        self._child_first = np.full(len(roots), -1, np.int64)  # -1 marks a leaf
        self._children = np.empty(0, np.int64)
        self._num_roots = len(roots)

    @property
    def num_nodes(self) -> int:
        """Nodes, leaves among them."""
        return len(self._stage)

    @property
    def depth(self) -> int:
        """h: at most this many steps are taken before the model is revealed."""
        is_open = self._child_first >= 0
        return int(self._stage[is_open].max()) + 1 if is_open.any() else 0

    @property
    def is_full(self) -> bool:
        """Whether no node may be added."""
        return self.num_nodes >= min(MOST_NODES, LARGEST_TREE // self.problem.num_models)

    def bound(self, weights: np.ndarray) -> Plan:
        """The best policy of the relaxed problem under a prior w [M].

        ``row @ weights`` bounds every policy, and the row is the slope of the bound there.
        """
        return self._planned(weights, self.problem.optima[0][None])

    def plan(self, weights: np.ndarray, policies: np.ndarray) -> Plan:
        """The best policy with memory that goes down the tree and in a leaf turns to one of some memoryless policies.

        Nothing is revealed to it, so that its row is what it earns.

        Args:
            weights: The prior, [M].
            policies: Values of the memoryless policies, [K, T, S, M].
        """
        return self._planned(weights, policies)

    def _planned(self, weights: np.ndarray, after: np.ndarray) -> Plan:
        problem = self.problem
        first, _, chance, start, discount = problem.dynamics
        values, actions = _back_up(
            first, chance, problem.rewards, discount, np.argsort(-self._stage, kind="stable"), self._stage, self._state,
            self._likelihood, self._child_first, self._children, after, problem.horizon is not None, weights,
            self.num_actions,
        )  # fmt: skip
        return Plan(start[self._state[: self._num_roots]] @ values[: self._num_roots] - problem.offset, actions)

    def doubts(self, weights: np.ndarray, actions: np.ndarray, policies: np.ndarray) -> np.ndarray:
        """What it is worth, at most, that the model is revealed at a leaf, to the policy that takes `actions`.

        Args:
            weights: w, [M].
            actions: Of what `bound` returned.
            policies: Values of some policies, [K, T, S, M]: the best of them is what can be had at the leaf for sure.

        Returns:
            [nodes], 0 where no leaf is or where the policy does not go.
        """
        problem = self.problem
        first, _, chance, start, discount = problem.dynamics
        reach = np.zeros(self._likelihood.shape)
        reach[: self._num_roots] = start[self._state[: self._num_roots], None] * weights
        order = np.argsort(self._stage, kind="stable")
        _flow(
            first,
            chance,
            discount,
            order,
            self._state,
            self._child_first,
            self._children,
            actions,
            reach,
            self.num_actions,
        )
        leaves = (self._child_first < 0) & (reach.sum(axis=1) > 0)
        if problem.horizon is not None:
            leaves &= self._stage < problem.horizon
        leaf = np.flatnonzero(leaves)
        stage = self._stage[leaf] if problem.horizon is not None else np.zeros(len(leaf), np.int64)
        place = stage, self._state[leaf]
        promised = (reach[leaf] * problem.optima[0][place]).sum(axis=1)
        certain = np.max([(reach[leaf] * values[place]).sum(axis=1) for values in policies], axis=0)
        worth = np.zeros(self.num_nodes)
        worth[leaf] = np.maximum(promised - certain, 0)
        return worth

    def nodes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Stage, state and likelihood of each node, where its children begin, and the children (`memory.Nodes`)."""
        return self._stage, self._state, self._likelihood, self._child_first, self._children

    def open(self, leaves: np.ndarray) -> None:
        """Give leaves [n] all their successors; histories with the same future share one."""
        for chunk in np.array_split(leaves, -(-len(leaves) // LEAVES_AT_ONCE)):
            self._open(chunk)

    def _open(self, leaves: np.ndarray) -> None:
        places = [self._places[state] for state in self._state[leaves]]
        counts = np.array([len(each) for each in places])
        parent, place = np.repeat(leaves, counts), np.concatenate(places)
        likelihood = self._likelihood[parent] * self._likelihood_of_place[place]  # [children, M]
        largest = likelihood.max(axis=1)
        possible = largest > 0
        stage, state = self._stage[parent] + 1, self.problem.dynamics.successor[place]
        key = self._key[parent] + self._kind_key[place]
        name = key + self._state_key[state] + self._stage_key * stage.astype(np.uint64)
        names, example, number = np.unique(name[possible], return_index=True, return_inverse=True)
        known = np.array([self._known.get(int(each), -1) for each in names], np.int64)
        new = known < 0
        known[new] = self.num_nodes + np.arange(int(new.sum()))
        self._known.update(zip(map(int, names[new]), known[new].tolist(), strict=True))
        source = np.flatnonzero(possible)[example[new]]
        child = np.full(len(place), -1, np.int64)  # -1: no model that the history leaves possible goes there
        child[possible] = known[number.reshape(-1)]
        self._child_first[leaves] = len(self._children) + np.r_[0, np.cumsum(counts)[:-1]]
        self._children = np.concatenate([self._children, child])
        self._stage = np.concatenate([self._stage, stage[source]])
        self._state = np.concatenate([self._state, state[source]])
        self._key = np.concatenate([self._key, key[source]])
        self._likelihood = np.concatenate([self._likelihood, likelihood[source] / largest[source, None]])
        self._child_first = np.concatenate([self._child_first, np.full(len(source), -1, np.int64)])


@compiled
def _back_up(  # type: ignore[no-untyped-def]
    first, chance, rewards, discount, order, stage, state, likelihood, child_first, children, after, has_horizon, weights,
    num_actions,
):  # fmt: skip
    """From the last stage to the first: values [nodes, M] of the best policy under a prior, and what it does (`Plan`)."""
    num_models = chance.shape[1]
    values = np.zeros(likelihood.shape)
    actions = np.full(len(stage), -1, np.int64)
    q = np.empty(num_models)
    for n in order:
        s = state[n]
        best = -np.inf
        if child_first[n] < 0:
            t = stage[n] if has_horizon else 0
            if t < after.shape[1]:
                for k in range(len(after)):
                    value = 0.0
                    for m in range(num_models):
                        value += weights[m] * likelihood[n, m] * after[k, t, s, m]
                    if value > best:
                        best = value
                        actions[n] = -1 - k
                values[n] = after[-1 - actions[n], t, s]
            continue
        for a in range(num_actions):
            pair = s * num_actions + a
            q[:] = rewards[pair]
            for z in range(first[pair], first[pair + 1]):
                child = children[child_first[n] + z - first[s * num_actions]]
                if child >= 0:
                    for m in range(num_models):
                        q[m] += discount * chance[z, m] * values[child, m]
            value = 0.0
            for m in range(num_models):
                value += weights[m] * likelihood[n, m] * q[m]
            if value > best:
                best = value
                values[n] = q
                actions[n] = a
    return values, actions


@compiled
def _flow(first, chance, discount, order, state, child_first, children, actions, reach, num_actions):  # type: ignore[no-untyped-def]
    """From the first stage to the last: how often each model gets to each node, discounted; in place, [nodes, M]."""
    for n in order:
        if child_first[n] >= 0:
            pair = state[n] * num_actions + actions[n]
            for z in range(first[pair], first[pair + 1]):
                child = children[child_first[n] + z - first[state[n] * num_actions]]
                if child >= 0:
                    for m in range(reach.shape[1]):
                        reach[child, m] += discount * chance[z, m] * reach[n, m]


class BestBound(NamedTuple):
    """The lowest bound found, and where."""

    upper: float
    weights: np.ndarray
    """The prior w at which the tree has this bound, [M]."""


def lowest_bound(tree: RevealedTree, rows: np.ndarray, weights: np.ndarray, close: float) -> BestBound:
    """The lowest bound over the envelope, by cutting planes: every row is a slope, and the game of all rows proposes a prior.

    Args:
        tree: The tree, as it is.
        rows: Returns of policies, [K, M]: they bound the tree's bound from below at every prior.
        weights: Where to start, [M].
        close: The search ends when no prior can have a bound that is lower by more than this.
    """
    game = EnvelopeGame(tree.problem.rank_weights, rows)
    best = BestBound(np.inf, weights)
    for _ in range(MOST_CUTS):
        row = tree.bound(weights).row
        if (upper := float(row @ weights)) < best.upper:
            best = BestBound(upper, weights)
        game.add(row)
        equilibrium = game.solve()
        if best.upper - equilibrium.value <= close:
            break
        weights = equilibrium.weights
    return best


class MemorySearch:
    """The double oracle again, with policies that remember: the tree answers the adversary's prior with a plan.

    Attributes:
        policies: Values of the memoryless policies that plans end in, [K, T, S, M].
        numbers: Which of the oracle's policies these are, [K].
        plans: Those found, in the order of the game's rows after the oracle's.
        equilibrium: The best mixture of the oracle's policies and the plans.
    """

    def __init__(self, tree: RevealedTree, oracle: DoubleOracle) -> None:
        """Begin with the oracle's policies."""
        self._tree = tree
        self._game = EnvelopeGame(tree.problem.rank_weights, oracle.rows)
        self.policies, self.numbers = oracle.support_values()
        self.plans: list[Plan] = []
        self.equilibrium = oracle.equilibrium

    @property
    def rows(self) -> np.ndarray:
        """Returns of all policies, [K, M]: the oracle's, then those with memory."""
        return self._game.rows

    def answer(self, close: float) -> bool:
        """Add the best plan under the adversary's prior; whether it is worth more than the mixture by more than `close`."""
        prior, value = self.equilibrium.weights, self.equilibrium.value
        plan = self._tree.plan(prior, self.policies)
        if plan.row @ prior <= value + close:
            return False
        self.plans.append(plan)
        self._game.add(plan.row)
        self.equilibrium = self._game.solve()
        return True


def tighten(
    tree: RevealedTree,
    search: MemorySearch,
    tolerance: float,
    lower: float | None,
    report: Callable[[float, float], object],
) -> BestBound:
    """Grow the tree while it pays: until the bound is within `tolerance` of the lower bound, or the tree is full.

    Args:
        tree: Grown in place.
        search: Policies with memory, found on the way: no tree can bring the bound below their value.
        tolerance: Gap that is small enough.
        lower: The lower bound; None if that is the value of the policies with memory.
        report: Called with the best lower and upper bounds after each round.
    """
    fine = tolerance / 10
    best = lowest_bound(tree, search.rows, search.equilibrium.weights, fine)
    checked_at, gap_then = max(tree.num_nodes, SMALL_TREE), np.inf
    while not tree.is_full:
        known = search.equilibrium.value
        gap = best.upper - (known if lower is None else lower)
        if gap <= tolerance or best.upper - known <= fine:
            break
        if tree.num_nodes >= 2 * checked_at:
            if best.upper - known > (1 - SLOWEST) * gap_then:
                break
            checked_at, gap_then = tree.num_nodes, best.upper - known
        # Where the bound is lowest now, and where it will be: the first may be a corner of the envelope without doubts.
        worth = np.zeros(tree.num_nodes)
        for prior in (best.weights, search.equilibrium.weights):
            worth += tree.doubts(prior, tree.bound(prior).actions, search.policies)
        order = np.argsort(-worth, kind="stable")
        share = np.cumsum(worth[order])
        if share[-1] > 0:
            enough = int(np.searchsorted(share, OPENED * share[-1])) + 1
            tree.open(order[: min(enough, max(FEWEST_OPENED, tree.num_nodes // 2))])
        if not search.answer(fine / 10) and share[-1] <= fine / 10:
            break
        found = lowest_bound(tree, search.rows, search.equilibrium.weights, max(fine, gap / 100))
        best = found if found.upper <= best.upper else best
        report(search.equilibrium.value if lower is None else lower, best.upper)
    return best
