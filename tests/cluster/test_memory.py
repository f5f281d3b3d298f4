"""A training that Slurm kills for memory, on a real Slurm: it is resubmitted with twice as much."""

from pathlib import Path

import pytest

from sad_hpc.launch.records import load_records
from tests.cluster.pipeline import Pipeline

pytestmark = pytest.mark.cluster

SETTINGS = (
    # Slurm looks at what a job uses once a second.
    "cluster.sbatch={acctg-freq: task=1}",
    *("data.tasks=900", "evaluate.tasks=10"),
)


def test_a_killed_training_gets_twice_the_memory(
    dev_cluster: dict[str, str], tmp_path: Path
) -> None:
    pipeline = Pipeline(dev_cluster, tmp_path, *SETTINGS, "cluster.pretrain.memory_gb=0.5")
    pipeline.overrides += ["cluster.memory_retries=3"]
    log = pipeline.finish()
    record = load_records(pipeline.run)[pipeline.step("pretrain").title]
    assert record.kills >= 1 and record.memory_gb == 0.5 * 2**record.kills
    assert f"with {record.memory_gb:g} GB a rank, because job" in log
    megabytes = round(1024 * record.memory_gb)
    shown = f"{megabytes}M" if megabytes % 1024 else f"{megabytes // 1024}G"
    assert f"MinMemoryCPU={shown} " in pipeline.shown("pretrain")


@pytest.mark.stress
def test_memory_is_doubled_no_more_than_it_was_allowed(
    dev_cluster: dict[str, str], tmp_path: Path
) -> None:
    pipeline = Pipeline(dev_cluster, tmp_path, *SETTINGS, "cluster.pretrain.memory_gb=0.05")
    pipeline.overrides += ["cluster.memory_retries=1"]
    log = pipeline.finish(code=1)
    record = load_records(pipeline.run)[pipeline.step("pretrain").title]
    assert (record.kills, record.memory_gb) == (1, 0.1)
    assert log.count("resubmitting jobs") == 1
    assert "pretrain sad-seed0" in log.split("----")[-2]
