"""Draw the pictures of docs/concepts.md: `python tools/concept_figures.py`. Half a minute on one core."""

from __future__ import annotations

from pathlib import Path

import torch

from cautious import CautiousPolicy, KofN, fit_ensemble
from cautious.report.figures import COLOURS, grid, save_figure

ASK_REWARD = 0.4
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
LEVELS = ("1-of-20", "5-of-20", "10-of-20", "20-of-20")


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
        "how far 40 models differ (up to 1)": decision.opinions().std(dim=0).mean(dim=-1),
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
        panel.imshow(square, origin="lower", extent=(-0.5, 1.5, -0.5, 1.5), cmap="viridis", vmin=0, vmax=1)
        for number in range(4):
            panel.scatter(*states[kind == number].T.numpy(), s=3, color="white")
        panel.set(title=title, xticks=[0, 1], yticks=[0, 1])
    save_figure(figure, path)


def draw_weights(path: Path, num_models: int = 100) -> None:
    """How much the i-th worst of a hundred models counts."""
    figure, panels = grid(1, 1, width=7, height=2.8)
    for text, colour in zip(LEVELS, COLOURS, strict=False):
        weights = KofN.parse(text).rank_weights(num_models)
        panels[0, 0].plot(range(1, num_models + 1), weights, color=colour, label=text)
    panels[0, 0].set(xlabel="rank of the model, from the worst for the policy", ylabel="weight")
    panels[0, 0].legend()
    save_figure(figure, path)


if __name__ == "__main__":
    draw_belief(FIGURES / "concept-belief.png")
    draw_weights(FIGURES / "concept-weights.png")
