"""The tutorial runs from its first cell to its last."""

from pathlib import Path

import pytest


def test_the_tutorial_runs():
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: the tutorial was not run")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: the tutorial was not run")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: the tutorial was not run")
    notebook = nbformat.read(Path(__file__).parent.parent / "tutorial.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 8 and all(cell.execution_count for cell in code)
