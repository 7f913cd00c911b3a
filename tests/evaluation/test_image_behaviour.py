"""What the tables count, by hand."""

from __future__ import annotations

import pytest
import torch

from cautious_paper.evaluation.image_behaviour import behaviour, frequencies_by_label, mean_label_index, most_likely


def policy_of(*rows: dict[int, float]) -> torch.Tensor:
    policy = torch.zeros(len(rows), 11, dtype=torch.float64)
    for row, chances in enumerate(rows):
        for action, chance in chances.items():
            policy[row, action] = chance
    return policy


POLICY = policy_of({3: 0.6, 10: 0.4}, {10: 0.7, 5: 0.3}, {0: 1.0}, {9: 0.5, 10: 0.5})
LABELS = torch.tensor([3, 5, 1, 9])


def test_both_readings_of_frequency():
    found = behaviour(POLICY, 10, LABELS)
    assert float(found["help_probability"]) == pytest.approx((0.4 + 0.7 + 0 + 0.5) / 4)
    assert float(found["help_share"]) == pytest.approx(1 / 4)  # only the second image; the tie goes to the lower index
    assert float(found["correct_probability"]) == pytest.approx((0.6 + 0.3 + 0 + 0.5) / 4)
    assert float(found["correct_share"]) == pytest.approx(2 / 4)


def test_the_mean_index_leaves_help_out_or_counts_it_as_zero():
    found = behaviour(POLICY, 10)
    total = 3 * 0.6 + 5 * 0.3 + 0 * 1.0 + 9 * 0.5
    assert float(found["index"]) == pytest.approx(total / (0.6 + 0.3 + 1 + 0.5))
    assert float(found["index_help_as_zero"]) == pytest.approx(total / 4)
    assert "correct_share" not in found
    assert bool(mean_label_index(policy_of({10: 1.0}).mean(dim=0)).isnan())


def test_a_task_without_help_has_no_help_frequency():
    found = behaviour(POLICY[:, :10], None, LABELS)
    assert set(found) == {"index", "index_help_as_zero", "correct_probability", "correct_share"}


def test_batches_come_out_as_they_go_in():
    batch = POLICY.expand(2, 3, 4, 11)
    assert all(value.shape == (2, 3) for value in behaviour(batch, 10, LABELS).values())
    assert torch.equal(most_likely(batch).sum(dim=-1), torch.ones(2, 3, 4, dtype=torch.float64))


def test_frequencies_by_label():
    table = frequencies_by_label(POLICY, torch.tensor([0, 0, 2, 2]), 3)
    assert table.shape == (3, 11)
    assert table[0, 10] == pytest.approx((0.4 + 0.7) / 2)
    assert table[1].tolist() == [0] * 11
    assert table[2, 9] == pytest.approx(0.25)


def test_frequencies_by_label_are_the_same_on_any_number_of_threads(generator):
    labels = torch.randint(10, (1000,), generator=generator)
    greedy = most_likely(torch.rand(100, 1000, 11, generator=generator))
    before = torch.get_num_threads()
    try:
        found = []
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            found.append(frequencies_by_label(greedy, labels, 10))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)
