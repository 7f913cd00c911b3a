"""Small worlds whose dynamics hang on a number that nobody knows: a shop, a slippery lake, a machine that wears.

Each function takes the unknown number and gives what `cautious.mdp.models.models_of_parameter` takes: transitions [S, A, S] and
rewards [S, A]. A list of draws of the number is then an `UncertainMDP`.
"""

from __future__ import annotations

import numpy as np

Model = tuple[np.ndarray, np.ndarray]
"""Transitions [S, A, S], rewards [S, A]."""
SHELF, ORDERS = 20, 11
LAKE_SIZE, HOLES = 6, frozenset({(1, 3), (2, 1), (3, 4), (4, 2), (4, 0)})
WORN = 9
DISCOUNT = 0.95


def inventory_model(rate: float) -> Model:
    """Stock to 20, orders to 10, Poisson demand of this rate; a sale pays 2.5, a unit costs 1 and .1 to keep, an order 2."""
    demand = np.arange(40)
    chance_of = np.exp(demand * np.log(rate) - rate - np.array([np.log(np.arange(1, d + 1)).sum() for d in demand]))
    chance_of /= chance_of.sum()
    chance, pays = np.zeros((SHELF + 1, ORDERS, SHELF + 1)), np.zeros((SHELF + 1, ORDERS))
    for stock in range(SHELF + 1):
        for order in range(ORDERS):
            filled = min(stock + order, SHELF)
            sold = np.minimum(filled, demand)
            np.add.at(chance[stock, order], filled - sold, chance_of)
            bought = filled - stock
            pays[stock, order] = 2.5 * chance_of @ sold - bought - 0.1 * filled - 2 * (bought > 0)
    return chance, pays


def slippery_lake_model(slip: float) -> Model:
    """A 6 x 6 frozen lake with holes (-10) and a goal (10), where a step goes astray with this probability."""
    moves = [(0, -1), (1, 0), (0, 1), (-1, 0)]
    end = LAKE_SIZE * LAKE_SIZE
    chance, pays = np.zeros((end + 1, 4, end + 1)), np.zeros((end + 1, 4))
    chance[end, :, end] = 1
    for x in range(LAKE_SIZE):
        for y in range(LAKE_SIZE):
            here = x * LAKE_SIZE + y
            if (x, y) in HOLES or (x, y) == (LAKE_SIZE - 1, LAKE_SIZE - 1):
                chance[here, :, end] = 1
                pays[here] = -10 if (x, y) in HOLES else 10
                continue
            for action in range(4):
                for turn, share in ((0, 1 - slip), (1, slip / 2), (3, slip / 2)):
                    dx, dy = moves[(action + turn) % 4]
                    u, v = min(max(x + dx, 0), LAKE_SIZE - 1), min(max(y + dy, 0), LAKE_SIZE - 1)
                    chance[here, action, u * LAKE_SIZE + v] += share
    return chance, pays


def machine_model(doubt: tuple[float, float]) -> Model:
    """Replace, repair or run: ten states of wear, by its speed and the success of repairs (after Delage & Mannor, 2010)."""
    wear, success = doubt
    chance, pays = np.zeros((WORN + 1, 3, WORN + 1)), np.zeros((WORN + 1, 3))
    for state in range(WORN + 1):
        chance[state, 0, min(state + 1, WORN)] += wear
        chance[state, 0, state] += 1 - wear
        chance[state, 1, max(state - 3, 0)] += success
        chance[state, 1, state] += 1 - success
        chance[state, 2, 0] = 1
        pays[state] = -20.0 * (state == WORN), -2 - 20.0 * (state == WORN), -10
    return chance, pays
