"""The notebook of examples/, run from top to bottom in a small size."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.patience import HUNG

NOTEBOOK = Path(__file__).parent.parent / "examples" / "own_environment.ipynb"
SMALL = {"TASKS": 120, "EPOCHS": 1, "TEST_TASKS": 3, "ONLINE_EPISODES": 10}


@pytest.fixture
def notebook() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_the_notebook_is_stored_without_outputs(notebook: nbformat.NotebookNode):
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.mark.slow
def test_the_notebook_ends_with_a_picture(
    notebook: nbformat.NotebookNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    (parameters,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", ()))
    assert re.findall(r"^(\w+) = \d+$", parameters.source, re.MULTILINE) == list(SMALL)
    parameters.source = "\n".join(f"{name} = {value}" for name, value in SMALL.items())
    (config,) = (c for c in notebook.cells if c.source.startswith("%%writefile windy.yaml"))
    assert "queries_per_task: 10" in config.source
    config.source = config.source.replace("queries_per_task: 10", "queries_per_task: 2")
    client = NotebookClient(notebook, timeout=HUNG, resources={"metadata": {"path": str(tmp_path)}})
    try:
        client.execute()
    finally:
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        printed = "".join(output.text for output in outputs if output.output_type == "stream")
        print(printed)  # shown by pytest where a cell has failed

    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    summary = (tmp_path / "runs/own_environment/results/windy/summary.csv").read_text()
    assert re.search(",SAD,online,", summary), summary
