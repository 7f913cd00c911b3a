"""The image worlds as Gymnasium environments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import cautious_paper.worlds  # noqa: F401  (registers the ids)
from cautious.errors import InvalidInputError, MissingFileError
from cautious_paper.worlds.data import load_images
from cautious_paper.worlds.envs.image_env import ImageEnv

IDS = ("cautious/AskForHelp-v0", "cautious/NonObvious-v0", "cautious/HelpIfAvailable-v0")


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("world", ["familiar", "fashion"])
def test_gymnasium_accepts_it(name: str, world: str):
    check_env(gymnasium.make(name, world=world, render_mode="rgb_array").unwrapped)


@pytest.mark.parametrize("name", IDS)
def test_one_seed_gives_the_same_steps(name: str):
    def rollout() -> list[tuple[int, float]]:
        env = gymnasium.make(name)
        _, info = env.reset(seed=5)
        found = [(info["index"], 0.0)]
        for action in (0, 3, 9, 9):
            _, reward, _, _, info = env.step(action)
            found.append((info["index"], reward))
        return found

    assert rollout() == rollout()
    assert len({index for index, _ in rollout()}) > 1


def test_rewards_are_the_rules():
    digits = load_images("digits", "train")
    env = gymnasium.make("cautious/AskForHelp-v0").unwrapped
    for index in (0, 17, 256):
        label = int(digits.labels[index])
        for action, pays in ((label, 1.0), ((label + 1) % 10, 0.0), (10, 0.25)):
            image, info = env.reset(options={"index": index})
            assert np.array_equal(image, digits.images[index].numpy())
            assert info["label"] == label
            assert env.step(action)[1] == pays
    env = gymnasium.make("cautious/HelpIfAvailable-v0", world="fashion").unwrapped
    for available, pays in ((0, -11 / 9), (1, 0.05)):
        seen, _ = env.reset(options={"index": 0, "help_available": available})
        assert seen["help_available"] == available
        assert env.step(10)[1] == pytest.approx(pays)
    env = gymnasium.make("cautious/NonObvious-v0", world="fashion").unwrapped
    env.reset(seed=0)
    assert all(env.step(action)[1] == pytest.approx(-(action + 2) / 9) for action in range(10))


def test_the_unit_of_the_rewards_can_be_chosen():
    env = gymnasium.make("cautious/HelpIfAvailable-v0", world="fashion", unit="tenths").unwrapped
    for available, action, pays in ((0, 10, -11 / 90), (1, 10, 0.05), (1, 4, -6 / 90)):
        env.reset(options={"index": 0, "help_available": available})
        assert env.step(action)[1] == pytest.approx(pays)
    with pytest.raises(InvalidInputError, match="one unit"):
        gymnasium.make("cautious/AskForHelp-v0", unit="tenths")


def test_the_single_state_regime_stays_on_its_image():
    env = gymnasium.make("cautious/AskForHelp-v0", regime="single-state")
    first, _ = env.reset(seed=1)
    assert all(np.array_equal(env.step(action)[0], first) for action in range(11))


def test_it_draws_itself():
    env = gymnasium.make("cautious/AskForHelp-v0", render_mode="ansi")
    env.reset(seed=3)
    assert {len(line) for line in env.render().splitlines()} == {28}
    env = gymnasium.make("cautious/AskForHelp-v0", render_mode="rgb_array")
    env.reset(seed=3)
    assert env.render().shape == (224, 224, 3)


def test_mistakes_are_named(monkeypatch, tmp_path):
    with pytest.raises(InvalidInputError, match="'familiar', 'fashion', 'letters'"):
        gymnasium.make("cautious/AskForHelp-v0", world="novel")
    with pytest.raises(InvalidInputError, match="regime"):
        gymnasium.make("cautious/AskForHelp-v0", regime="some")
    with pytest.raises(InvalidInputError, match="render_mode"):
        ImageEnv(render_mode="human")
    env = gymnasium.make("cautious/NonObvious-v0").unwrapped
    with pytest.raises(InvalidInputError, match="counted from 0"):
        env.reset(options={"index": 10**6})
    env.reset(seed=0)
    with pytest.raises(InvalidInputError, match="0 to 9"):
        env.step(10)
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path))
    with pytest.raises(MissingFileError, match="letters"):
        gymnasium.make("cautious/AskForHelp-v0", world="letters")


def test_a_reward_for_help_where_there_is_none_is_refused():
    with pytest.raises(InvalidInputError, match="non-obvious has no action for help"):
        gymnasium.make("cautious/NonObvious-v0", help_reward=0.5)
