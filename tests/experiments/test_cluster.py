"""On a real Ray cluster of two nodes with a worker each: the bits of one process, whoever dies on the way."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from cautious import (
    CautiousPolicy,
    KofN,
    Problem,
    TabularMDP,
    UncertainMDP,
    baselines,
    compare,
    fit_ensemble,
    solve_mdp,
)
from cautious.beliefs.networks.module import ModuleNetwork
from cautious.beliefs.training.loop import train
from cautious.beliefs.training.state import ModuleTrainingProblem, TrainingSettings
from cautious.errors import ClusterError, ClusterWarning, InvalidInputError
from cautious_paper.experiments.images.image_experiment import run_images
from cautious_paper.experiments.images.settings import image_experiment_at
from cautious_paper.experiments.store import Store
from cautious_paper.networks.driving_training import DrivingTrainingProblem
from cautious_paper.networks.image_training import ImageTrainingProblem
from cautious_paper.worlds.driving import driving_world

ray = pytest.importorskip("ray")
from ray_processes import processes, wait_until  # noqa: E402

from cautious.ray import rounding_fingerprint  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

STORE = 80 * 2**20
"""Bytes of shared memory a node may use: Ray asks for 75 MB at least."""


@pytest.fixture(scope="module")
def place():
    """A short folder for all that Ray writes (its sockets have long names), and an environment that says so."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")  # whatever token the user of this machine may have
        patch.delenv("RAY_ADDRESS", raising=False)
        yield folder
    assert wait_until(lambda: not processes(folder)), "Ray left processes behind"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def cluster(place):
    """A cluster of two nodes."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"num_cpus": 1, "include_dashboard": False, "object_store_memory": STORE})
    try:
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        yield cluster
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def address(cluster):
    return cluster.address


@pytest.fixture(scope="module")
def executor(address):
    """This process as a driver of that cluster."""
    from cautious.ray import RayExecutor

    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    yield RayExecutor()
    ray.shutdown()


def slow_network() -> DrivingTrainingProblem:
    """The driving network in shards of two at most, 0.06 s an epoch at least: time enough to interfere."""

    class Slow(DrivingTrainingProblem):
        shard_size = {"cpu": 2}  # noqa: RUF012

        def loss_and_gradient(self, parameters, batch):
            time.sleep(0.02)
            return super().loss_and_gradient(parameters, batch)

    return Slow(driving_world(novel=False))


SLOW = TrainingSettings(num_models=8, num_epochs=25, batch_size=800, learning_rate=1e-3, weight_decay=1e-5)


@pytest.fixture(scope="module")
def expected():
    """What those models are when this process trains them."""
    return train(DrivingTrainingProblem.familiar(0.5), SLOW)


def shards_in(folder: Path) -> dict[str, int]:
    """Finished shards, and when they were written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("models-*.safetensors")}


def test_both_nodes_work_on_one_thread_each(executor):
    def look(shared, piece, tell):
        time.sleep(0.5)
        return ray.get_runtime_context().get_node_id(), torch.get_num_threads(), shared + piece

    found, nodes = {}, set()
    for _ in range(10):  # one node may be ready long before the other
        found.update(executor.run_tasks(look, 10, range(4), torch.device("cpu")))
        nodes |= {outcome.value[0] for outcome in found.values()}
        if len(nodes) == 2:
            break
    assert len(nodes) == 2
    assert {number: outcome.value[2] for number, outcome in found.items()} == {n: 10 + n for n in range(4)}
    assert {outcome.value[1] for outcome in found.values()} == {1}
    assert all(outcome.seconds >= 0.5 for outcome in found.values())
    assert (executor.num_workers(torch.device("cpu")), executor.device("auto")) == (2, torch.device("cpu"))
    with pytest.raises(InvalidInputError, match="no machine of the cluster offers a GPU"):
        executor.device("cuda")
    with pytest.raises(InvalidInputError, match="choose 'auto', 'cpu' or 'cuda'"):
        executor.device("abacus")


def test_every_kind_of_network_has_the_same_bits(executor, tmp_path, generator):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(20, 28, 28), dtype=np.uint8)
    states, paid = torch.rand(30, 3, generator=generator), torch.rand(30, 2, generator=generator)
    quick = TrainingSettings(num_models=20, num_epochs=2, batch_size=16, learning_rate=1e-3)

    def factory():
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    lessons = {
        "image": ImageTrainingProblem(images, rng.random((20, 11))),
        "driving": DrivingTrainingProblem.familiar(0.5),
        "module": ModuleTrainingProblem(ModuleNetwork(factory, states), states, paid),
    }
    for name, problem in lessons.items():
        theirs = executor.train(problem, quick, device="cpu", checkpoint_dir=tmp_path / name)
        ours = train(problem, quick)
        assert torch.equal(theirs.models.parameters, ours.parameters), name
        assert torch.equal(theirs.models.losses, ours.losses), name
        assert theirs.hardware.startswith("Ray cluster, 2 workers; ")
        assert theirs.seconds > 0
    fitted = fit_ensemble(
        states, paid, network=factory, num_models=20, num_epochs=2, batch_size=16, progress=False, validation_fraction=0
    )
    assert torch.equal(fitted.parameters, theirs.models.parameters)


def test_a_worker_that_is_killed_costs_time_only(executor, place, expected, tmp_path):
    killed = []

    def kill_one(done: int, total: int) -> None:
        working = processes(place, "ray::run_piece")  # none just after a piece is finished: then the next time
        if done and working and not killed:
            killed.append(working[0])
            os.kill(killed[0], signal.SIGKILL)

    found = executor.train(slow_network(), SLOW, device="cpu", checkpoint_dir=tmp_path, progress=kill_one)
    assert killed
    assert not Path(f"/proc/{killed[0]}").exists()
    assert torch.equal(found.models.parameters, expected.parameters)
    assert torch.equal(found.models.losses, expected.losses)


DRIVER = """
import signal
import sys
from pathlib import Path

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
sys.path.insert(0, sys.argv[3])
from cautious.executors import open_executor
from test_cluster import SLOW, slow_network
with open_executor("ray", sys.argv[1]) as executor:
    executor.train(slow_network(), SLOW, device="cpu", checkpoint_dir=Path(sys.argv[2]))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_stopped_goes_on_from_what_was_finished(executor, address, place, expected, tmp_path, how):
    arguments = [sys.executable, "-c", DRIVER, address, str(tmp_path), str(Path(__file__).parent)]
    driver = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: shards_in(tmp_path) or driver.poll() is not None, 60)
        driver.send_signal(how)
        assert driver.wait(timeout=30) != 0
    finally:
        driver.kill()
        driver.wait()
    before = shards_in(tmp_path)
    assert 1 <= len(before) < 4
    assert wait_until(lambda: not processes(place, "ray::run_piece")), "its tasks end with it"
    told = []
    found = executor.train(
        DrivingTrainingProblem.familiar(0.5),
        SLOW,
        device="cpu",
        checkpoint_dir=tmp_path,
        progress=lambda *now: told.append(now),
    )
    after = shards_in(tmp_path)
    assert {name: after[name] for name in before} == before  # read, not trained or written again
    assert len(after) > len(before)
    assert told[0][0] == len(before) * SLOW.num_epochs  # where the bar begins
    assert torch.equal(found.models.parameters, expected.parameters)


def test_an_error_of_ours_comes_back_as_it_was_raised(executor, monkeypatch):
    def refuse(shared, piece, tell):
        raise InvalidInputError("piece=1 is refused.")

    with pytest.raises(InvalidInputError, match=r"^piece=1 is refused\.$"):
        list(executor.run_tasks(refuse, None, [1], torch.device("cpu")))
    monkeypatch.setattr("cautious.ray.package_versions", lambda: {"torch": "1.0"})
    with pytest.raises(ClusterError, match=r"has torch .*, not 1\.0; .*install the same versions"):
        list(executor.run_tasks(refuse, None, [1], torch.device("cpu")))


def test_a_worker_that_rounds_otherwise_is_named(executor, cluster):
    """A third node whose torch and oneDNN use other instructions, as on a machine with another kind of CPU."""
    other = cluster.add_node(
        num_cpus=1,
        object_store_memory=STORE,
        env_vars={"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    )
    found = []

    def everywhere(count: int) -> None:
        for _ in range(20):
            found.extend(now for _, now in executor.run_tasks(where, None, range(3), torch.device("cpu")))
            if len({outcome.value for outcome in found}) == count:
                break

    def where(shared, piece, tell):
        time.sleep(0.5)
        return ray.get_runtime_context().get_node_id()

    try:
        assert wait_until(lambda: ray.cluster_resources().get("CPU") == 3)
        with pytest.warns(ClusterWarning, match=rf"worker {platform.node()} .* rounds differently from this machine"):
            everywhere(3)
    finally:
        cluster.remove_node(other)
    assert wait_until(lambda: ray.cluster_resources().get("CPU") == 2)
    by_node = {outcome.value: outcome.rounding for outcome in found}
    assert sorted(by_node.values()).count(rounding_fingerprint("cpu")) == 2  # and no warning about these two


def test_one_that_fails_stops_those_beside_it(executor):
    from cautious.ray import RayExecutor

    own = RayExecutor()  # it is of no use afterwards

    def sleep(shared, piece, tell):
        time.sleep(8)

    def fail() -> None:
        assert wait_until(lambda: ray.available_resources().get("CPU", 0) < 2)
        raise InvalidInputError("enough")

    def long() -> None:
        list(own.run_tasks(sleep, None, range(2), torch.device("cpu")))

    with pytest.raises(InvalidInputError, match="enough"):
        own.run_all([long, fail])
    assert ray.available_resources().get("CPU", 0) < 2  # it was not waited for what is of no more use
    assert wait_until(lambda: ray.available_resources().get("CPU") == 2)


def plain(found):
    """What a stage says, without times and machines, and its checksum, which is of those too."""
    left_out = ("hardware", "date", "commit", "checksum")
    if not isinstance(found, dict):
        return found
    return {name: plain(part) for name, part in found.items() if name not in left_out and "seconds" not in name}


def assert_same_run(one: Store, other: Store) -> None:
    """The same stages with the same numbers, and every array with the same bits."""
    names = {path.relative_to(one.folder) for path in one.folder.rglob("*.json") if "checkpoints" not in str(path)}
    assert len(names) > 5
    for name in names - {Path("manifest.json")}:
        assert plain(json.loads((one.folder / name).read_text())) == plain(
            json.loads((other.folder / name).read_text())
        )
        if name.parent == Path() and one.folder.joinpath(name).with_suffix(".safetensors").exists():
            ours, theirs = one.arrays(name.stem), other.arrays(name.stem)
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[key].nan_to_num(-1), theirs[key].nan_to_num(-1)) for key in ours), name
    for path in one.folder.glob("belief*/models-*.safetensors"):
        assert path.read_bytes() == (other.folder / path.relative_to(one.folder)).read_bytes()
    assert plain(dict(one.manifest)) == plain(dict(other.manifest))


def test_ask_for_help_is_stored_with_the_same_bits(executor, smoke_run, tmp_path, monkeypatch):
    monkeypatch.delenv("CAUTIOUS_DATA", raising=False)
    monkeypatch.setenv("CAUTIOUS_CACHE", str(tmp_path / "cache"))
    here, told = smoke_run("ask-for-help"), set()
    there = run_images(
        image_experiment_at("ask-for-help", "smoke"),
        tmp_path / "run",
        executor=executor,
        progress=lambda title, done, total: told.add((title, done, total)),
    )
    assert_same_run(here, there)
    assert ("solving, help-0.25", 6, 6) in told


@pytest.mark.long
def test_reproduce_driving_on_a_cluster_twice(address, smoke_run, tmp_path):
    arguments = ["reproduce", "driving", "--scale", "smoke", "--repeats", "2", "--out", str(tmp_path)]
    call = [sys.executable, "-m", "cautious", *arguments, "--engine", "ray", "--address", address]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "seed 1: training" in done.stderr
    assert "how many runs reproduce them" in done.stdout
    assert_same_run(smoke_run("driving"), Store.open(tmp_path / "seed-0"))
    assert Store.open(tmp_path / "seed-1").manifest["settings"]["training"]["seed"] == 1
    ledger = json.loads((tmp_path / "repeats.json").read_text())
    assert ledger["seeds"] == [0, 1]
    bound = next(row for row in ledger["claims"] if row["claim"] == "TH1")
    assert (bound["shown"], bound["judged"], bound["runs"]["1"]["verdict"]) == (2, 2, "reproduced")


def test_a_belief_and_its_decisions_on_a_cluster(executor, monkeypatch):
    """`fit_ensemble(executor=...)`, and decisions about rows in several pieces: the bits of one process."""
    rng = np.random.default_rng(0)
    states, rewards = rng.normal(size=(60, 3)), rng.normal(size=(60, 2))
    options = {"num_models": 20, "num_epochs": 2, "batch_size": 16, "progress": False, "validation_fraction": 0}
    here = fit_ensemble(states, rewards, **options)
    there = fit_ensemble(states, rewards, executor=executor, **options)
    assert torch.equal(here.parameters, there.parameters)
    assert torch.equal(here.prior.heights, there.prior.heights)
    levels, rows = [KofN(1, 20), KofN(5, 10)], 3 * rng.normal(size=(130, 3))
    monkeypatch.setattr("cautious.policy.states.ROWS_PER_PIECE", 50)
    told = []
    policy = CautiousPolicy(there, levels[0])
    elsewhere = policy.decide_at(levels, rows, progress=lambda *now: told.append(now), executor=executor)
    for ours, theirs in zip(policy.decide_at(levels, rows), elsewhere, strict=True):
        for name in ("probabilities", "ordinary", "disagreement", "gap", "value"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name))
    assert told[0] == (0, 130)
    assert told[-1] == (130, 130)
    assert len(told) == 4


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::cautious.errors.FewModelsWarning")
@pytest.mark.parametrize("horizon", [6, None])
def test_an_uncertain_world_is_solved_alike_on_a_cluster(executor, horizon):
    """Searches from many starts on both nodes: the mixture and the bounds of one process, to the bit."""
    rng = np.random.default_rng(0)
    chance, pays = rng.dirichlet(np.full(8, 0.3), size=(6, 8, 3)), rng.normal(size=(6, 8, 3))
    world = UncertainMDP(chance, np.eye(8)[0], 0.9, horizon=horizon)
    here = solve_mdp(world, pays, "1-of-3", memory=horizon is not None)
    there = solve_mdp(world, pays, "1-of-3", memory=horizon is not None, executor=executor)
    assert here.record["num_policies_found"] > 2
    assert torch.equal(here.mixture.policies, there.mixture.policies)
    assert torch.equal(here.mixture.weights, there.mixture.weights)
    assert (here.upper, here.record) == (there.upper, there.record)
    assert torch.equal(here.returns(), there.returns())


def test_more_pieces_than_are_given_out_at_a_time(executor, monkeypatch):
    monkeypatch.setattr("cautious.ray.FEWEST_WAITING", 3)

    def double(shared, piece, tell):
        return 2 * piece

    found = executor.map(double, None, list(range(20)), device="cpu", title="doubling")
    assert dict(found) == {piece: 2 * piece for piece in range(20)}


def test_train_and_solve_with_ray_write_the_same_files(address, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", inputs=rng.normal(size=(40, 3)), rewards=rng.normal(size=(40, 2)))
    np.save(tmp_path / "new.npy", 3 * rng.normal(size=(30, 3)))
    small = ["--num-models", "20", "--num-epochs", "2"]
    for engine in (["--engine", "ray", "--address", address], []):
        out = tmp_path / ("there" if engine else "here")
        for arguments in (
            ["train", str(tmp_path / "data.npz"), *small, "--out", str(out / "belief")],
            [
                "solve",
                "--belief",
                str(out / "belief"),
                "--states",
                str(tmp_path / "new.npy"),
                "--out",
                str(out / "solved"),
            ],
        ):
            done = subprocess.run(
                [sys.executable, "-m", "cautious", *arguments, *engine], capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
    for name in (
        "belief/models-*.safetensors",
        "belief/ensemble.json",
        "solved/policy.safetensors",
        "solved/certificate.json",
    ):
        (ours,), (theirs,) = ((tmp_path / side).glob(name) for side in ("here", "there"))
        assert ours.read_bytes() == theirs.read_bytes(), name


@pytest.mark.long
def test_a_comparison_on_a_cluster_is_that_of_one_process(executor, tmp_path):
    """Problems of a seed and a method of one's own go to the workers; what was known is not computed again."""
    pytest.importorskip("pandas")

    def draw(seed: int) -> Problem:
        models = torch.randn(40, 3, 2, generator=torch.Generator().manual_seed(seed))
        moves = torch.eye(3)[:, None, :].expand(3, 2, 3).roll(1, dims=0)
        return Problem(TabularMDP(moves, [1.0, 0.0, 0.0], 0.9), models)

    def second(world, rewards):
        return torch.tensor([[0.0, 1.0]]).expand(3, 2)

    ask = partial(compare, {"drawn": draw}, {"k_of_n": baselines.k_of_n, "second": second}, 4, progress=False)
    here, there = ask(), ask(executor=executor, out=tmp_path)
    ours, theirs = (frame[frame.metric != "seconds"].reset_index(drop=True) for frame in (here, there))
    assert ours.equals(theirs)
    rows = (tmp_path / "rows.jsonl").read_text()
    assert len(rows.splitlines()) == 8
    assert ask(out=tmp_path).equals(there)
    assert (tmp_path / "rows.jsonl").read_text() == rows
