"""An ensemble of reward models chooses among candidate answers: best-of-n that is robust to reward model errors.

The data are simulated, so that the truth is known. An answer is nine numbers: six of content, which determine its quality, and
three of style, which hardly vary in the rated answers. Extreme style lowers the true quality; ratings are noisy. Reward models
are trained on 2,000 rated answers. They differ in what they predict for extreme style, which none of them has seen.

With more candidates, a single model finds more answers that it overrates: its choices stop improving, or get worse (Gao et
al., "Scaling laws for reward model overoptimization", 2023). The ensemble's mean overrates fewer, a 1-of-20 choice far fewer;
where all candidates are ordinary (familiar) the three choose equally well. Nothing marks style as a risk. Where all models
share a mistake no level helps: disagreement is the only source of caution.

    python examples/candidate_answers.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cautious import RewardEnsemble, fit_ensemble, solve_bandit
from cautious.seeding import make_rng
from cautious_paper.report.plotting import COLOURS, grid, save_figure

NUM_CONTENT, NUM_STYLE = 6, 3
FAMILIAR_STYLE, EXTREME_STYLE = 0.05, 3.0
EXTREME_SHARE = 0.2
"""How many candidates of a novel generator are extreme in style."""
RATING_NOISE = 0.3
CHOICES = ("single model", "mean of all", "1-of-20")


class Outcome(NamedTuple):
    """True quality of the choices among n candidates."""

    generator: str
    num_candidates: int
    quality: list[float]
    """True quality of the chosen answers, in the order of `CHOICES`."""
    extreme: list[float]
    """How often it is extreme in style."""


def true_quality(answers: Tensor) -> Tensor:
    """[..., 9] -> [...]: saturating in content, minus a penalty for extreme style."""
    content, style = answers.split([NUM_CONTENT, NUM_STYLE], dim=-1)
    weights = torch.linspace(1, 0.2, NUM_CONTENT)
    return (torch.tanh(content) * weights).sum(dim=-1) - 0.5 * (style.norm(dim=-1) - 0.5).clamp(min=0)


def draw_answers(shape: Sequence[int], extreme_share: float, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Answers [*shape, 9], and which of them are extreme in style [*shape]."""
    extreme = rng.random(tuple(shape)) < extreme_share
    scale = np.where(extreme, EXTREME_STYLE, FAMILIAR_STYLE)[..., None]
    content = rng.normal(size=(*shape, NUM_CONTENT))
    style = rng.normal(size=(*shape, NUM_STYLE)) * scale
    return torch.from_numpy(np.concatenate([content, style], axis=-1)).float(), torch.from_numpy(extreme)


def learn_from_ratings(num_rated: int, num_models: int, num_epochs: int, seed: int) -> RewardEnsemble:
    """Reward models trained on noisy ratings of ordinary answers; their single "action" is the rating."""
    rng = make_rng(seed, "rated answers")
    answers, _ = draw_answers([num_rated], 0.0, rng)
    ratings = true_quality(answers) + torch.from_numpy(rng.normal(0, RATING_NOISE, num_rated)).float()
    return fit_ensemble(
        answers,
        ratings[:, None],
        num_models=num_models,
        num_epochs=num_epochs,
        batch_size=64,
        learning_rate=2e-3,
        seed=seed,
    )


def choose(scores: Tensor, level: str) -> list[Tensor]:
    """Probabilities of each choice, [..., P, n] in the order of `CHOICES`, from scores [M, P, n]."""
    num_candidates = scores.shape[-1]
    single = torch.nn.functional.one_hot(scores.argmax(dim=-1), num_candidates).double().mean(dim=0)
    mean = torch.nn.functional.one_hot(scores.mean(dim=0).argmax(dim=-1), num_candidates).double()
    cautious = solve_bandit(scores, level, regime="single-state", sampling="exact").best_policy
    return [single, mean, cautious]


def best_of(belief: RewardEnsemble, extreme_share: float, num_prompts: int, num_candidates: int, seed: int) -> Outcome:
    """Choose among n candidates per prompt in each way, and evaluate the true quality."""
    generator = "novel" if extreme_share else "familiar"
    rng = make_rng(seed, "candidates", generator, num_candidates)
    answers, extreme = draw_answers([num_prompts, num_candidates], extreme_share, rng)
    scores = belief.rewards(answers.flatten(0, 1))[..., 0].unflatten(1, (num_prompts, num_candidates))
    chosen = choose(scores, CHOICES[-1])
    quality = true_quality(answers).double()

    def averages(values: Tensor) -> list[float]:
        return [float((policy * values).sum(dim=-1).mean()) for policy in chosen]

    return Outcome(generator, num_candidates, averages(quality), averages(extreme.double()))


def print_table(outcomes: Sequence[Outcome]) -> None:
    """One line per generator and n: true quality of the choice, and in brackets how often it is extreme."""
    print(f"{'candidates':<12}{'n':>5}" + "".join(f"{name:>20}" for name in CHOICES))
    for outcome in outcomes:
        cells = [f"{q:.2f} ({100 * x:.0f} %)" for q, x in zip(outcome.quality, outcome.extreme, strict=True)]
        print(f"{outcome.generator:<12}{outcome.num_candidates:>5}" + "".join(f"{cell:>20}" for cell in cells))
    print("true quality of the chosen answer (how often it is extreme in style)")


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """True quality against the number of candidates."""
    figure, panels = grid(1, 2, width=4.5)
    panels[0, 1].sharey(panels[0, 0])
    for panel, generator in zip(panels[0], ("familiar", "novel"), strict=True):
        own = [outcome for outcome in outcomes if outcome.generator == generator]
        for number, name in enumerate(CHOICES):
            counts = [outcome.num_candidates for outcome in own]
            panel.plot(counts, [o.quality[number] for o in own], marker="o", color=COLOURS[number], label=name)
        panel.set(xscale="log", xlabel="candidates n", title=f"{generator} candidates")
    panels[0, 0].set_ylabel("true quality of the choice")
    panels[0, 0].legend()
    save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> list[Outcome]:
    """Read the arguments, run, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the figure")
    parser.add_argument("--models", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--rated", type=int, default=2000, help="answers that were rated")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--candidates", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(argv)
    belief = learn_from_ratings(chosen.rated, chosen.models, chosen.epochs, chosen.seed)
    outcomes = [
        best_of(belief, share, chosen.prompts, count, chosen.seed)
        for share in (0.0, EXTREME_SHARE)
        for count in chosen.candidates
    ]
    print_table(outcomes)
    draw(outcomes, chosen.out / "candidate-answers.png")
    print(f"figure: {chosen.out / 'candidate-answers.png'}")
    return outcomes


if __name__ == "__main__":
    main()
