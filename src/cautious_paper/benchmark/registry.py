"""Every problem of the benchmark by its name, and `make`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from cautious.baselines.comparing import Problem
from cautious.errors import InvalidInputError
from cautious.seeding import check_seed
from cautious.validation import look_up
from cautious_paper.benchmark import doubts, grounds, paper

BUILDERS: dict[str, Callable[[int], dict[str, Problem]]] = {
    "images-v1": paper.images,
    "driving-v1": paper.driving,
    "terrains-v1": grounds.terrains,
    "lake-v1": grounds.lake,
    "cliff-v1": grounds.cliff,
    "taxi-v1": grounds.taxi,
    "shop-v1": doubts.shop,
    "slippery-lake-v1": doubts.slippery_lake,
}
"""Name -> function of a seed to the problem's splits. A change that moves any number makes a new name, with the next version;
the old name stays as it is (docs/benchmark.md)."""
IDS = tuple(BUILDERS)
SPLITS = ("familiar", "novel")


def make(id: str, split: str = "novel", seed: int = 0) -> Problem:
    """The problem of this name: a world, what models say about it, and what may be true there.

    Args:
        id: One of `IDS`, such as "driving-v1".
        split: "novel", where the models had no experience of part of the world and its `familiar` is the other split; or
            "familiar", where they had.
        seed: Which map, images or models are drawn; each seed is a world of its own.

    Returns:
        A `cautious.Problem`. Its `extras` hold what a method may ask for by name: `features` [S, F] of the states and
        `logged_features` [n, F] of the familiar ones (not where dynamics are in doubt), `action` and `threshold` (of
        `fixed_fallback`).

    >>> make("terrains-v1").world, make("terrains-v1", split="familiar").world
    (TabularMDP(num_states=81, num_actions=5, discount=0.95, sparse), TabularMDP(num_states=81, num_actions=5, ...))
    """
    build = look_up(BUILDERS, id, "id")
    if split not in SPLITS:
        raise InvalidInputError(f"split={split!r}: choose 'familiar' or 'novel'.")
    return build(check_seed(seed))[split]


def problems(ids: Iterable[str] = IDS, split: str = "novel") -> dict[str, Callable[[int], Problem]]:
    """Several problems as `cautious.compare` takes them: name -> function of a seed.

    >>> list(problems(["lake-v1", "cliff-v1"]))
    ['lake-v1', 'cliff-v1']
    """
    named: dict[str, Callable[[int], Problem]] = {id: partial(_of_seed, id, split) for id in ids}
    for id in named:
        look_up(BUILDERS, id, "id")
    return named


def _of_seed(id: str, split: str, seed: int) -> Problem:
    return make(id, split, seed)
