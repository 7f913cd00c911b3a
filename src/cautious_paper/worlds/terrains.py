"""A grid of terrains: parcels are carried over ground of known kinds, and of kinds that no reward was ever logged for.

Half of the unseen kinds are harmful, half are good, and nothing about one says anything about another: each is a doubt of its
own. The rules here (`TerrainWorld.step`, one call for many carriers at once) serve the Gymnasium environments; the exact MDP
(`TerrainWorld.mdp`) has the same rules written as probabilities, and the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from cautious.errors import InvalidInputError
from cautious.mdp.tabular import TabularMDP
from cautious.seeding import check_seed, make_rng
from cautious.validation import as_number, parse_count

SIZE = 9
"""Rows and columns."""
CENTRE = SIZE // 2
GOAL = (CENTRE, CENTRE)
ROAD = tuple((CENTRE, column) for column in range(CENTRE, SIZE))
"""The known way to the depot, from the right edge."""
EDGE = np.array([row * SIZE + column for row in range(SIZE) for column in range(SIZE) if {row, column} & {0, SIZE - 1}])
"""Cells of known ground around the field."""
ACTIONS = ("up", "right", "down", "left", "stay")
STEPS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1), (0, 0)])
DISCOUNT = 0.95

KNOWN = {"road": 0.0, "gravel": -0.1, "grass": -0.2, "sand": -0.4, "mud": -1.0}
"""Kinds that rewards were logged for, with what a step on each pays."""
GOOD, HARMFUL = 0.4, -1.0
"""What a step on an unseen kind pays: one or the other, which nobody can know."""
DELIVERY = 5.0
"""What a parcel at the depot pays. It is agreed, not learned: every reward model adds the same."""

NUM_PATCHES, SHARE_OF_UNSEEN, SCATTERED = 16, 0.75, 0.3
"""How a map is drawn: the number of patches, each of one kind; the share of patches of unseen kinds; and the share of cells
whose kind is then drawn again, one by one."""


@dataclass(frozen=True, eq=False)
class TerrainWorld:
    """One map with its true rewards.

    Attributes:
        kinds: The kind of terrain of each cell, [SIZE * SIZE], a number below `num_kinds`; the known kinds come first.
        num_unseen: Number of unseen kinds.
        harmful: Which of the unseen kinds are harmful, truth values [num_unseen].
        slip: Probability that a step goes into a random direction.
    """

    kinds: np.ndarray
    num_unseen: int
    harmful: np.ndarray
    slip: float

    @property
    def num_kinds(self) -> int:
        """K: known and unseen kinds."""
        return len(KNOWN) + self.num_unseen

    @property
    def num_states(self) -> int:
        """S: cells."""
        return SIZE * SIZE

    @cached_property
    def kind_rewards(self) -> np.ndarray:
        """What a step on each kind truly pays, [K]."""
        return np.concatenate([list(KNOWN.values()), np.where(self.harmful, HARMFUL, GOOD)])

    @cached_property
    def targets(self) -> np.ndarray:
        """The cell that each action leads to if the step does not slip, [S, A]; against the edge one stays."""
        rows, columns = np.divmod(np.arange(self.num_states), SIZE)
        row, column = np.moveaxis(np.stack([rows, columns], axis=-1)[:, None] + STEPS, -1, 0).clip(0, SIZE - 1)
        return row * SIZE + column

    @cached_property
    def parcels(self) -> np.ndarray:
        """Cells in which a parcel may lie, each as likely: all known ground but the depot."""
        known = self.kinds < len(KNOWN)
        known[cell_number(GOAL)] = False
        return np.flatnonzero(known)

    @cached_property
    def mdp(self) -> TabularMDP:
        """The exact twin of the environment: a step slips with probability `slip`, then each direction is as likely.

        From the depot every action leads to the next parcel.
        """
        matrix = np.zeros((self.num_states, self.num_actions, self.num_states))
        for cell in range(self.num_states):
            for action in range(self.num_actions):
                matrix[cell, action, self.targets[cell, action]] += 1 - self.slip
                for way in range(4):
                    matrix[cell, action, self.targets[cell, way]] += self.slip / 4
        start = np.zeros(self.num_states)
        start[self.parcels] = 1 / len(self.parcels)
        matrix[cell_number(GOAL)] = start
        return TabularMDP(scipy.sparse.csr_array(matrix.reshape(-1, self.num_states)), start, DISCOUNT)

    @property
    def num_actions(self) -> int:
        """A."""
        return len(ACTIONS)

    @property
    def observation_size(self) -> int:
        """F: the row, the column and the kind underfoot, each one-hot."""
        return 2 * SIZE + self.num_kinds

    def start(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Cells of `count` carriers at the beginning, [B]."""
        return self.parcels[rng.integers(len(self.parcels), size=count)]

    def step(
        self, cells: np.ndarray, actions: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """One step of B carriers: the next cells [B], and what happened: reward, kind, harm and delivery, [B] each.

        The reward is for the cell that a carrier stands on, whatever it does there: a function of the state alone.
        """
        ways, uniform = np.array(actions, dtype=np.int64), rng.random(len(cells))
        slipped = uniform < self.slip
        ways[slipped] = np.minimum(4 * uniform[slipped] / self.slip, 3).astype(np.int64)
        kinds, delivers = self.kinds[cells], cells == cell_number(GOAL)
        happened = {
            "reward": self.kind_rewards[kinds] + DELIVERY * delivers,
            "kind": kinds,
            "harm": np.concatenate([np.zeros(len(KNOWN)), self.harmful])[kinds],
            "delivery": delivers.astype(float),
        }
        following = self.targets[cells, ways]
        following[delivers] = self.start(int(delivers.sum()), rng)
        return following, happened

    def observe(self, cells: np.ndarray) -> np.ndarray:
        """What a carrier sees in each cell, [B] -> [B, F], float32."""
        rows, columns = np.divmod(cells, SIZE)
        parts = [np.eye(SIZE)[rows], np.eye(SIZE)[columns], np.eye(self.num_kinds)[self.kinds[cells]]]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def state_rewards(self, kind_rewards: Any) -> Tensor:
        """Rewards of all states and actions from those of the kinds: [..., K] -> [..., S, A], float64."""
        by_kind = torch.as_tensor(kind_rewards, dtype=torch.float64)
        paid = by_kind[..., torch.from_numpy(self.kinds)].clone()
        paid[..., cell_number(GOAL)] += DELIVERY
        return paid.unsqueeze(-1).expand(*paid.shape, len(ACTIONS)).contiguous()

    def visits(self, policy: Any) -> Tensor:
        """Discounted share of steps on each kind: a policy [S, A] -> [K]; sums to one."""
        occupancy = self.mdp.occupancy(policy).sum(dim=-1)
        share = torch.zeros(self.num_kinds, dtype=torch.float64)
        return share.index_add(0, torch.from_numpy(self.kinds), occupancy)


def terrain_world(layout: int = 0, num_unseen: int = 6, slip: float = 0.1) -> TerrainWorld:
    """The map number `layout`, with half of its unseen kinds harmful (one unseen kind alone is so in half of the maps).

    The edge of the map is gravel, and a road leads from its right side to the depot in the middle: there is always a known way,
    and mostly a much shorter one over unseen ground.

    >>> world = terrain_world(layout=3)
    >>> world.mdp, int(world.harmful.sum())
    (TabularMDP(num_states=81, num_actions=5, discount=0.95, sparse), 3)
    """
    num_unseen = parse_count(num_unseen, "num_unseen")
    if not 0 <= as_number(slip) < 1:
        raise InvalidInputError(f"slip={slip!r} must be in [0, 1): the probability that a step goes astray.")
    rng = make_rng(check_seed(layout), "terrains", num_unseen)
    unseen = len(KNOWN) + np.arange(num_unseen)
    num_doubtful = max(num_unseen, round(SHARE_OF_UNSEEN * NUM_PATCHES))
    patches = np.concatenate(
        [
            np.resize(rng.permutation(unseen), num_doubtful),
            rng.integers(len(KNOWN), size=max(NUM_PATCHES - num_doubtful, 3)),
        ]
    )
    cells = np.stack(np.divmod(np.arange(SIZE * SIZE), SIZE), axis=-1)
    sites = rng.uniform(0.5, SIZE - 1.5, (len(patches), 2))
    kinds = patches[((cells[:, None] - sites) ** 2).sum(axis=-1).argmin(axis=1)]
    kinds = np.where(rng.random(len(kinds)) < SCATTERED, rng.choice(patches, len(kinds)), kinds)
    kinds[EDGE] = list(KNOWN).index("gravel")
    kinds[[cell_number(place) for place in ROAD]] = list(KNOWN).index("road")
    return TerrainWorld(kinds, num_unseen, _drawn_truth(rng, num_unseen), float(slip))


def _drawn_truth(rng: np.random.Generator, num_unseen: int) -> np.ndarray:
    truths = possible_truths(num_unseen)
    return truths[rng.integers(len(truths))]


def possible_truths(num_unseen: int) -> np.ndarray:
    """Every way in which half of the unseen kinds are harmful, truth values [T, num_unseen]; of one kind, both.

    >>> len(possible_truths(6)), possible_truths(1).tolist()
    (20, [[False], [True]])
    """
    halves = {num_unseen // 2, num_unseen - num_unseen // 2}
    chosen = [which for size in sorted(halves) for which in combinations(range(num_unseen), size)]
    truths = np.zeros((len(chosen), num_unseen), dtype=bool)
    for number, which in enumerate(chosen):
        truths[number, list(which)] = True
    return truths


def cell_number(place: Sequence[int]) -> int:
    """The number of a cell (row, column) among the states."""
    return int(place[0]) * SIZE + int(place[1])


def logged_terrain_rewards(
    num_unseen: int = 6, num_rows: int = 200, noise: float = 0.05, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """What was logged on known ground: kinds one-hot [rows, K] and noisy rewards [rows, 1]. No unseen kind occurs."""
    rng = make_rng(check_seed(seed), "terrain log")
    kinds = rng.integers(len(KNOWN), size=parse_count(num_rows, "num_rows"))
    features = np.eye(len(KNOWN) + parse_count(num_unseen, "num_unseen"), dtype=np.float32)[kinds]
    rewards = np.array(list(KNOWN.values()))[kinds] + noise * rng.standard_normal(len(kinds))
    return features, rewards[:, None].astype(np.float32)
