"""What a prior would do to the paper's image task: `python -m benchmarks.image_prior`, about two minutes on one core.

The belief that comes with the package ("ask for help", the paper's settings) with priors of several widths added to its models:
a prior is not trained against, so that the networks stay what they are. Familiar rows are the embedded digits of the
training; behaviour is measured on the embedded test digits and clothes.
"""

from __future__ import annotations

import numpy as np
import torch

from cautious import CautiousPolicy, RewardEnsemble
from cautious.beliefs.prior import Prior
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.image_tasks import ask_for_help_rewards

WIDTHS = (0.0, 0.75, 3.0)
LEVELS = ("1-of-20", "5-of-20", "10-of-10")
NUM_IMAGES = 500
HELP_REWARD = 0.25


def with_prior(belief: RewardEnsemble, images: torch.Tensor, rewards: torch.Tensor, width: float) -> RewardEnsemble:
    """The same networks with priors of this width, 0 for none; images [S, 28, 28] and rewards [S, A] are the familiar ones."""
    if not width:
        return belief
    rows = belief.network.as_states(images)[0].flatten(1)
    prior = Prior.fitted(rows, rewards, width=width, num_models=belief.num_models, seed=0)
    return RewardEnsemble(belief.network, belief.parameters, prior=prior)


def main() -> None:
    """Print the table."""
    print(provenance_line())
    belief = RewardEnsemble.load("ask-for-help")
    training = load_images("digits", "train")
    rewards = ask_for_help_rewards(training.labels, HELP_REWARD).float()
    shown = {name: load_images(name, "test") for name in ("digits", "fashion")}
    print("| prior | level | digits: correct | digits: asks | clothes: asks |\n|---|---|---|---|---|")
    for width in WIDTHS:
        wider = with_prior(belief, training.images, rewards, width)
        for level in LEVELS:
            decisions = {
                name: CautiousPolicy(wider, level).decide(found.images[:NUM_IMAGES]).probabilities
                for name, found in shown.items()
            }
            labels = shown["digits"].labels[:NUM_IMAGES]
            correct = float(decisions["digits"][np.arange(len(labels)), labels].mean())
            asks = [float(part[:, -1].mean()) for part in decisions.values()]
            print(f"| {width:g} | {level} | {correct:.1%} | {asks[0]:.1%} | {asks[1]:.1%} |", flush=True)


if __name__ == "__main__":
    main()
