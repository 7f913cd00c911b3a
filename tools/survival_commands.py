"""Kill commands and learning at random instants, repeat them, and compare with what was never killed.

python tools/survival_commands.py --kills 20

`learn` is `KofNPPO.learn` with checkpoints: the same call is repeated until it comes to its end, and must then have the
same bits. `evaluate` likewise: the same command must come to the same files, all of which appear at its end. `calibrate`
writes nothing: what it reads must stay, and the next call must say the same. `solve` writes over the results of an earlier
call: the files must be those of one call, old or new. The exit status is 1 if anything else is found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from cautious import fit_ensemble
from cautious.io.arrays import load_json
from cautious_paper.experiments.store import provenance_line

LEARN = """
import sys
sys.path.insert(0, sys.argv[1])
from fuzz_kinds import Corridor, Pay
from cautious import KofNPPO
settings = {"n_steps": 64, "batch_size": 64, "n_epochs": 4, "gamma": 0.9, "seed": 0, "device": "cpu"}
agent = KofNPPO("MlpPolicy", Corridor(), Pay(), "1-of-2", **settings)
agent.learn(6400, checkpoint_dir=sys.argv[2], checkpoint_every=320)
"""
Files = dict[str, str]


def digests(folder: Path) -> Files:
    """Each file below a folder, with a digest of its content; not what a kill may leave (.NAME.*.part)."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.endswith(".part") for part in path.parts)
    }


def killed_at(call: list[str], seconds: float) -> bool:
    """Run a command and kill it after a while; whether it was still running."""
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return True
    return False


def timed(call: list[str]) -> tuple[float, str]:
    """Seconds of a command that is left alone, and what it says."""
    started = time.monotonic()
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    return time.monotonic() - started, done.stdout


def survive_learning(work: Path, kills: int, rng: random.Random) -> tuple[int, list[str]]:
    """Kill learning again and again, each time at a random instant; compare what it comes to."""
    call = [sys.executable, "-W", "ignore", "-c", LEARN, str(Path(__file__).parent)]
    seconds, _ = timed([*call, str(work / "whole")])
    expected, done, wrong, run = digests(work / "whole"), 0, [], 0
    while done < kills:
        folder, run = work / f"killed-{run}", run + 1
        while killed_at([*call, str(folder)], rng.uniform(0.4 * seconds, 1.05 * seconds)):
            done += 1
            found = digests(folder)
            if found and load_json(folder / "agent.json")["num_timesteps"] % 320:
                wrong.append(f"run {run}: a checkpoint amid a piece")
        wrong += [] if digests(folder) == expected else [f"run {run} differs"]
    return done, wrong


def survive_calibrate(work: Path, kills: int, rng: random.Random) -> tuple[int, list[str]]:
    """Kill `cautious calibrate`; nothing may change, and the next call says what the first said."""
    call = [
        sys.executable,
        "-m",
        "cautious",
        "calibrate",
        "--belief",
        str(work / "belief"),
        "--n",
        "4",
        "--states",
        str(work / "x.npy"),
    ]
    seconds, says = timed(call)
    expected, done, wrong = digests(work), 0, []
    while done < kills:
        done += killed_at(call, rng.uniform(0.0, seconds))
        wrong += [] if digests(work) == expected else [f"after kill {done}: files changed"]
    wrong += [] if timed(call)[1] == says else ["the next call says something else"]
    return done, wrong


def survive_solve(work: Path, kills: int, rng: random.Random) -> tuple[int, list[str]]:
    """Kill `cautious solve` over earlier results; the files are those of one call, and the certificate says so."""
    solve = [
        sys.executable,
        "-m",
        "cautious",
        "solve",
        "--belief",
        str(work / "belief"),
        "--states",
        str(work / "x.csv"),
    ]
    calls = [[*solve, "--level", level, "--out", str(work / "out")] for level in ("1-of-4", "4-of-4")]
    expected = []
    for call in calls:
        seconds, _ = timed(call)
        expected.append(digests(work / "out"))
    done, wrong, tries = 0, [], 0
    while done < kills:
        tries += 1
        done += killed_at(calls[tries % 2], rng.uniform(0.7 * seconds, 1.05 * seconds))
        wrong += [] if digests(work / "out") in expected else [f"after kill {done}: files of two calls"]
        listed = json.loads((work / "out/certificate.json").read_text())["files"]
        wrong += [] if set(listed) == {"policy.safetensors", "decisions.csv"} else ["the certificate lists other files"]
    return done, wrong


def survive_evaluate(work: Path, kills: int, rng: random.Random) -> tuple[int, list[str]]:
    """Kill `cautious evaluate` again and again, each time at a random instant; compare what it comes to."""
    draws = np.random.default_rng(0)
    kinds = np.repeat(["a", "b", "c", "d"], 40)
    x = np.repeat([0.0, 2.0, 4.0, 6.0], 40) + draws.standard_normal(160)
    with (work / "log.csv").open("w", encoding="utf-8") as file:
        file.write("x,y,kind\n")
        file.writelines(f"{a},{b},{kind}\n" for a, b, kind in zip(x, draws.standard_normal(160), kinds, strict=True))
    call = [
        sys.executable,
        "-m",
        "cautious",
        "evaluate",
        str(work / "log.csv"),
        "--label",
        "kind",
        "--hold-out",
        "kind",
    ]
    call += ["--num-models", "20", "--num-epochs", "40", "--out"]
    seconds, _ = timed([*call, str(work / "whole")])
    expected, done, wrong, run = digests(work / "whole"), 0, [], 0
    while done < kills:
        folder, run = work / f"killed-{run}", run + 1
        ended, before = False, done
        while not ended and done < kills:
            started = time.monotonic()
            ended = not killed_at([*call, str(folder)], rng.uniform(0.3 * seconds, 1.05 * seconds))
            done += not ended
            found = {name for name in digests(folder) if name.startswith("evaluation")}
            wrong += [] if found in (set(), set(expected)) else [f"run {run}: only {', '.join(found)} after a kill"]
        if not ended:
            timed([*call, str(folder)])
        elif done == before:  # a whole run: the machine may be more or less busy than before
            seconds = time.monotonic() - started
        wrong += [] if digests(folder) == expected else [f"run {run} differs"]
    return done, wrong


KINDS: dict[str, Callable[[Path, int, random.Random], tuple[int, list[str]]]] = {
    "KofNPPO.learn, with checkpoints": survive_learning,
    "cautious evaluate": survive_evaluate,
    "cautious calibrate": survive_calibrate,
    "cautious solve, over earlier results": survive_solve,
}


def main() -> None:
    """Kill, print the table, fail if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="*", choices=list(KINDS), default=list(KINDS), help="all, unless some are named"
    )
    arguments = parser.parse_args()
    print(f"{provenance_line()}\n")
    started, failures = time.perf_counter(), []
    print("| what is killed | kills | violations |\n|---|---|---|", flush=True)
    for name in arguments.only:
        survive = KINDS[name]
        with tempfile.TemporaryDirectory() as folder:
            work, rng = Path(folder), np.random.default_rng(arguments.seed)
            states, rewards = rng.standard_normal((300, 2)), rng.random((300, 3))
            named = {"a": states[:, 0], "b": states[:, 1]}
            belief = fit_ensemble(named, rewards, num_models=8, num_epochs=2, validation_fraction=0, progress=False)
            belief.save(work / "belief")
            np.save(work / "x.npy", states)
            np.savetxt(work / "x.csv", states, delimiter=",", header="a,b", comments="")
            done, wrong = survive(work, arguments.kills, random.Random(arguments.seed))
        print(f"| {name} | {done} | {len(wrong) or 'none'} |", flush=True)
        failures += wrong
    print(f"seed {arguments.seed}, {time.perf_counter() - started:.0f} s")
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
