"""Your own vectors with logged feedback: an old system tried one action per case, and only its reward is known.

The data are real: MNIST digits from the package, pooled to 7 x 7 numbers, as if they were your measurements. An old system
(nearest class mean) named a digit or passed the case on; sometimes it tried something else. The log contains the reward of that
one action: 1 for the correct name, 0 for a wrong one, 0.4 for passing on. All other entries are NaN: never tried.

`fit_ensemble` trains on the log as it is. On new digits (familiar) the policy decides as an ordinary one; on clothes (novel,
Fashion-MNIST) it passes cases on, though it was given no clothes, no label "novel" and no rule for passing on.

    python examples/logged_feedback.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from cautious import CautiousPolicy, Decision, fit_ensemble
from cautious.seeding import make_rng
from cautious_paper.report.plotting import COLOURS, grid, save_figure
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.image_tasks import ask_for_help_rewards

PASS_ON = 10
PASS_ON_REWARD = 0.4
EXPLORATION = 0.5
"""How often the old system tried an action at random."""


class Result(NamedTuple):
    """Decisions of the cautious policy about one set of cases."""

    cases: str
    caution: Tensor
    passed_on: float
    ordinarily: float
    """How often the ordinary policy would pass on."""


def as_vectors(images: Tensor) -> Tensor:
    """Images [S, 28, 28] as 49 numbers each: means of 4 x 4 pixels, in [0, 1]."""
    return torch.nn.functional.avg_pool2d(images[:, None].float() / 255, 4).flatten(1)


def old_system(vectors: Tensor, means: Tensor) -> Tensor:
    """The digit whose mean is nearest, [S]."""
    return torch.cdist(vectors, means).argmin(dim=1)


def logged_rewards(vectors: Tensor, labels: Tensor, seed: int) -> Tensor:
    """Reward of the one action that was tried in each case, [S, 11]; NaN for the other ten."""
    means = torch.stack([vectors[labels == digit].mean(dim=0) for digit in range(10)])
    sampler = make_rng(seed, "old system")
    explores = torch.from_numpy(sampler.random(len(vectors)) < EXPLORATION)
    anything = torch.from_numpy(sampler.integers(11, size=len(vectors)))
    tried = torch.where(explores, anything, old_system(vectors, means))[:, None]
    paid = ask_for_help_rewards(labels, PASS_ON_REWARD)
    return torch.full_like(paid, torch.nan).scatter(1, tried, paid.gather(1, tried))


def summary(cases: str, decision: Decision) -> Result:
    """Caution, and how often cases are passed on."""
    ordinary = decision.ordinary.argmax(dim=1)
    return Result(
        cases,
        decision.caution,
        float((decision.action == PASS_ON).double().mean()),
        float((ordinary == PASS_ON).double().mean()),
    )


def print_table(results: Sequence[Result]) -> None:
    """One line per set of cases."""
    print(f"{'cases':<24}{'mean caution':>14}{'passed on':>12}{'ordinarily':>12}")
    for result in results:
        mean = float(result.caution.mean())
        print(f"{result.cases:<24}{mean:>14.3f}{result.passed_on:>12.1%}{result.ordinarily:>12.1%}")


def draw(results: Sequence[Result], path: Path) -> None:
    """How cautious the policy is, case by case."""
    figure, panels = grid(1, 1, width=6)
    for result, colour in zip(results, COLOURS, strict=False):
        ordered = result.caution.sort().values
        panels[0, 0].plot(torch.linspace(0, 1, len(ordered)), ordered, color=colour, label=result.cases)
    panels[0, 0].set(xlabel="share of cases", ylabel="caution", title="0: as usual, 1: entirely differently")
    panels[0, 0].legend()
    save_figure(figure, path)


def run(num_models: int, num_epochs: int, num_logged: int, num_shown: int, level: str, seed: int) -> list[Result]:
    """Log, fit, decide."""
    log = load_images("digits", "train")
    vectors, labels = as_vectors(log.images[:num_logged]), log.labels[:num_logged]
    belief = fit_ensemble(
        vectors,
        logged_rewards(vectors, labels, seed),
        num_models=num_models,
        num_epochs=num_epochs,
        batch_size=64,
        learning_rate=3e-3,
        seed=seed,
    )
    policy = CautiousPolicy(belief, level)
    novel = {"digits (familiar)": "digits", "clothes (novel)": "fashion"}
    return [
        summary(cases, policy.decide(as_vectors(load_images(name, "test").images[:num_shown])))
        for cases, name in novel.items()
    ]


def main(argv: Sequence[str] | None = None) -> list[Result]:
    """Read the arguments, run, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the figure")
    parser.add_argument("--models", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--logged", type=int, default=6000, help="cases in the log")
    parser.add_argument("--shown", type=int, default=1000, help="cases of each kind to decide about")
    parser.add_argument("--level", default="1-of-10")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(argv)
    results = run(chosen.models, chosen.epochs, chosen.logged, chosen.shown, chosen.level, chosen.seed)
    print_table(results)
    draw(results, chosen.out / "logged-feedback.png")
    print(f"figure: {chosen.out / 'logged-feedback.png'}")
    return results


if __name__ == "__main__":
    main()
