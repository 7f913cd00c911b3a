"""Learning with checkpoints: the same bits after a kill as without one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_worlds import Bandit, Line
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from cautious import KofNPPO
from cautious.errors import InvalidInputError, OtherRunError
from cautious.rl.files import tensors_of

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "gamma": 0.9, "seed": 3, "device": "cpu"}
DOUBT = np.array([[[0.2, 1.0]], [[0.2, -0.4]]])


class ByPlace:
    def step_rewards(self, observations, actions, following):
        place = torch.as_tensor(np.asarray(following, dtype=np.float64))[:, 0]
        return torch.stack([place, -place])


def on_a_line(**more):
    return KofNPPO(
        "MlpPolicy", Line(), ByPlace(), "1-of-2", **{**SMALL, "learning_rate": lambda left: 0.01 * left, **more}
    )


def in_one_state(**more):
    return KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", **{**SMALL, **more})


class Killed(Exception):
    pass


class KillAt(BaseCallback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def _on_step(self):
        if self.num_timesteps >= self.step:
            raise Killed
        return True


def same(one, other):
    ours, theirs = tensors_of(one), tensors_of(other)
    return set(ours) == set(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("make", [on_a_line, in_one_state])
@pytest.mark.parametrize("step", [5, 33, 70, 127])
def test_a_run_that_is_killed_ends_with_the_same_bits(tmp_path, make, step):
    options = {"checkpoint_every": 32}
    whole = make().learn(128, checkpoint_dir=tmp_path / "whole", **options)
    with pytest.raises(Killed):
        make().learn(128, KillAt(step), checkpoint_dir=tmp_path / "killed", **options)
    again = make().learn(128, checkpoint_dir=tmp_path / "killed", **options)
    assert again.num_timesteps == 128
    assert same(whole, again)
    assert not same(whole, make())
    files = [{path.name for path in (tmp_path / folder).iterdir()} for folder in ("whole", "killed")]
    assert files[0] == files[1], "files are named by their content"
    third = make().learn(128, checkpoint_dir=tmp_path / "killed", **options)  # all is done
    assert same(whole, third)


def test_a_checkpoint_loads_as_an_agent_does(tmp_path):
    whole = in_one_state().learn(64, checkpoint_dir=tmp_path, checkpoint_every=32)
    assert torch.equal(KofNPPO.load(tmp_path, Bandit(), DOUBT).probabilities([0]), whole.probabilities([0]))


def test_schedules_span_the_whole_run(tmp_path):
    rates = []
    agent = in_one_state(learning_rate=lambda left: rates.append(left) or 1e-3 * left)
    agent.learn(128, checkpoint_dir=tmp_path, checkpoint_every=32)
    fell = [left for left in rates if left < 1]
    assert fell == sorted(fell, reverse=True)
    assert fell[-1] == 0
    assert len(set(fell)) == 8  # rollouts


def test_learning_goes_on_after_an_earlier_call(tmp_path):
    agent = in_one_state().learn(64)
    agent.learn(64, checkpoint_dir=tmp_path, checkpoint_every=32, reset_num_timesteps=False)
    assert agent.num_timesteps == 128


def test_other_runs_are_refused(tmp_path):
    in_one_state().learn(64, checkpoint_dir=tmp_path, checkpoint_every=32)
    for other, steps in ((in_one_state(), 96), (in_one_state(seed=4), 64), (in_one_state(n_epochs=3), 64)):
        with pytest.raises(OtherRunError, match="another agent, or of a run of other steps"):
            other.learn(steps, checkpoint_dir=tmp_path, checkpoint_every=32)


def test_what_cannot_be_repeated_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="seed"):
        in_one_state(seed=None).learn(16, checkpoint_dir=tmp_path)
    with pytest.raises(InvalidInputError, match="num_starts"):
        in_one_state(num_starts=2).learn(16, checkpoint_dir=tmp_path)
    normalised = VecNormalize(DummyVecEnv([Line]))
    with pytest.raises(InvalidInputError, match="VecNormalize"):
        KofNPPO("MlpPolicy", normalised, ByPlace(), "1-of-2", **SMALL).learn(16, checkpoint_dir=tmp_path)
