"""Image triage with help: which images does the machine label, and which go to a person?

Images and belief are real and come with the package: a hundred reward models trained on MNIST digits with the paper's settings.
Naming a digit correctly pays 1, wrongly 0, and asking a person always pays 0.25.

First, `calibrate` finds the most cautious level that changes the decision for at most 5 % of familiar images, with confidence
0.95, using digits held out for this purpose. Then the policy decides about other digits (familiar) and clothes (novel,
Fashion-MNIST). Few digits go to a person, mostly unusual ones; most clothes do, though no model has seen any and nothing marks
asking as the safe action.

    python examples/image_triage.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from cautious import Calibration, CautiousPolicy, Decision, RewardEnsemble, calibrate
from cautious_paper.report.plotting import grid, save_figure
from cautious_paper.worlds.data import load_images

PERSON = 10
NUM_DRAWN = 12


class Triage(NamedTuple):
    """Decisions about one set of images."""

    images: str
    pictures: Tensor
    decision: Decision
    to_person: float
    ordinarily: float
    """How often the ordinary policy would ask."""
    correct: float | None
    """Share of correct labels among the images that the machine labels; None where there is no correct label."""


def triage(name: str, pictures: Tensor, labels: Tensor | None, policy: CautiousPolicy) -> Triage:
    """Decide about images [S, 28, 28], and count."""
    decision = policy.decide(pictures)
    asks = decision.action == PERSON
    ordinarily = float((decision.ordinary.argmax(dim=1) == PERSON).double().mean())
    correct = None if labels is None else float((decision.action == labels)[~asks].double().mean())
    return Triage(name, pictures, decision, float(asks.double().mean()), ordinarily, correct)


def run(num_calibrate: int, num_shown: int, at_most: float) -> tuple[Calibration, list[Triage]]:
    """Calibrate on some digits, then decide about others and about clothes."""
    digits, clothes = load_images("digits", "test"), load_images("fashion", "test")
    belief = RewardEnsemble.load("ask-for-help")
    found = calibrate(CautiousPolicy(belief, "1-of-20"), digits.images[:num_calibrate], at_most=at_most)
    policy = CautiousPolicy(belief, found.level)
    others = slice(num_calibrate, num_calibrate + num_shown)
    return found, [
        triage("digits (familiar)", digits.images[others], digits.labels[others], policy),
        triage("clothes (novel)", clothes.images[:num_shown], None, policy),
    ]


def print_table(found: Calibration, sorted_images: Sequence[Triage]) -> None:
    """The calibrated level, and one line per set of images."""
    print(
        f"level {found.level}: another action than ordinarily on {found.rate:.1%} of the familiar images tried, with 95 % "
        f"confidence on less than {found.bound:.1%} of all"
    )
    print(f"{'images':<20}{'to a person':>13}{'ordinarily':>12}{'mean caution':>14}{'correct, if kept':>22}")
    for one in sorted_images:
        correct = "-" if one.correct is None else f"{one.correct:.1%}"
        caution = float(one.decision.caution.mean())
        print(f"{one.images:<20}{one.to_person:>13.1%}{one.ordinarily:>12.1%}{caution:>14.3f}{correct:>22}")


def draw(sorted_images: Sequence[Triage], path: Path) -> None:
    """The images of each set that are most likely, and least likely, to go to a person."""
    figure, panels = grid(2 * len(sorted_images), NUM_DRAWN, width=0.8, height=1.0)
    for number, one in enumerate(sorted_images):
        asking = one.decision.probabilities[:, PERSON]
        order = asking.argsort(descending=True, stable=True)
        for row, chosen in ((2 * number, order[:NUM_DRAWN]), (2 * number + 1, order.flip(0)[:NUM_DRAWN])):
            for panel, image in zip(panels[row], chosen.tolist(), strict=False):
                panel.imshow(one.pictures[image].numpy(), cmap="gray_r")
                action = int(one.decision.action[image])
                panel.set_title("person" if action == PERSON else str(action), fontsize=8)
    for panel in panels.flat:
        panel.axis("off")
    save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> list[Triage]:
    """Read the arguments, run, print and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the figure")
    parser.add_argument("--calibrate", type=int, default=400, help="digits to calibrate on")
    parser.add_argument("--shown", type=int, default=150, help="images of each kind to decide about")
    parser.add_argument(
        "--at-most", type=float, default=0.05, help="largest share of familiar images to treat differently"
    )
    chosen = parser.parse_args(argv)
    print(
        f"100 models look at {chosen.calibrate} digits to set the dial, then at {2 * chosen.shown} images ...",
        flush=True,
    )
    found, sorted_images = run(chosen.calibrate, chosen.shown, chosen.at_most)
    print_table(found, sorted_images)
    draw(sorted_images, chosen.out / "image-triage.png")
    print(f"figure: {chosen.out / 'image-triage.png'}")
    return sorted_images


if __name__ == "__main__":
    main()
