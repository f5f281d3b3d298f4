"""The examples, installed, and run in a small size: one is launched, the others in one process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from sad_hpc import results
from tests.patience import HUNG

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = [
    "seeds=[0]", "data.tasks=120", "data.block_tasks=30",
    "data.queries_per_task=2", "data.episodes_per_action=1", "pretrain.epochs=1",
    "pretrain.holdout_tasks=40", "pretrain.batch_size=16", "evaluate.tasks=5",
    "evaluate.online_episodes=2", "evaluate.headline_episodes=1",
]  # fmt: skip
STAGES = """
import sys

from sad_hpc import api

run = api.load_run(*sys.argv[1:])
api.collect(run)
api.train(run)
api.evaluate(run)
api.table(run)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with the packages of examples/, which `pip install` puts beside ours."""
    place = tmp_path_factory.mktemp("packages")
    # A build leaves files beside its sources: it gets copies.
    sources = [
        shutil.copytree(package.parent, place / "sources" / package.parent.name)
        for package in sorted(EXAMPLES.glob("*/pyproject.toml"))
    ]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--upgrade", "--target", str(place), *map(str, sources)]
    subprocess.run(command, check=True, timeout=HUNG)
    return {**os.environ, "PYTHONPATH": str(place)}


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        ("hidden_beacon/config.yaml", ["SAD"]),
        ("contextual_bandit/config.yaml", ["SAD"]),
        ("random_lake/config.yaml", ["DIT", "SAD"]),
        ("cheetah_velocity/config.yaml", ["SAD"]),
        ("dark_minigrid/config.yaml", ["SAD"]),
        ("beacon_pictures/config.yaml", ["SAD"]),
        ("environments/pendulum.yaml", ["SAD"]),
    ],
    ids=lambda value: value.split("/")[-2] if isinstance(value, str) else "",
)
def test_an_example_goes_from_config_to_table(
    config: str, rows: list[str], installed: dict[str, str], tmp_path: Path
):
    is_launched = "hidden_beacon" in config
    start = ["-m", "sad_hpc.cli", "launch"] if is_launched else ["-c", STAGES]
    command = [sys.executable, *start, str(EXAMPLES / config), *SMALL]
    command += [f"rows=[{', '.join(rows)}]"]
    references = {"random"}
    if "random_lake" in config:  # tables of 2000 maps take time in every process
        command += ["task.vary={map_seed: {integers: [0, 99]}}"]
        references |= {"optimal", "Bayes-optimal"}
    if "contextual" in config:
        command += ["claims=[]", "task.horizon=10"]
        references |= {"optimal", "LinUCB", "Thompson"}
    if "cheetah" in config:
        command += ["task.horizon=20", "data.candidates=4"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=installed, capture_output=True, text=True, timeout=HUNG
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder,) = (tmp_path / "results").glob("*/summary.csv")
    assert set(pd.read_csv(folder)["row"]) >= {*rows, *references}
    table = results.load(folder.parent)
    assert set(table["mode"]) == {"offline", "online"}
