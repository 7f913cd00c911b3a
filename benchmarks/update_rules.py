"""What the three ways to add up regret do: asking for help on digits and clothes, with the package's own belief.

python -m benchmarks.update_rules [--iterations 100]     some minutes
"""

from __future__ import annotations

import argparse

from torch import Tensor

from cautious import RewardEnsemble, solve_bandit
from cautious.types import Regime, Update
from cautious_paper.experiments.store import provenance_line
from cautious_paper.worlds.data import load_images

HELP = 10
LEVELS = ["1-of-20", "1-of-10", "5-of-10", "10-of-10"]


def asked(policy: Tensor) -> str:
    """Mean probability of help by level, and the share of states where it is the most likely action, in percent."""
    probability = 100 * policy[..., HELP].mean(dim=(1, 2))
    share = 100 * (policy.argmax(dim=-1) == HELP).double().mean(dim=(1, 2))
    return "   ".join(f"{mean:5.2f} ({most:5.2f})" for mean, most in zip(probability, share, strict=True))


def main() -> None:
    """Print a line for each update, regime and set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    belief = RewardEnsemble.load("ask-for-help")
    print(provenance_line())
    print(
        f"{belief.num_models} networks, T = {options.iterations}, three runs; help, mean probability (share of states), %"
    )
    print(f"{'':52}{'            '.join(LEVELS)}")
    for name in ("digits", "fashion"):
        rewards = belief.rewards(load_images(name, "test").images)
        for regime in Regime:
            for update in Update:
                solution = solve_bandit(
                    rewards, LEVELS, regime=regime, update=update, num_runs=3, num_iterations=options.iterations
                )
                print(f"  {f'{name}, {regime}, {update}':<46}{asked(solution.policy)}", flush=True)


if __name__ == "__main__":
    main()
