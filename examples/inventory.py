"""A shop that does not know its demand: from twelve weeks of sales to an order policy with a certificate.

The twelve weeks are all there is. A model of the demand is one resample of them (weeks drawn again with replacement), so that
models differ in what a typical week is. Each model is a world of its own: what is sold decides what is left, and so what to
order next. The ordinary policy is the best for the mean of all models; the cautious one for the worst of twenty drawn.

    python examples/inventory.py [--csv FILE]     # columns: week, sold
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cautious import KofN, Models, UncertainSolution, models_of_parameter, solve_mdp
from cautious.seeding import make_rng
from cautious_paper.report.plotting import COLOURS, grid, save_figure

PRICE, COST, KEEPING, ORDER = 2.5, 1.5, 0.1, 2.0
"""Of a unit sold, bought, kept for a week; and of every order."""
ROOM, LARGEST_ORDER, DISCOUNT = 12, 8, 0.95
ORDINARY, CAUTIOUS = KofN(1, 1), KofN(1, 20)


class Result(NamedTuple):
    """What one level does, and what that earns."""

    level: KofN
    solution: UncertainSolution
    held_out: np.ndarray
    """Returns in models that it was not solved for, [M]."""


def sales_of(path: Path) -> np.ndarray:
    """What was sold in each week, [weeks]."""
    with path.open(encoding="utf-8") as file:
        return np.array([int(row["sold"]) for row in csv.DictReader(file)])


def shop(weeks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Transitions [S, A, S] and pay [S, A] of a shop whose weeks are like these; a state is the stock, an action the order."""
    chance = np.zeros((ROOM + 1, LARGEST_ORDER + 1, ROOM + 1))
    pays = np.zeros(chance.shape[:2])
    for stock in range(ROOM + 1):
        for order in range(LARGEST_ORDER + 1):
            filled = min(stock + order, ROOM)
            sold = np.minimum(filled, weeks)
            np.add.at(chance[stock, order], filled - sold, 1 / len(weeks))
            bought = filled - stock
            pays[stock, order] = PRICE * sold.mean() - COST * bought - KEEPING * filled - ORDER * (bought > 0)
    return chance, pays


def belief(sales: np.ndarray, num_models: int, seed: int, part: str) -> Models:
    """Models of the shop, each from a resample of the weeks; it opens with an empty store."""
    rng = make_rng(seed, part)
    draws = [rng.choice(sales, size=len(sales)) for _ in range(num_models)]
    return models_of_parameter(shop, draws, np.eye(ROOM + 1)[0], DISCOUNT)


def draw(results: Sequence[Result], path: Path) -> None:
    """Orders by stock, and returns from the worst model to the best."""
    figure, panels = grid(1, 2, width=4.2, height=3.2)
    for number, result in enumerate(results):
        orders = result.solution.mixture.policies[0].argmax(dim=-1).numpy()
        panels[0, 0].plot(
            orders[:-1], "os"[number] + "-", markersize=5 - 2 * number, color=COLOURS[number], label=str(result.level)
        )
        panels[0, 1].plot(np.sort(result.held_out), color=COLOURS[number], label=str(result.level))
    panels[0, 0].set(xlabel="stock", ylabel="order")
    panels[0, 1].set(xlabel="held-out models, worst first", ylabel="pay per week")
    panels[0, 0].legend()
    save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> list[Result]:
    """Read the arguments, solve, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "demand.csv")
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the figure")
    chosen = parser.parse_args(argv)
    models, others = map(partial(belief, sales_of(chosen.csv), chosen.models, chosen.seed), ("solved", "held out"))
    print(
        "| level | orders at stock 0, 1, 2, 3, 4 | mean pay | 1-of-20 | bound | 1-of-20, held out |\n|---|---|---|---|---|---|"
    )
    results = []
    for level in (ORDINARY, CAUTIOUS):
        solution = solve_mdp(models.world, models.rewards, level, tolerance=2e-3)
        held_out = solution.returns(others.world, others.rewards)
        results.append(Result(level, solution, held_out.numpy()))
        orders = ", ".join(map(str, solution.mixture.policies[0].argmax(dim=-1)[:5].tolist()))
        mean, tail = solution.returns().mean(), CAUTIOUS.value(solution.returns())
        upper = f"{float(solution.certificate().upper):.3f}"
        print(f"| {level} | {orders} | {mean:.3f} | {tail:.3f} | {upper} | {CAUTIOUS.value(held_out):.3f} |")
    draw(results, chosen.out / "inventory.png")
    print(f"figure: {chosen.out / 'inventory.png'}")
    return results


if __name__ == "__main__":
    main()
