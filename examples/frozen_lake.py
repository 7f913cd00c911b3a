"""A Gymnasium world with a novel hazard: FrozenLake with a strip of hot ice.

A robot senses brightness, water, shine and heat of the tile that it steps on. Reward models are trained on every step of a
dozen lakes (Gymnasium's own random maps): the goal pays 1, a hole -1, ice 0. Heat was always near 0 there, so the models differ
in what they predict for a hot tile. The dynamics of any map are known: `TabularMDP.from_gymnasium`.

On another lake of the same kind (familiar) the cautious policy takes a shortest path to the goal, as the ordinary one does. On
the lake with a hot strip (novel) the ordinary policy crosses it, since the mean of the models predicts no loss there; the
cautious one goes around it. Nothing marks heat as dangerous: the models differ, and that is enough. The hotter the strip, the
more they differ, until even their mean is arbitrary (`--heat 5`).

Compare the paths, not the caution of single states: there are many shortest paths, and two policies may take different ones.

    python examples/frozen_lake.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from torch import Tensor

from cautious import CautiousPolicy, RewardEnsemble, TabularMDP, fit_ensemble
from cautious.seeding import derive_seed, make_rng
from cautious_paper.report.plotting import grid, save_figure

SENSED = {  # brightness, water, shine, heat
    "S": (1, -1, -1, 0),
    "F": (1, -1, -1, 0),
    "H": (-1, 1, -1, 0),
    "G": (1, -1, 1, 0),
}
PAYS = {"S": 0.0, "F": 0.0, "H": -1.0, "G": 1.0}  # hot ice (L, like ice except for its heat): unknown
SENSOR_NOISE = 0.1
NOVEL_LAKE = ("SFFLFFG", "FFFLFFF", "FFFLFFF", "FFFFFFF")
LEVELS = ("20-of-20", "1-of-20")
DISCOUNT = 0.95
LONGEST_WALK = 60


class Walk(NamedTuple):
    """The path of one policy on one lake."""

    lake: str
    level: str
    path: list[int]
    """States, from the start."""
    reached: bool
    on_hot_ice: int
    """Number of steps that end on hot ice."""
    time_on_hot_ice: float
    """The policy's discounted share of time there, over all its random choices."""


def make_lake(rows: Sequence[str]) -> Any:
    """FrozenLake with this map; Gymnasium treats unknown letters as ice."""
    return gymnasium.make("FrozenLake-v1", desc=list(rows), is_slippery=False, max_episode_steps=LONGEST_WALK)


def familiar_lake(number: int, seed: int) -> list[str]:
    """One of Gymnasium's random 6 x 6 maps, of ice, holes and a goal."""
    return generate_random_map(6, 0.8, seed=derive_seed(seed, "lake", number) % 2**31)


def sense(tiles: Sequence[str], rng: np.random.Generator, heat: float = 0) -> Tensor:
    """Noisy sensor readings of these tiles, [S, 4]; `heat` is that of hot ice."""
    hot_ice = (*SENSED["F"][:3], heat)
    exact = np.array([SENSED.get(tile, hot_ice) for tile in tiles], dtype=np.float64)
    return torch.from_numpy(exact + rng.normal(0, SENSOR_NOISE, exact.shape)).float()


def steps_of(env: Any, tiles: str) -> Iterator[tuple[int, int, int, float]]:
    """Every possible step: (state, action, next state, probability)."""
    for state, actions in env.unwrapped.P.items():
        if tiles[state] not in "HG":
            for action, outcomes in actions.items():
                yield from ((state, action, int(following), chance) for chance, following, _, _ in outcomes)


def learn_tiles(num_lakes: int, num_models: int, num_epochs: int, seed: int) -> RewardEnsemble:
    """Reward models of stepping on a tile, trained on every step of familiar lakes."""
    rng = make_rng(seed, "sensors")
    seen = []
    for number in range(num_lakes):
        rows = familiar_lake(number, seed)
        tiles = "".join(rows)
        seen += [tiles[following] for _, _, following, _ in steps_of(make_lake(rows), tiles)]
    paid = torch.tensor([[PAYS[tile]] for tile in seen])
    return fit_ensemble(
        sense(seen, rng),
        paid,
        num_models=num_models,
        num_epochs=num_epochs,
        learning_rate=3e-3,
        seed=seed,
        validation_fraction=0,  # learn from every tile
        prior=0,  # as in the paper: along a path, uncertainty adds up, and with a prior standing still may be best
    )


def walk(env: Any, tiles: str, lake: str, policy: CautiousPolicy) -> Walk:
    """Follow a policy from the start in the Gymnasium environment."""
    state, _ = env.reset(seed=0)
    path, over = [int(state)], False
    while not over:
        action, _ = policy.predict(state)
        state, _, terminated, truncated, _ = env.step(int(action))
        path.append(int(state))
        over = terminated or truncated
    assert policy.mdp is not None
    probabilities = policy.decide(range(policy.mdp.num_states)).probabilities
    visits = policy.mdp.occupancy(probabilities).sum(dim=-1)
    hot = [number for number, tile in enumerate(tiles) if tile == "L"]
    on_hot_ice = sum(place in hot for place in path)
    return Walk(lake, str(policy.level), path, tiles[path[-1]] == "G", on_hot_ice, float(visits[hot].sum()))


def walk_lake(belief: RewardEnsemble, lake: str, rows: Sequence[str], heat: float, seed: int) -> list[Walk]:
    """The path of each level on one lake."""
    env, tiles = make_lake(rows), "".join(rows)
    mdp = TabularMDP.from_gymnasium(env, DISCOUNT)
    sensed = sense(tiles, make_rng(seed, "sensors", lake), heat)
    table = mdp.expected_rewards(belief.rewards(sensed)[..., 0])  # stepping on a tile pays: [M, tiles] -> [M, S, A]
    return [walk(env, tiles, lake, CautiousPolicy(table, level, mdp=mdp, num_iterations=300)) for level in LEVELS]


def print_table(walks: Sequence[Walk]) -> None:
    """One line per lake and level."""
    print(f"{'lake':<10}{'level':<10}{'steps':>6}{'goal':>6}{'steps on hot ice':>18}{'share of time there':>21}")
    for one in walks:
        goal = "yes" if one.reached else "no"
        steps = f"{len(one.path) - 1:>6}{goal:>6}{one.on_hot_ice:>18}"
        print(f"{one.lake:<10}{one.level:<10}{steps}{one.time_on_hot_ice:>21.3f}")


def draw(lakes: dict[str, Sequence[str]], walks: Sequence[Walk], path: Path) -> None:
    """Both lakes, with the two paths."""
    shades = {"S": 0.85, "F": 1.0, "H": 0.25, "G": 0.7, "L": 0.5}
    figure, panels = grid(1, 2, width=4.5)
    for panel, (lake, rows) in zip(panels[0], lakes.items(), strict=True):
        panel.imshow([[shades[tile] for tile in row] for row in rows], cmap="gray", vmin=0, vmax=1)
        for y, row in enumerate(rows):
            for x, tile in enumerate(row):
                panel.text(x, y, tile if tile != "F" else "", ha="center", va="center", color="#d55e00")
        for one, style in zip([w for w in walks if w.lake == lake], ("o:", "s-"), strict=True):
            shift = 0.12 if style == "s-" else -0.12
            ys, xs = np.divmod(np.array(one.path), len(rows[0]))
            panel.plot(xs + shift, ys + shift, style, markersize=4, label=one.level)
        panel.set(title=f"{lake} lake", xticks=[], yticks=[])
    panels[0, 0].legend(loc="lower left")
    save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> list[Walk]:
    """Read the arguments, run, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the figure")
    parser.add_argument("--lakes", type=int, default=12, help="familiar lakes to learn from")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument(
        "--heat", type=float, default=2.0, help="heat of the strip; familiar tiles have 0, with noise 0.1"
    )
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(argv)
    belief = learn_tiles(chosen.lakes, chosen.models, chosen.epochs, chosen.seed)
    lakes: dict[str, Sequence[str]] = {"familiar": familiar_lake(chosen.lakes, chosen.seed), "novel": NOVEL_LAKE}
    walks = [one for lake, rows in lakes.items() for one in walk_lake(belief, lake, rows, chosen.heat, chosen.seed)]
    print_table(walks)
    draw(lakes, walks, chosen.out / "frozen-lake.png")
    print(f"figure: {chosen.out / 'frozen-lake.png'}")
    return walks


if __name__ == "__main__":
    main()
