"""A cluster that is named: `cluster.clusters` on a real Slurm with accounting."""

import subprocess
from pathlib import Path

import pytest

from sad_hpc.launch.records import load_records
from sad_hpc.launch.slurm import largest_array, restarts, sacct, squeue
from tests.cluster.pipeline import Pipeline

pytestmark = pytest.mark.cluster


@pytest.fixture
def named(dev_cluster: dict[str, str], tmp_path: Path) -> Pipeline:
    """A pipeline whose cluster has the name that accounting knows."""
    command = ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=Cluster"]
    name = subprocess.check_output(command, env=dev_cluster, text=True).strip()
    return Pipeline(dev_cluster, tmp_path, f"cluster.clusters={name}")


def test_all_stages_run_on_a_named_cluster(
    named: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running training requeues itself there."""
    process = named.launch("--wait")
    named.wait_until_half_done("pretrain")
    job = named.job("pretrain")
    subprocess.run(["scancel", "--signal=USR2", job], env=named.env, check=True)
    assert "table:" in named.finish(process)
    records = load_records(named.run).values()
    [cluster] = {record.cluster for record in records}
    assert cluster is not None and named.job("pretrain") == job
    assert "Restarts=1" in named.shown("pretrain")
    monkeypatch.setenv("SLURM_CONF", named.env["SLURM_CONF"])
    ids = {record.id for record in records}
    assert ids <= squeue(cluster).keys()
    assert {entry.state for entry in sacct(ids, cluster).values()} == {"COMPLETED"}
    assert largest_array(cluster) == largest_array()
    assert restarts(cluster) == restarts()
    asked = subprocess.run(
        ["scontrol", "--clusters=elsewhere", "show", "config"], env=named.env, capture_output=True
    )
    assert asked.returncode != 0  # Slurm reads the option
