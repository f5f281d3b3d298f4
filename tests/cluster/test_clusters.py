"""A cluster that is named: `cluster.clusters` on a real Slurm with accounting."""

import subprocess
from pathlib import Path

import pytest

from sad_hpc.launch.records import load_records
from sad_hpc.launch.slurm import cancel, largest_array, restarts, sacct, squeue
from tests.cluster.pipeline import Pipeline

pytestmark = pytest.mark.cluster

SMALL = ["data.tasks=100", "pretrain.epochs=1", "pretrain.holdout_tasks=16"]
SMALL += ["evaluate.tasks=4", "evaluate.online_episodes=3"]


@pytest.fixture
def name(dev_cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The name that accounting has for the cluster."""
    monkeypatch.setenv("SLURM_CONF", dev_cluster["SLURM_CONF"])
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=Cluster"]
    return subprocess.check_output(command, text=True).strip()


@pytest.mark.stress
def test_all_stages_run_on_a_named_cluster(
    dev_cluster: dict[str, str], name: str, tmp_path: Path
) -> None:
    named = Pipeline(dev_cluster, tmp_path, *SMALL, f"cluster.clusters={name}")
    assert "table:" in named.finish(named.launch("--wait"))
    records = load_records(named.run).values()
    assert {record.cluster for record in records} == {name}
    ids = {record.id for record in records}
    assert ids <= squeue(name).keys()
    assert {entry.state for entry in sacct(ids, name).values()} == {"COMPLETED"}


def test_slurm_answers_about_a_named_cluster(name: str) -> None:
    command = ["sbatch", "--parsable", f"--clusters={name}", "--hold", "--wrap=true"]
    job = subprocess.check_output([*command, "--output=/dev/null"], text=True).split(";")[0]
    assert squeue(name)[job].is_blocked
    assert restarts(name)[job] == 0
    assert largest_array(name) == largest_array()
    cancel([job], name)
    assert squeue(name)[job].state == "CANCELLED"
