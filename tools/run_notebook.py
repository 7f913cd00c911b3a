"""Run docs/notebook.ipynb and keep what it shows: `python tools/run_notebook.py`.

The site and git hosts show the outputs that are stored in the notebook; a test runs it again and compares the texts.
"""

from __future__ import annotations

import copy
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


def executed(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """A copy with the outputs of a run."""
    fresh = copy.deepcopy(notebook)
    NotebookClient(fresh, timeout=300, kernel_name="python3").execute()
    for cell in fresh.cells:
        cell.metadata = {}  # times of the run: different each time
    return fresh


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """What each code cell printed or returned; pictures as their kind only, since their bytes depend on the fonts."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts = [output.get("text") or output["data"].get("text/plain", "") for output in cell.outputs]
            kinds = [kind for output in cell.outputs for kind in output.get("data", {}) if kind.startswith("image/")]
            found.append("\n".join([*("" if part.startswith("<Figure") else part for part in parts), *kinds]).strip())
    return found


if __name__ == "__main__":
    notebook = executed(nbformat.read(NOTEBOOK, as_version=4))
    nbformat.write(notebook, NOTEBOOK)
