"""Cluster settings: lookup and validation."""

from pathlib import Path

import pytest

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import resolved
from sad_hpc.launch.cluster import FOLDER, ClusterConfig, load_cluster
from sad_hpc.launch.executor import sbatch_parameters


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_file_is_valid(path: Path) -> None:
    assert load_cluster(path.stem, []) == load_cluster(str(path), [])


def test_local_file_shows_the_defaults() -> None:
    assert load_cluster("local", []) == ClusterConfig()


def test_local_needs_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sad_hpc.launch.cluster.FOLDER", tmp_path)
    assert load_cluster("local", ["collect.ranks=3"]).collect.ranks == 3


def test_found_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_cluster("slurm", []) == load_cluster("slurm-cpu", [])


def test_fits_four_nodes_of_one_cpu_with_a_waiting_driver() -> None:
    config = load_cluster("slurm", [])
    for stage in ("collect", "pretrain", "evaluate", "aggregate"):
        resources = config.resources(stage)
        assert resources.ranks <= 3 and resources.cpus_per_rank == 1 and resources.gpus == 0


def test_what_only_slurm_knows_is_refused_without_it(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("{partition: cpu, account: lab}")
    with pytest.raises(ConfigError, match=r"partition, account would have no effect without Slurm"):
        load_cluster(str(site), [])
    assert load_cluster(str(site), ["executor=slurm"]).partition == "cpu"


def test_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"'slurp'; valid: local, slurm, slurm-cpu, slurm-gpu"):
        load_cluster("slurp", [])


def test_overrides() -> None:
    config = load_cluster("slurm", ["partition=a,b", "collect.nodes=2", "sbatch.constraint=ib"])
    assert (config.partition, config.collect.nodes) == ("a,b", 2)
    assert resolved(config)["sbatch"] == {"constraint": "ib"}


@pytest.mark.parametrize(
    "override",
    [
        'partition="cpu\\n#SBATCH --wrap=evil"',
        "partition=cpu;id",
        "partition=$(id)",
        "account='a b'",
        "qos=`id`",
        "mpi=pmi2 --wrap",
        'setup=["module load x\\nrm y"]',
        'sbatch.comment="x\\n#SBATCH --uid=0"',
        "sbatch.wrap=id",
        "sbatch.output=elsewhere",
        "sbatch.partition=x",
        "sbatch.exclusive=false",
        "sbatch={'a b': 1}",
        "evaluate.ranks=2",
        "collect.nodes=3",
        "collect.minutes=0",
        "collect.memory_gb=.inf",
        "collect.ranks=1" + 30 * "0",
        "collect.tasks=2",
    ],
)
def test_refused(override: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_cluster("slurm", [override])
    assert "\n" not in str(refusal.value)


def test_wrong_type_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"account: .*123"):
        load_cluster("slurm", ["account=123"])


def test_the_members_of_a_pack_share_its_gpu() -> None:
    config = load_cluster("slurm-gpu", ["pretrain.pack=8"])
    parameters = sbatch_parameters(config, "pretrain", "name")
    assert parameters["gpus_per_task"] == 1
    assert parameters["cpus_per_task"] == 8 * config.pretrain.cpus_per_rank
    for override in ("pretrain.gpus=2", "pretrain.ranks=2"):
        with pytest.raises(ConfigError, match="at most one GPU"):
            load_cluster("slurm-gpu", ["pretrain.pack=8", override])
