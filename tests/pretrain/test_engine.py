"""Where training may run: with the GPUs that Slurm gave, or on CPUs if none was asked for."""

import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from sad_hpc.errors import SadError
from sad_hpc.parallel.ranks import Process, has_slurm_gpus
from sad_hpc.pretrain.engine import join_process_group, on_first_rank


def test_gpus_that_torch_cannot_see_are_named(monkeypatch: pytest.MonkeyPatch):
    """Or a node with a broken driver would train for days on its CPUs, in another precision."""
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SadError, match="Slurm gave this job GPUs, but torch sees none on"):
        join_process_group(Process(0, 0, 1))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_GPUS_ON_NODE": "0"},
        {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": ""},
        {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "-1"},
    ],
    ids=["no Slurm", "no GPUs", "hidden", "hidden, too"],
)
def test_jobs_without_gpus_train_on_cpus(variables, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SLURM_GPUS_ON_NODE", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not has_slurm_gpus()


def test_a_failure_of_the_first_rank_names_its_file_on_every_rank(monkeypatch: pytest.MonkeyPatch):
    travelled = []
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(
        dist, "broadcast_object_list", lambda answer, src: travelled.append(pickle.dumps(answer))
    )
    with pytest.raises(FileNotFoundError) as here:
        on_first_rank(Path("/nowhere/checkpoint").stat)
    (_, there) = pickle.loads(travelled[0])
    for error in (here.value, there):
        assert str(error.filename) == "/nowhere/checkpoint"
        assert error.strerror == "No such file or directory"
    with pytest.raises(RuntimeError, match=r"OSError\('odd'"):  # as h5py raises them
        on_first_rank(_odd)


def _odd() -> None:
    raise OSError("odd")
