"""What others do about unfamiliar states, to compare k-of-N with, and the runner that compares.

policies       one function per rule: (world, rewards) -> policy [S, A]
step_rewards   the rules of one reward function, for worlds in tables and (`OneReward`) for agents that learn
novelty        how unlike the familiar a state is, by its features alone
comparing      `compare(problems, methods, seeds)`: a tidy frame with paired intervals
evaluating     `evaluate(table, label=, hold_out=)`: would caution have paid on a table; beside the rules of `refer_rules`
"""

from cautious.baselines.comparing import Problem, compare, measure
from cautious.baselines.novelty import distance_novelty, rnd_novelty
from cautious.baselines.policies import (
    broil,
    fixed_fallback,
    k_of_n,
    k_of_n_each_state,
    mean_minus_std,
    novelty_penalty,
    one_step_ranking,
    risk_neutral,
    single_model,
    thompson_sampling,
    worst_case,
)
from cautious.baselines.step_rewards import (
    OneReward,
    mean_reward,
    model_reward,
    novelty_reward,
    penalised_reward,
    ranked_reward,
)

__all__ = [
    "k_of_n",
    "k_of_n_each_state",
    "risk_neutral",
    "single_model",
    "mean_minus_std",
    "worst_case",
    "broil",
    "one_step_ranking",
    "thompson_sampling",
    "novelty_penalty",
    "fixed_fallback",
    "OneReward",
    "mean_reward",
    "model_reward",
    "penalised_reward",
    "ranked_reward",
    "novelty_reward",
    "distance_novelty",
    "rnd_novelty",
    "Problem",
    "compare",
    "measure",
]
