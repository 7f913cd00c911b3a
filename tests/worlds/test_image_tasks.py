"""Reward rules, loss weights, noise and subsets of the image tasks, by hand."""

from __future__ import annotations

import pytest
import torch

from cautious.errors import InvalidInputError
from cautious_paper.worlds.image_tasks import (
    NO_DIGIT,
    TASKS,
    RewardUnit,
    ask_for_help_rewards,
    class_balanced_subset,
    help_if_available_rewards,
    image_task,
    index_loss_weights,
    non_obvious_rewards,
    perturbed,
)


def test_asking_for_help_always_pays_a_little():
    rewards = ask_for_help_rewards(torch.tensor([3, 0]))
    assert rewards.tolist() == [[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0.25], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.25]]
    assert ask_for_help_rewards(torch.tensor([3]), 0.5)[0, 10] == 0.5


def test_high_digits_gain_more_and_lose_more():
    rewards = non_obvious_rewards(torch.tensor([0, 9]))
    assert rewards[0, 0] == 1
    assert rewards[1, 9] == 10
    assert rewards[0, 9] == pytest.approx(-11 / 9)
    assert rewards[1, 0] == pytest.approx(-2 / 9)
    # "keeping the mean constant under a uniform digit distribution" (section 4): (a+1)/10 - 9/10 (a+2)/9 = -1/10
    means = non_obvious_rewards(torch.arange(10)).mean(dim=0)
    torch.testing.assert_close(means, torch.full((10,), -0.1, dtype=torch.float64), atol=1e-12, rtol=0)


def test_help_is_better_than_any_mistake_and_worse_than_any_right_answer_only_if_available():
    labels = torch.arange(10)
    available, unavailable = (help_if_available_rewards(labels, there) for there in (True, False))
    right = torch.eye(10, dtype=torch.bool)
    for rewards in (available, unavailable):
        assert torch.equal(rewards[:, :10], non_obvious_rewards(labels))
    assert bool((available[:, 10] == 0.05).all())
    assert float(available[:, :10][~right].max()) < 0.05 < float(available[:, :10][right].min())
    assert bool((unavailable[:, 10:] <= unavailable[:, :10]).all())
    assert unavailable[0, 10] == pytest.approx(-11 / 9)


def test_tenths_divide_every_reward_by_ten_but_that_of_available_help():
    rewards = non_obvious_rewards(torch.tensor([0, 9]), RewardUnit.TENTHS)
    assert rewards[0, :3].tolist() == pytest.approx([1 / 10, -3 / 90, -4 / 90])
    assert rewards[1].tolist() == pytest.approx([-(a + 2) / 90 for a in range(9)] + [1.0])
    labels = torch.tensor([3])
    there, not_there = (help_if_available_rewards(labels, bit, unit="tenths")[0] for bit in (True, False))
    assert (
        there[:10].tolist()
        == not_there[:10].tolist()
        == pytest.approx([-2 / 90, -3 / 90, -4 / 90, 4 / 10, -6 / 90, -7 / 90, -8 / 90, -9 / 90, -10 / 90, -11 / 90])
    )
    assert there[10] == 1 / 20
    assert not_there[10] == pytest.approx(-11 / 90)
    # "keeping the mean constant": a hundredth now; and help is worth half as much as naming a zero
    means = non_obvious_rewards(torch.arange(10), "tenths").mean(dim=0)
    torch.testing.assert_close(means, torch.full((10,), -0.01, dtype=torch.float64), atol=1e-12, rtol=0)
    assert help_if_available_rewards(labels, True, 0.2, "tenths")[0, 10] == 0.2


def test_a_unit_must_be_known_and_the_task_must_have_a_choice():
    labels = torch.tensor([3])
    with pytest.raises(InvalidInputError, match="'as-printed', 'tenths'"):
        non_obvious_rewards(labels, "hundredths")
    with pytest.raises(InvalidInputError, match="ask-for-help has its rewards in one unit"):
        image_task("ask-for-help").rewards(labels, unit="tenths")
    assert torch.equal(image_task("non-obvious").rewards(labels, unit="tenths"), non_obvious_rewards(labels) / 10)


def test_the_loss_weighs_labels_by_their_index_and_help_by_one():
    assert index_loss_weights(11).tolist() == pytest.approx(
        [1, 1 / 4, 1 / 9, 1 / 16, 1 / 25, 1 / 36, 1 / 49, 1 / 64, 1 / 81, 1 / 100, 1]
    )
    assert index_loss_weights(10)[9] == pytest.approx(0.01)
    assert TASKS["ask-for-help"].loss_weights.tolist() == [1] * 11
    assert TASKS["non-obvious"].loss_weights.shape == (10,)


def test_on_an_image_of_no_digit_every_label_is_wrong():
    nothing = torch.tensor([NO_DIGIT])
    assert ask_for_help_rewards(nothing)[0].tolist() == [0] * 10 + [0.25]
    assert float(non_obvious_rewards(nothing).max()) < 0


def test_a_task_knows_its_rule():
    labels = torch.tensor([4])
    assert torch.equal(image_task("data-extent").rewards(labels), ask_for_help_rewards(labels))
    assert torch.equal(image_task("non-obvious").rewards(labels), non_obvious_rewards(labels))
    task = image_task("help-if-available")
    assert torch.equal(task.rewards(labels, 0.2, True), help_if_available_rewards(labels, True, 0.2))
    assert torch.equal(task.rewards(labels, None, False), help_if_available_rewards(labels, False))
    with pytest.raises(InvalidInputError, match="'ask-for-help', 'non-obvious'"):
        image_task("driving")


def test_noise_is_white_and_drawn_once():
    clean = ask_for_help_rewards(torch.arange(2000) % 10)
    noisy = perturbed(clean, 0.1, seed=4)
    noise = noisy - clean
    assert torch.equal(noisy, perturbed(clean, 0.1, seed=4))
    assert not torch.equal(noisy, perturbed(clean, 0.1, seed=5))
    assert abs(float(noise.mean())) < 4 * 0.1 / 22_000**0.5
    assert float(noise.std()) == pytest.approx(0.1, rel=0.02)  # 22,000 draws: a deviation of 0.5 %


def test_a_subset_has_as_many_of_each_class():
    labels = torch.arange(600) % 10
    chosen = class_balanced_subset(labels, 0.1, seed=0)
    assert torch.bincount(labels[chosen]).tolist() == [6] * 10
    assert torch.equal(chosen, class_balanced_subset(labels, 0.1, seed=0))
    assert not torch.equal(chosen, class_balanced_subset(labels, 0.1, seed=1))
    assert torch.equal(class_balanced_subset(labels, 1.0, seed=0), torch.arange(600))
    for fraction in (0, -1, 1.5):
        with pytest.raises(InvalidInputError, match="fraction"):
            class_balanced_subset(labels, fraction, seed=0)
    with pytest.raises(InvalidInputError, match="leaves none"):
        class_balanced_subset(labels, 0.0001, seed=0)


def test_labels_out_of_range_are_refused():
    for labels in ([10], [-2], [0, 99]):
        with pytest.raises(InvalidInputError, match="0 to 9"):
            ask_for_help_rewards(torch.tensor(labels))
    with pytest.raises(InvalidInputError, match=r"\[S\]"):
        non_obvious_rewards(torch.zeros(2, 2))
