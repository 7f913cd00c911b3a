"""Agents' files that someone wrote by hand: with checksums that fit, and values that `save` never writes."""

from __future__ import annotations

import resource

import numpy as np
import pytest
import torch
from small_worlds import Bandit, Line

from cautious import KofNPPO
from cautious.errors import BadFileError, CautiousError
from cautious.io.arrays import FILES, load_json, load_tensors, save_json, save_tensors

pytest.importorskip("stable_baselines3")
DOUBT = np.array([[[0.2, 1.0]], [[0.2, -0.4]]])
SMALL = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "gamma": 0.9, "seed": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agent")
    KofNPPO("MlpPolicy", Bandit(), DOUBT, "1-of-2", policy_kwargs={"net_arch": [4]}, **SMALL).learn(16).save(folder)
    return folder


@pytest.fixture
def rewritten(saved, tmp_path):
    """The agent's folder with other settings or tensors; all checksums fit."""

    def rewrite(change=None, tensors=None):
        described = load_json(saved / "agent.json")
        (name,) = described.pop(FILES)
        content = load_tensors(saved / name)
        if change is not None:
            change(described)
        if tensors is not None:
            tensors(content)
        save_json(tmp_path / "agent.json", described, {name: save_tensors(tmp_path / name, content)})
        return tmp_path

    return rewrite


def load(folder, **given):
    return KofNPPO.load(folder, Bandit(), DOUBT, device="cpu", **given)


def test_what_was_saved_loads(rewritten):
    assert load(rewritten()).num_timesteps == 16


def test_a_file_that_names_no_classes_is_one_of_the_defaults(rewritten):
    """As `save` wrote them before agents had places to override."""
    folder = rewritten(lambda described: [described.pop(name) for name in ("class", "mixture")])
    assert load(folder).num_timesteps == 16


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensorboard_log", "/tmp/elsewhere"),
        ("device", "cuda:7"),
        ("rollout_buffer_class", "os.system"),
        ("smoothing", 0),
        ("smoothing", "half"),
        ("num_starts", 0),
        ("random_stops", "no"),
        ("reward_scale", -1),
        ("n_steps", 0),
        ("n_steps", 2**31),
        ("n_steps", 8.5),
        ("n_steps", True),
        ("batch_size", -1),
        ("batch_size", None),
        ("n_epochs", "many"),
        ("gamma", 1),
        ("gamma", 10**400),
        ("gae_lambda", 2),
        ("ent_coef", [1]),
        ("max_grad_norm", None),
        ("use_sde", 1),
        ("seed", -1),
        ("seed", 2**40),
        ("learning_rate", "fast"),
        ("learning_rate", -1),
        ("clip_range", None),
        ("clip_range_vf", 0),
        ("normalize_advantage", 2),
    ],
)
def test_settings_that_save_never_writes_are_refused(rewritten, name, value):
    folder = rewritten(lambda described: described["settings"].update({name: value}))
    with pytest.raises(BadFileError, match=r"agent\.json: .*" + name + r"|not a complete JSON file"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy", "OtherPolicy"),
        ("policy", 3),
        ("policy_kwargs", {"net_arch": [2**30, 2**30]}),
        ("policy_kwargs", {"net_arch": [0]}),
        ("policy_kwargs", {"net_arch": {"pi": [4], "qf": [4]}}),
        ("policy_kwargs", {"unheard_of": 1}),
        ("policy_kwargs", {"optimizer_kwargs": {"lr": 1}}),
        ("policy_kwargs", {"features_extractor_kwargs": {"x": 1}}),
        ("policy_kwargs", []),
        ("level", "3-of-2"),
        ("level", 7),
        ("not_stored", "activation_fn"),
        ("num_timesteps", -1),
        ("num_timesteps", 10**30),
        ("num_models", 3),
        ("num_updates", "x"),
        ("spaces", ["Discrete(1)"]),
        ("class", 3),
        ("mixture", None),
        ("settings", None),
    ],
)
def test_entries_that_save_never_writes_are_refused(rewritten, name, value):
    with pytest.raises(BadFileError):
        load(rewritten(lambda described: described.update({name: value})))


@pytest.mark.parametrize("name", ["level", "settings", "policy_kwargs", "not_stored", "num_updates", "spaces"])
def test_entries_that_are_missing_are_named(rewritten, name):
    with pytest.raises(BadFileError, match=f"{name} is missing"):
        load(rewritten(lambda described: described.pop(name)))


def test_a_rollout_larger_than_a_gibibyte_is_made_only_for_who_asks(rewritten):
    folder = rewritten(lambda described: described["settings"].update(n_steps=2**27))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadFileError, match=r"n_steps=134217728 makes rollouts of .* GiB"):
        load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # kilobytes
    assert load(folder, n_steps=8).n_steps == 8


def spoilt(name, value):
    def change(tensors):
        tensors[name] = torch.full_like(tensors[name], value) if isinstance(value, float) else value

    return change


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy.action_net.weight", float("nan")),
        ("policy.action_net.bias", torch.zeros(7)),
        ("policy.extra", torch.zeros(2)),
        ("optimizer.0.exp_avg", float("inf")),
        ("optimizer.0.exp_avg_sq", -1.0),
        ("optimizer.0.exp_avg", torch.zeros(3, 3)),
        ("optimizer.99.exp_avg", torch.zeros(2)),
        ("optimizer.x.exp_avg", torch.zeros(2)),
        ("mixture.weights", 2.0),
        ("mixture.weights", torch.tensor([1.5, -0.5])),
        ("mixture.average", torch.zeros(2)),
        ("mixture.weights", torch.ones(1)),
        ("mixture.visits", -1.0),
        ("mixture.paid", torch.ones(2)),
        ("mixture.sums", torch.ones(2, dtype=torch.int64)),
        ("unheard.of", torch.zeros(2)),
    ],
)
def test_tensors_that_save_never_writes_are_refused(rewritten, name, value):
    with pytest.raises(BadFileError, match="does not fit the agent"):
        load(rewritten(tensors=spoilt(name, value)))


def test_settings_that_do_not_go_together_are_refused(rewritten):
    with pytest.raises(BadFileError, match="no agent can be made"):  # it is about continuous actions
        load(rewritten(lambda described: described["settings"].update(use_sde=True)))
    with pytest.raises(BadFileError, match="no agent can be made"):
        load(rewritten(lambda described: described["settings"].update(n_steps=1, batch_size=1)))


def test_a_class_of_the_callers_is_checked_as_well(saved, rewritten):
    from stable_baselines3.common.policies import ActorCriticPolicy

    class Own(ActorCriticPolicy):
        pass

    folder = rewritten(lambda described: described.update(policy=None))
    assert load(folder, policy=Own).num_timesteps == 16
    with pytest.raises(CautiousError, match="class of your own"):
        load(folder)
    folder = rewritten(lambda described: described.update(policy=None), spoilt("policy.value_net.bias", float("nan")))
    with pytest.raises(BadFileError, match="finite"):
        load(folder, policy=Own)


def test_exploration_that_depends_on_the_state_loads(tmp_path):
    """Its noise cannot be drawn where the network is laid out without memory."""

    class Pushes:
        def step_rewards(self, observations, actions, following):
            return torch.zeros(2, len(actions))

    agent = KofNPPO("MlpPolicy", Line(), Pushes(), "1-of-2", use_sde=True, **SMALL).learn(16)
    agent.save(tmp_path)
    again = KofNPPO.load(tmp_path, Line(), Pushes(), device="cpu")
    assert torch.equal(again.policy.log_std, agent.policy.log_std)
