"""The device of a training: the GPUs that Slurm gave, or CPUs if none was requested."""

import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from sad_hpc.errors import UserError
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.parallel.ranks import Process, torch_process, was_given_gpus
from sad_hpc.pretrain.engine import join_process_group, make_engine, on_first_rank
from sad_hpc.pretrain.learner import Learner
from sad_hpc.pretrain.trainer import take_step
from tests.pretrain.made_up import make_batch, make_examples
from tests.pretrain.test_learner import make_model

GPU_VARIABLES = "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES", "SUBMITIT_EXECUTOR"


@pytest.mark.parametrize(
    "variables",
    [{"SLURM_GPUS_ON_NODE": "2"}, {"SUBMITIT_EXECUTOR": "local", "CUDA_VISIBLE_DEVICES": "0"}],
    ids=["Slurm", "a local launch"],
)
def test_gpus_that_torch_cannot_see_are_named(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """Or a node with a broken driver would train for days on its CPUs, in another precision."""
    for name in GPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="this job has GPUs, but torch finds none on"):
        join_process_group(Process(0, 0, 1))


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_GPUS_ON_NODE": "0"},
        {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": ""},
        {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "-1"},
        {"SUBMITIT_EXECUTOR": "local", "CUDA_VISIBLE_DEVICES": ""},
    ],
    ids=["no Slurm", "no GPUs", "hidden", "hidden, too", "a local launch"],
)
def test_jobs_without_gpus_train_on_cpus(variables, monkeypatch: pytest.MonkeyPatch):
    for name in GPU_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not was_given_gpus()


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


# Where nearly all gradients are below Adam's epsilon, their scale decides the step.
@pytest.mark.parametrize("limit", [0.0, 1e-6])
@pytest.mark.parametrize("zero_stage", [0, 1])
def test_a_gradient_is_clipped_as_torch_does_it(limit: float, zero_stage: int):
    process = torch_process()
    join_process_group(process)
    batch = make_batch(make_examples("SAD", 1, False), 4)
    config = PretrainConfig(
        epochs=1, batch_size=4, gradient_clipping=limit, zero_stage=zero_stage, learning_rate=0.01
    )
    ours, plain = (Learner(make_model()) for _ in range(2))
    engine = make_engine(ours, config, process)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(3):
        _, norm = take_step(engine, batch, 0.01, limit)
        optimizer.zero_grad()
        plain(batch).backward()
        expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), limit or float("inf"))
        optimizer.step()
        if limit or zero_stage == 0:
            assert norm.item() == pytest.approx(expected.item(), rel=1e-4)
        assert expected > 0.1
    moved = (ours.flat - Learner(make_model()).flat).norm()
    assert (ours.flat - plain.flat).norm() < 0.02 * moved


def _odd() -> None:
    raise OSError("odd")
