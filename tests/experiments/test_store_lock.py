"""One run folder, one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from cautious.errors import CautiousError, FolderInUseError
from cautious_paper.experiments.driving.driving_experiment import experiment_at, run_driving
from cautious_paper.experiments.store import Store

HOLD = """
import sys, time
from cautious_paper.experiments.driving.driving_experiment import experiment_at
from cautious_paper.experiments.store import Store
with Store.create(sys.argv[1], "driving", experiment_at("smoke").as_settings()).locked():
    print("holding", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_until_the_first_is_gone_even_if_killed(tmp_path):
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "holding\n"
        with pytest.raises(FolderInUseError, match="another process"):
            run_driving(experiment_at("smoke"), tmp_path)
        assert issubclass(FolderInUseError, CautiousError)
        os.kill(first.pid, signal.SIGKILL)
        first.wait(timeout=10)
        time.sleep(0.1)
        with Store.open(tmp_path).locked():
            pass
    finally:
        first.kill()
        first.stdout.close()
        first.wait()
