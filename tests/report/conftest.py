"""The modules beside `tools/publish_results.py`, which the published pages are made with, can be imported."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
