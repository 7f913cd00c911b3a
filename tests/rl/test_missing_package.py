"""Without Stable-Baselines3 everything else works, and KofNPPO says what to install."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = """
import sys
sys.modules["stable_baselines3"] = None
import cautious
assert cautious.driving_world().mdp.num_states == 784
try:
    cautious.KofNPPO
except cautious.CautiousError as error:
    print(type(error).__name__, error)
"""


def test_it_says_what_to_install():
    found = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("MissingPackageError KofNPPO needs Stable-Baselines3")
    assert "pip install 'cautious[rl]'" in found.stdout


def test_the_core_does_not_import_it():
    code = "import cautious, sys; cautious.solve_mdp; print('stable_baselines3' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
