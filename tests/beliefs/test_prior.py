"""The random prior: nothing near familiar rows, disagreement far from them, the same bits in any company."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cautious import CautiousPolicy, RewardEnsemble, fit_ensemble
from cautious.beliefs.diagnostics import BeliefWarning
from cautious.beliefs.networks.vector import deviations
from cautious.beliefs.prior import MOST_GROWTH, Prior
from cautious.errors import BadFileError, InvalidInputError
from cautious.io.arrays import load_json, save_json
from cautious.tables.files import read_table
from cautious.tables.learn import Missing, learn_log
from cautious.tables.schema import OutcomeColumns

QUICK = {"num_models": 24, "num_epochs": 40, "batch_size": 32, "progress": False}
ASK = 0.4


def clusters(random: np.random.Generator, count: int, num_features: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Two kinds of cases that features 0 and 1 tell apart; the others are noise."""
    kind = np.arange(count) % 2
    rows = random.normal(size=(count, num_features))
    rows[:, :2] += 4 * kind[:, None]
    return rows, np.column_stack([kind == 0, kind == 1, np.full(count, ASK)]).astype(float)


def asks(belief: RewardEnsemble, rows: np.ndarray) -> np.ndarray:
    return CautiousPolicy(belief, "1-of-20").decide(rows).probabilities[:, -1].numpy()


@pytest.fixture(scope="module")
def experience() -> tuple[np.ndarray, np.ndarray]:
    return clusters(np.random.default_rng(0), 160)


@pytest.fixture(scope="module")
def belief(experience) -> RewardEnsemble:
    return fit_ensemble(*experience, **QUICK)


@pytest.fixture(scope="module")
def plain(experience) -> RewardEnsemble:
    with pytest.warns(BeliefWarning, match="blind to novelty"):
        return fit_ensemble(*experience, prior=0, **QUICK)


@pytest.mark.parametrize("feature", range(4))
def test_help_is_asked_for_far_away_along_any_feature_and_not_where_familiar(belief, plain, feature):
    fresh, _ = clusters(np.random.default_rng(1), 60)
    far = fresh.copy()
    far[:, feature] += 12.0
    assert asks(belief, fresh).mean() < 0.05
    assert asks(belief, far).mean() > 0.95
    if feature > 1:  # noise as far as the networks know: they do not look at it
        assert asks(plain, far).mean() < 0.5


def test_help_is_asked_for_between_clusters_and_around_them():
    """The first picture of docs/concepts.md."""
    kind = np.arange(200) % 4
    random = np.random.default_rng(0)
    corners = np.column_stack([kind % 2, kind // 2])
    belief = fit_ensemble(
        corners + random.normal(size=(200, 2)) / 10, np.column_stack([np.eye(4)[kind], np.full(200, ASK)]), **QUICK
    )
    away = np.array([[0.5, 0.5], [0.5, 0.0], [1.0, 0.5], [-0.5, -0.5], [1.5, 0.5], [0.0, 1.8], [9.0, 1.0]])
    decision = CautiousPolicy(belief, "1-of-20").decide(away)
    assert decision.probabilities[:, 4].min() > 0.95
    assert decision.ordinary[1:, 4].mean() < 0.5
    assert asks(belief, corners + random.normal(size=(200, 2)) / 10).mean() < 0.05


def test_one_odd_feature_of_thirty_is_noticed():
    rows, rewards = clusters(np.random.default_rng(2), 200, num_features=30)
    belief = fit_ensemble(rows, rewards, **QUICK)
    fresh, _ = clusters(np.random.default_rng(3), 60, num_features=30)
    odd = fresh.copy()
    odd[np.arange(60), np.arange(60) % 28 + 2] += 8.0
    assert asks(belief, fresh).mean() < 0.05
    assert asks(belief, odd).mean() > 0.7


def test_rows_of_the_training_have_no_prior(belief, experience):
    rows, _ = experience
    growth = belief.prior.growth(belief.network.as_states(rows)[0])
    assert (growth == 0).float().mean() > 0.97
    assert growth.max() < 0.5


def test_distances_are_conditional_residuals_and_half_of_mahalanobis():
    """By hand, for two correlated features and rewards that say nothing: residual of x given y is (x - ρy) / √(1 - ρ²)."""
    random = np.random.default_rng(12)
    first, noise = random.normal(size=(2, 4000))
    rho = 0.8
    rows = torch.from_numpy(np.column_stack([first, rho * first + (1 - rho**2) ** 0.5 * noise]))
    prior = Prior.fitted(rows, torch.from_numpy(random.normal(size=(4000, 1))), width=1, num_models=2, seed=0)
    for x, y in ((3.0, 3.0), (3.0, -3.0), (0.0, 2.0)):
        residuals = ((x - rho * y) ** 2 + (y - rho * x) ** 2) / (1 - rho**2)
        mahalanobis = (x * x - 2 * rho * x * y + y * y) / (1 - rho**2)
        ours = (torch.tensor([x, y], dtype=torch.float64) @ prior.whitening.double()).square().sum()
        assert float(ours) == pytest.approx(residuals + mahalanobis / 4, rel=0.1)  # 2 % shrinkage, 1,000 rows


def test_a_row_whose_features_contradict_each_other_is_far():
    """Two features that go together: each value is common, the combination never was; one in which both are large was."""
    random = np.random.default_rng(13)
    common = random.normal(size=(300, 1))
    rows = common + 0.1 * random.normal(size=(300, 2))
    rewards = np.column_stack([rows[:, 0] > 0, rows[:, 0] <= 0, np.full(300, ASK)]).astype(float)
    growth = Prior.fitted(*(torch.from_numpy(part) for part in (rows, rewards)), width=1, num_models=2, seed=0).growth
    together, apart = growth(torch.tensor([[1.2, 1.2], [1.2, -1.2]], dtype=torch.float64))[:, 0]
    assert float(together) < 0.5
    assert float(apart) > 10


def test_a_mild_level_still_notices_what_is_like_nothing_seen(belief):
    """The prior grows faster than linearly: 16-of-20 ignores small doubts, and asks far away nonetheless."""
    fresh, _ = clusters(np.random.default_rng(1), 60)
    policy = CautiousPolicy(belief, "16-of-20")
    assert float(policy.decide(fresh).probabilities[:, -1].mean()) < 0.02
    assert float(policy.decide(fresh + np.array([0.0, 0.0, 12.0, 0.0])).probabilities[:, -1].mean()) > 0.95


def test_the_ordinary_policy_follows_the_networks_alone(belief):
    """Pairs of models have opposite priors, so that the mean over all of them has none."""
    far = np.full((1, 4), 30.0)
    networks = RewardEnsemble(belief.network, belief.parameters)
    rewards = belief.rewards(far, bounded=False)
    assert rewards.std(dim=0)[0, :2].min() > 5 * networks.rewards(far).std(dim=0)[0, :2].max()
    torch.testing.assert_close(rewards.mean(0), networks.rewards(far).mean(0), atol=1e-3, rtol=1e-3)


def test_an_action_that_always_paid_the_same_pays_it_anywhere(belief):
    rewards = belief.rewards(np.random.default_rng(4).normal(size=(50, 4)) * 20, bounded=False)
    assert (rewards[..., 2] - ASK).abs().max() < 0.1
    assert rewards[..., :2].std(dim=0).median() > 1


def test_bounded_rewards_stay_within_the_familiar_range_widened_by_its_length(belief):
    """Of rewards 0 and 1 from -1 to 2, however far away, from networks and prior together; near familiar rows as learned."""
    random = np.random.default_rng(4)
    for factor in (1.0, 20.0, 1e4):
        rows = random.normal(size=(200, 4)) * factor
        rewards = belief.rewards(rows)
        assert float(rewards[..., :2].min()) >= -1
        assert float(rewards[..., :2].max()) <= 2
    assert rewards[..., :2].std(dim=0).median() > 0.3, "and far away they use most of it"
    fresh, _ = clusters(np.random.default_rng(1), 60)
    unbounded, quiet = (
        belief.rewards(fresh, bounded=False),
        belief.prior.growth(belief.network.as_states(fresh)[0]) == 0,
    )
    same = (unbounded >= 0) & (unbounded <= 1) & quiet
    same[..., 2] = False  # help always paid the same: its range has no inside
    assert same.float().mean() > 0.2
    assert torch.equal(belief.rewards(fresh)[same], unbounded[same])


def correlations(belief: RewardEnsemble, rows: np.ndarray, action: int, bounded: bool) -> np.ndarray:
    """Of what the models say about rows, [B, B]."""
    return np.corrcoef(belief.rewards(rows, bounded=bounded)[..., action].numpy().T)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("noise", [0.02, 0.0])
def test_unlike_novelties_are_doubts_of_their_own_and_alike_ones_are_one(noise, bounded):
    """Four kinds one-hot, three more that were never seen, and each of those again with a little noise."""
    random = np.random.default_rng(1)
    kind = random.integers(0, 4, 400)
    rows = np.eye(7)[kind] + noise * random.normal(size=(400, 7))
    belief = fit_ensemble(
        rows, np.column_stack([0.2 * kind, 1 - 0.2 * kind]), num_models=100, num_epochs=20, progress=False
    )
    novel = np.eye(7)[4:]
    found = correlations(belief, np.concatenate([novel, novel + 0.03 * random.normal(size=(3, 7))]), 0, bounded)
    unlike, alike = found[:3, :3][np.triu_indices(3, 1)], found[:3, 3:].diagonal()
    assert abs(unlike.mean()) < 0.3  # three correlations of 100 models: deviation 0.06
    assert alike.min() > 0.8


def test_opposite_directions_are_two_doubts():
    rows = np.random.default_rng(3).normal(size=(200, 1))
    options = {"num_models": 100, "num_epochs": 5, "progress": False, "validation_fraction": 0}
    belief = fit_ensemble(rows, np.column_stack([rows[:, 0], -rows[:, 0]]), **options)
    found = correlations(belief, np.array([[-30.0], [-40.0], [30.0]]), 0, bounded=False)
    assert found[0, 1] > 0.95
    assert abs(found[0, 2]) < 0.4  # 100 models: deviation 0.1; networks extrapolate with a slope of their own


def test_heights_depend_on_the_seed_and_the_model_alone(experience):
    rows, rewards = (torch.from_numpy(part) for part in experience)
    few, many, others = (
        Prior.fitted(rows, rewards, width=8, num_models=count, seed=seed) for count, seed in ((3, 0), (20, 0), (20, 1))
    )
    assert torch.equal(few.heights, many.heights[:3])
    assert not torch.equal(others.heights, many.heights)
    assert torch.equal(many.heights[0::2], -many.heights[1::2])
    state = torch.random.get_rng_state()
    Prior.fitted(rows, rewards, width=8, num_models=3, seed=0)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_model_is_the_same_alone_and_among_others(experience, belief):
    alone = fit_ensemble(*experience, **QUICK | {"num_models": 2})
    rows = np.random.default_rng(5).normal(size=(130, 4)) * 5
    whole = belief.rewards(rows)
    assert torch.equal(alone.rewards(rows), whole[:2])
    assert torch.equal(belief.rewards(rows[:7]), whole[:, :7])
    assert torch.equal(belief.rewards(rows[100:101]), whole[:, 100:101])
    assert torch.equal(belief.on(rows).rewards_for([5, 0, 5]), whole[[5, 0, 5]])
    unbounded = belief.rewards(rows, bounded=False)
    assert torch.equal(belief.rewards(rows[3:4], bounded=False), unbounded[:, 3:4])


def test_saved_and_loaded_bit_by_bit(belief, tmp_path):
    rows = np.random.default_rng(6).normal(size=(40, 4)) * 5
    belief.save(tmp_path / "belief")
    again = RewardEnsemble.load(tmp_path / "belief")
    assert torch.equal(again.rewards(rows), belief.rewards(rows))
    assert again.settings["prior"] == again.prior.width == 0.75
    again.save(tmp_path / "twice")
    names = [{path.name for path in (tmp_path / folder).iterdir()} for folder in ("belief", "twice")]
    assert names[0] == names[1]
    policy = CautiousPolicy(again, "1-of-20")
    policy.save(tmp_path / "policy")
    loaded = CautiousPolicy.load(tmp_path / "policy")
    assert torch.equal(loaded.decide(rows).probabilities, policy.decide(rows).probabilities)


NEWER = ("doubt", "unfolding", "products", "familiar_range")


def test_files_of_earlier_versions_have_one_height_for_all_that_is_new(belief, experience):
    heights = torch.from_numpy(np.random.default_rng(0).normal(size=(24, 3))).float()
    tensors = {name: tensor for name, tensor in belief.prior.tensors().items() if name not in NEWER}
    earlier = Prior.read(0.75, tensors | {"heights": heights}, (24, 4, 3), "a file")
    rows = np.random.default_rng(6).normal(size=(40, 4)) * 5
    restored = RewardEnsemble(belief.network, belief.parameters, prior=earlier)
    growth = earlier.growth(belief.network.as_states(rows)[0])
    networks = RewardEnsemble(belief.network, belief.parameters).rewards(rows)
    assert torch.equal(restored.rewards(rows), networks + heights[:, None] * growth)
    assert torch.equal(restored.rewards(rows), restored.rewards(rows, bounded=False))
    assert set(earlier.tensors()) == set(tensors)


def test_files_of_earlier_versions_keep_their_linear_prior(belief, tmp_path):
    """They have no steepness: it was part of the heights, and the prior grew as d / q - 1."""
    belief.save(tmp_path)
    missing = ("steepness", *NEWER)
    tensors = {name: tensor for name, tensor in belief.prior.tensors().items() if name not in missing}
    tensors["heights"] = tensors["heights"][..., 0].contiguous()
    earlier = Prior.read(0.75, tensors, (24, 4, 3), "a file")
    rows = torch.from_numpy(np.random.default_rng(6).normal(size=(40, 4)) * 5).float()
    unusual = belief.prior.steepness * earlier.growth(rows)
    expected = (unusual * (1 + unusual) / 2).clamp(max=MOST_GROWTH)
    torch.testing.assert_close(belief.prior.growth(rows), expected)
    assert set(earlier.tensors()) == set(tensors)


def test_a_belief_without_a_prior_over_one_with_it_leaves_nothing_of_it(belief, plain, tmp_path):
    belief.save(tmp_path)
    plain.save(tmp_path)
    assert RewardEnsemble.load(tmp_path).prior is None
    assert not list(tmp_path.glob("prior*"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reach", torch.zeros(144, 3)),
        ("steepness", torch.zeros(3)),
        ("steepness", torch.ones(4)),
        ("heights", torch.full((24, 3), 1.0)),
        ("heights", torch.full((24, 3, 68), torch.nan)),
        ("familiar_range", torch.zeros(3)),
        ("products", torch.zeros(2, 4, 3)),
        ("centre", torch.zeros(5, dtype=torch.float64)),
        ("rows", torch.zeros(4)),
        ("tried", torch.zeros(144, 3, dtype=torch.bool)),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(belief, name, value):
    tensors = belief.prior.tensors() | {name: value}
    with pytest.raises(BadFileError, match="a file"):
        Prior.read(8.0, tensors, (24, 4, 3), "a file")


def test_a_width_in_a_file_must_be_one(belief, tmp_path):
    belief.save(tmp_path)
    found = load_json(tmp_path / "ensemble.json")
    for wrong in (-1, "wide", {"width": -1.0}, {"width": None}):
        save_json(tmp_path / "ensemble.json", found | {"prior": wrong})
        with pytest.raises(BadFileError, match="width"):
            RewardEnsemble.load(tmp_path)
    (prior,) = tmp_path.glob("prior-*")
    save_json(tmp_path / "ensemble.json", found)
    prior.write_bytes(prior.read_bytes()[:-8])
    with pytest.raises(BadFileError, match="prior-"):
        RewardEnsemble.load(tmp_path)


def test_files_without_a_prior_are_as_they_were(plain, tmp_path):
    """What `prior=0` writes has the entries of the versions before, so those read it and theirs are read."""
    plain.save(tmp_path)
    described = json.loads((tmp_path / "ensemble.json").read_text())
    assert "prior" not in described
    assert set(described["units"]) == {"shift", "scale", "reward"}
    del described["settings"]["prior"]
    save_json(tmp_path / "ensemble.json", {name: part for name, part in described.items() if name != "checksum"})
    rows = np.random.default_rng(7).normal(size=(20, 4)) * 3
    assert torch.equal(RewardEnsemble.load(tmp_path).rewards(rows), plain.rewards(rows))


def test_unfinished_work_fits_any_width_but_no_plain_ensemble(experience, tmp_path):
    """Networks never meet the prior, so another width goes on with them; without a prior, rewards have other units."""
    options = QUICK | {"num_models": 2, "num_epochs": 2}
    first = fit_ensemble(*experience, checkpoint_dir=tmp_path, **options)
    with pytest.raises(BadFileError, match="each action in units of its own"):
        fit_ensemble(*experience, prior=0, checkpoint_dir=tmp_path, **options)
    wider = fit_ensemble(*experience, prior=1.5, checkpoint_dir=tmp_path, **options)
    assert torch.equal(wider.parameters, first.parameters)
    assert torch.equal(wider.prior.doubt, 2 * first.prior.doubt)


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "wide", [1, 2], True])
def test_what_is_no_width_is_refused(experience, wrong):
    with pytest.raises(InvalidInputError, match="prior="):
        fit_ensemble(*experience, prior=wrong, **QUICK)


def test_an_action_is_in_doubt_where_it_was_never_tried(experience):
    """Logged by a policy: action 0 was only ever tried in the first kind of cases, action 1 in the second, help in both."""
    rows, rewards = experience
    logged = rewards.copy()
    first = rewards[:, 0] == 1
    logged[~first, 0] = np.nan
    logged[first, 1] = np.nan
    belief = fit_ensemble(rows, logged, **QUICK)
    spread = belief.rewards(rows[first], bounded=False).std(dim=0).mean(dim=0)
    assert spread[1] > 5 * spread[0]
    assert spread[2] < 0.05


def test_unknown_rewards_carry_no_weight(experience):
    rows, rewards = experience
    one_each = np.where(np.eye(3, dtype=bool)[np.random.default_rng(8).integers(3, size=len(rows))], rewards, np.nan)
    belief = fit_ensemble(rows, one_each, **QUICK)
    fresh, _ = clusters(np.random.default_rng(1), 60)
    assert belief.rewards(fresh).isfinite().all()
    assert asks(belief, fresh + 15.0).mean() > asks(belief, fresh).mean() + 0.4


def test_an_action_tried_three_times_is_not_certain():
    rewards = torch.full((100, 2), torch.nan)
    rewards[:, 0] = torch.arange(100.0) % 2
    rewards[:3, 1] = 0.7
    floor = deviations(rewards)[1]
    assert float(floor) == pytest.approx(float(rewards[~rewards.isnan()].std(correction=0)) / 3, rel=1e-5)
    rewards[:, 1] = 0.7
    assert float(deviations(rewards)[1]) < 0.005


def test_a_text_never_seen_is_novel(tmp_path):
    random = np.random.default_rng(9)
    lines = ["size,colour,left,right,ask"]
    for number in range(150):
        kind = number % 2
        lines.append(f"{random.normal() + 3 * kind:.3f},{('red', 'green', 'blue')[number % 3]},{1 - kind},{kind},{ASK}")
    (tmp_path / "log.csv").write_text("\n".join(lines))
    (tmp_path / "new.csv").write_text("size,colour\n0.1,red\n3.2,blue\n0.1,mauve\n3.2,mauve\n")
    outcome, table = OutcomeColumns(rewards=("left", "right", "ask")), read_table(tmp_path / "log.csv")
    learned, rewards = learn_log(table, outcome, (), Missing.LEAVE_OUT)
    belief = fit_ensemble(learned.states, rewards, **QUICK)
    known, unseen = asks(belief, learned.schema.states(read_table(tmp_path / "new.csv")).numpy()).reshape(2, 2)
    assert known.max() < 0.05
    assert unseen.min() > 0.9


def test_a_constant_feature_that_changes_is_novel(experience):
    rows, rewards = experience
    belief = fit_ensemble(np.column_stack([rows, np.full(len(rows), 7.0)]), rewards, **QUICK)
    fresh, _ = clusters(np.random.default_rng(1), 60)
    usual, changed = (np.column_stack([fresh, np.full(60, value)]) for value in (7.0, 12.0))
    assert asks(belief, usual).mean() < 0.05
    assert asks(belief, changed).mean() > 0.9


def test_a_kind_that_is_rare_but_known_is_familiar():
    """Thirty of a thousand rows: they lie less densely than the others, and are left alone all the same."""
    random = np.random.default_rng(12)

    def cases(count: int, rare: int) -> tuple[np.ndarray, np.ndarray]:
        kind = (np.arange(count) < rare).astype(int)
        rows = random.normal(size=(count, 4))
        rows[:, 0] += 9 * kind
        return rows, np.column_stack([kind == 0, kind == 1, np.full(count, ASK)]).astype(float)

    belief = fit_ensemble(*cases(1000, 30), **QUICK)
    rare, _ = cases(100, 100)
    assert asks(belief, rare).mean() < 0.25  # all of them, if one distance were usual everywhere
    assert asks(belief, rare + np.array([0, 8.0, 0, 0])).mean() > 0.8


def test_classes_that_come_in_turn_are_seen_as_new_by_their_own():
    """Five classes in turn: with every fifth row in one part, all of a class would be new at once, and nothing ever far."""
    random = np.random.default_rng(14)
    kind = np.arange(200) % 5
    rows = torch.from_numpy(20 * np.eye(5)[kind] + random.normal(size=(200, 5)))
    prior = Prior.fitted(rows, torch.from_numpy(np.eye(5)[kind]), width=1, num_models=2, seed=0)
    assert float(prior.growth(rows + 12.0).min()) > 5


def test_actions_that_were_tried_once_leave_the_usual_distances_of_the_others():
    """Eight actions that one row each knows: familiar rows stay familiar for the others."""
    random = np.random.default_rng(15)
    rows = torch.from_numpy(random.normal(size=(200, 14)))
    rewards = torch.full((200, 10), torch.nan, dtype=torch.float64)
    rewards[:, :2] = torch.from_numpy(random.normal(size=(200, 2)))
    rewards[torch.arange(8) * 20, torch.arange(2, 10)] = 1.0
    fresh = torch.from_numpy(random.normal(size=(100, 14)))
    growth = Prior.fitted(rows, rewards, width=1, num_models=2, seed=0).growth(fresh)
    assert float((growth[:, :2] > 0.5).double().mean()) < 0.1


def test_rows_that_repeat_leave_a_finite_reach():
    """All rows have twins: nothing is between them, and what differs from all is novel."""
    rows = np.repeat(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), 20, axis=0)
    rewards = np.column_stack([rows[:, 0], 1 - rows[:, 0], np.full(80, ASK)])
    belief = fit_ensemble(rows, rewards, **QUICK)
    assert belief.prior.reach.min() > 0
    assert asks(belief, rows[::20]).max() < 0.05
    assert asks(belief, np.array([[8.0, 0.0], [0.5, 9.0]])).min() > 0.9


def test_many_rows_and_long_rows_are_kept_small():
    random = np.random.default_rng(10)
    rows, rewards = torch.from_numpy(random.normal(size=(3000, 700))), torch.from_numpy(random.normal(size=(3000, 4)))
    prior = Prior.fitted(rows, rewards, width=1, num_models=2, seed=0)
    assert prior.rows.shape == (1000, 512)
    fresh = torch.from_numpy(random.normal(size=(200, 700)))
    assert (prior.growth(fresh) > 0).double().mean() < 0.05
    assert (prior.growth(2 * fresh) > 0).double().mean() > 0.95
    huge = prior.growth(torch.full((1, 700), 1e30))
    assert (huge == MOST_GROWTH).all()


class Doubled(nn.Module):
    """A user's module, with a shape of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, rows: Tensor) -> Tensor:
        return 2 * self.layers(rows)


def test_the_prior_wraps_any_module(experience, tmp_path):
    belief = fit_ensemble(*experience, network=Doubled, **QUICK | {"num_epochs": 120, "learning_rate": 0.01})
    fresh, _ = clusters(np.random.default_rng(1), 60)
    assert asks(belief, fresh).mean() < 0.1
    assert asks(belief, fresh + np.array([0, 0, 12.0, 0])).mean() > 0.9
    belief.save(tmp_path)
    again = RewardEnsemble.load(tmp_path, network=Doubled)
    assert torch.equal(again.rewards(fresh), belief.rewards(fresh))


def test_images_have_no_prior_unless_asked_for():
    random = np.random.default_rng(11)
    images = (random.random((40, 28, 28)) * 60).astype(np.uint8)
    images[::2, :, :14] += 150
    rewards = np.column_stack([np.arange(40) % 2, 1 - np.arange(40) % 2])
    options = {"num_models": 2, "num_epochs": 1, "batch_size": 20, "progress": False, "validation_fraction": 0}
    usual, wide = (fit_ensemble(images, rewards, prior=width, **options) for width in (None, 16))
    assert usual.prior is None
    assert torch.equal(usual.parameters, wide.parameters)
    inverted = 255 - images
    spread = [float(found.rewards(inverted).std(dim=0).mean()) for found in (usual, wide)]
    assert spread[1] > 3 * spread[0]


def test_the_same_on_another_device_object(belief):
    rows = np.full((3, 4), 9.0)
    assert torch.equal(belief.to("cpu").rewards(rows), belief.rewards(rows))
