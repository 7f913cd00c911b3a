"""Draw the pictures of docs/concepts.md and of the tutorial: `python tools/concept_figures.py`. Half a minute on one core."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from cautious import CautiousPolicy, FallbackRule, KofN, fit_ensemble
from cautious_paper.report.plotting import CAUTIOUS, COLOURS, colours_of, grid, save_figure

ASK_REWARD = 0.4
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
LEVELS = ("1-of-20", "5-of-20", "10-of-20", "20-of-20")
WORDS_AT = ((3, (8, 2)), (14, (6, 4)), (40, (4, 6)), (80, (0, 5)))
"""Where each level's name stands: at which rank of its curve, and how far from there, in points."""


def cases(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cases on the plane and their kinds: four, one at each corner of a square."""
    kind = torch.arange(count) % 4
    corner = torch.stack([kind % 2, kind // 2], dim=1)
    return corner + 0.1 * torch.randn(count, 2, generator=torch.Generator().manual_seed(seed)), kind


def draw_belief(path: Path) -> None:
    """Models that agree where there are data and disagree elsewhere, and the caution that comes of it."""
    states, kind = cases(200, seed=0)
    rewards = torch.cat([torch.eye(4)[kind], torch.full((200, 1), ASK_REWARD)], dim=1)
    belief = fit_ensemble(states, rewards, num_models=40, num_epochs=40, progress=False)
    line = torch.linspace(-0.5, 1.5, 61)
    plane = torch.cartesian_prod(line, line)
    decision = CautiousPolicy(belief, "1-of-20").decide(plane)
    pictures = {
        "disagreement of 40 models, 0 to 5": decision.disagreement,
        "ordinary policy: asks": decision.ordinary[:, 4],
        "1-of-20: asks": decision.probabilities[:, 4],
    }
    fresh, _ = cases(1000, seed=1)
    away = torch.cdist(plane, states).amin(dim=1) > 0.4
    asked = CautiousPolicy(belief, "1-of-20").decide(fresh).probabilities[:, 4].mean()
    print(
        f"1-of-20 asks on {asked:.1%} of fresh familiar rows, on {decision.probabilities[away, 4].mean():.1%} of the plane"
    )
    print(
        f"that is farther than 0.4 from every case; the ordinary policy there on {decision.ordinary[away, 4].mean():.1%}."
    )
    figure, panels = grid(1, 3, width=3.2, height=2.9)
    for panel, (title, values) in zip(panels[0], pictures.items(), strict=True):
        square = values.reshape(61, 61).T.numpy()
        highest = 5.0 if values is decision.disagreement else 1.0
        panel.imshow(square, origin="lower", extent=(-0.5, 1.5, -0.5, 1.5), cmap="viridis", vmin=0, vmax=highest)
        for number in range(4):
            panel.scatter(*states[kind == number].T.numpy(), s=3, color="white")
        panel.set(title=title, xticks=[0, 1], yticks=[0, 1])
    save_figure(figure, path)


def draw_weights(path: Path, num_models: int = 100) -> None:
    """How much the i-th worst of a hundred models counts."""
    figure, panels = grid(1, 1, width=7, height=2.8)
    for (text, colour), (rank, place) in zip(colours_of(LEVELS).items(), WORDS_AT, strict=True):
        weights = KofN.parse(text).rank_weights(num_models)
        panels[0, 0].plot(range(1, num_models + 1), weights, color=colour)
        panels[0, 0].annotate(text, (rank, float(weights[rank - 1])), place, textcoords="offset points", color=colour)
    panels[0, 0].set(xlabel="rank of the model, from the worst for the policy", ylabel="weight")
    save_figure(figure, path)


CHOICES = {"Adelie": COLOURS[5], "Chinstrap": COLOURS[3], "ask": CAUTIOUS}
MEASURED = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")


def draw_penguins(path: Path) -> None:
    """The tutorial's birds, on two of their four measurements: what is decided about known species and about Gentoos."""
    lines = (Path(__file__).parents[1] / "examples" / "penguins.csv").read_text(encoding="utf-8").splitlines()
    birds = [bird for bird in csv.DictReader(lines) if bird["body_mass_g"]]
    states = torch.tensor([[float(bird[name]) for name in MEASURED] for bird in birds])
    gentoo = torch.tensor([bird["species"] == "Gentoo" for bird in birds])
    known = (~gentoo).nonzero().flatten()
    fresh = known[::3]  # as in the tutorial
    familiar = known[~torch.isin(known, fresh)]
    species = torch.tensor([["Adelie", "Chinstrap", "Gentoo"].index(bird["species"]) for bird in birds])
    rewards = torch.cat([torch.eye(3)[:, :2][species], torch.full((len(birds), 1), ASK_REWARD)], dim=1)
    belief = fit_ensemble(states[familiar], rewards[familiar], progress=False)
    decision = CautiousPolicy(belief, "1-of-20").decide(states)
    pictures = {
        "ordinarily": decision.ordinary.argmax(dim=1),
        "1-of-20": decision.action,
        "ask where models differ too much": FallbackRule(belief, 2).decide(states).action,
    }
    figure, panels = grid(1, 3, width=3.2, height=2.9)
    fresh_only = torch.zeros(len(birds), dtype=torch.bool).scatter(0, fresh, True)
    for panel, (title, action) in zip(panels[0], pictures.items(), strict=True):
        for number, (name, colour) in enumerate(CHOICES.items()):
            for birds_shown, marker in ((fresh_only, "o"), (gentoo, "x")):
                chosen = states[birds_shown & (action == number)]
                panel.scatter(chosen[:, 2], chosen[:, 1], s=14, marker=marker, color=colour, linewidths=0.8)
            panel.scatter([], [], s=14, color=colour, label=name)
        shares = [float((action[shown] == 2).double().mean()) for shown in (fresh_only, gentoo)]
        panel.set_title(f"{title}\nasks: {shares[0]:.0%} of known, {shares[1]:.0%} of Gentoos", fontsize=9)
        panel.set_xlabel("flipper, mm")
    panels[0, 0].set_ylabel("bill depth, mm")
    panels[0, 0].legend(fontsize=7)
    save_figure(figure, path)


if __name__ == "__main__":
    draw_belief(FIGURES / "concept-belief.png")
    draw_weights(FIGURES / "concept-weights.png")
    draw_penguins(FIGURES / "tutorial-penguins.png")
