import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import torch

from sad_hpc.errors import CheckpointError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.pretrain.checkpoint import Checkpoints
from sad_hpc.pretrain.engine import deepspeed_config
from sad_hpc.pretrain.stage import pretrain
from sad_hpc.pretrain.trainer import learning_rate
from sad_hpc.storage.files import checksum
from sad_hpc.storage.run import Run
from tests.conftest import TINY, forget_rendezvous, with_data_of
from tests.patience import HUNG

pytestmark = pytest.mark.faults

BIN = Path(sys.executable).parent
# Batches of 4 make 134 steps an epoch: time enough to be killed between two checkpoints.
OVERRIDES = ["pretrain.batch_size=4", "pretrain.epochs=3", "pretrain.checkpoint_minutes=0.0"]


def command(run: Run, *overrides: str, ranks: int = 1, method: str = "SAD") -> list[str]:
    launcher = [str(BIN / "mpiexec"), "-n", str(ranks)] if ranks > 1 else []
    stage = [str(BIN / "sad-hpc"), "pretrain", str(TINY), *OVERRIDES, *overrides]
    return [*launcher, *stage, "--runs", str(run.runs), "--row", method, "--seed", "0"]


def train(run: Run, *overrides: str, ranks: int = 1, method: str = "SAD") -> None:
    """Train a run of these overrides; more than one rank by the command."""
    if ranks == 1:  # in this process, since the imports of another one take longer than a training
        pretrain(run, method, 0)
        forget_rendezvous()
        return
    stage = command(run, *overrides, ranks=ranks, method=method)
    done = subprocess.run(stage, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def make_run(tiny_run: Run, tmp_path_factory: pytest.TempPathFactory):
    """A run with the tiny dataset, in a folder of its own."""

    def make(*overrides: str) -> Run:
        experiment = load_experiment(TINY, [*OVERRIDES, *overrides])
        return with_data_of(tiny_run, Run(experiment, tmp_path_factory.mktemp("r")))

    return make


@pytest.fixture(scope="module")
def undisturbed(make_run) -> Run:
    run = make_run()
    train(run)
    return run


def weights(run: Run, method: str = "SAD") -> dict[str, torch.Tensor]:
    content = torch.load(run.checkpoint(method, 0).path / "weights.pt", weights_only=True)
    return content["state"]


def metrics(run: Run, method: str = "SAD") -> list[dict[str, float]]:
    path = run.checkpoint(method, 0).path / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_same_weights(run: Run, other: Run) -> None:
    for name, weight in weights(run).items():
        assert torch.allclose(weight, weights(other)[name], rtol=0, atol=1e-6), name


def assert_same_losses(run: Run, other: Run, tolerance: float = 1e-6) -> None:
    for mine, theirs in zip(metrics(run), metrics(other), strict=True):
        for key in ("epoch", "step", "train_loss", "holdout_loss"):
            assert mine[key] == pytest.approx(theirs[key], abs=tolerance), key


def test_training_leaves_metrics_weights_and_a_marker(undisturbed: Run):
    folder = undisturbed.checkpoint("SAD", 0)
    assert [line["epoch"] for line in metrics(undisturbed)] == [1, 2, 3]
    assert folder.done is not None
    assert folder.done["holdout_loss"] == metrics(undisturbed)[-1]["holdout_loss"]
    assert list((folder.path / "tensorboard").iterdir())
    assert metrics(undisturbed)[-1]["train_loss"] < metrics(undisturbed)[0]["train_loss"]


def train_and_be_killed(run: Run, *overrides: str, ranks: int = 1) -> None:
    """Trains until there is a checkpoint inside of an epoch."""
    index = run.checkpoint("SAD", 0).path / "state/checkpoints.json"
    process = subprocess.Popen(
        command(run, *overrides, ranks=ranks),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    step = 0
    while process.poll() is None and step % 134 == 0:
        time.sleep(0.002)
        if index.exists():
            step = int(json.loads(index.read_text())[0]["tag"].removeprefix("step-"))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert run.checkpoint("SAD", 0).done is None, "it was killed too late to test anything"
    assert step % 134, "it was killed at the end of an epoch"


def test_killed_training_goes_on_to_the_same_end(make_run, undisturbed: Run):
    run = make_run()
    train_and_be_killed(run)
    train(run)
    assert_same_weights(run, undisturbed)
    assert_same_losses(run, undisturbed)


@pytest.mark.slow
def test_killed_training_with_normuon_goes_on_to_the_same_end_on_two_ranks(make_run):
    # A small rate: larger ones amplify the rounding of sums, which depends on ranks and processor.
    overrides = "pretrain.optimizer=normuon", "pretrain.matrix_rate=0.001", "model.dropout=0.0"
    alone, killed = make_run(*overrides), make_run(*overrides)
    train(alone, *overrides)
    train_and_be_killed(killed, *overrides)
    train(killed, *overrides, ranks=2)
    assert killed.checkpoint("SAD", 0).done["ranks"] == 2
    assert_same_losses(killed, alone, tolerance=1e-3)


@pytest.mark.slow
def test_training_in_windows_goes_on_with_more_ranks(make_run):
    overrides = "pretrain.window_blocks=2", "model.dropout=0.0"
    alone, killed = make_run(*overrides), make_run(*overrides)
    train(alone, *overrides)
    train_and_be_killed(killed, *overrides, ranks=2)
    train(killed, *overrides, ranks=4)
    assert_same_losses(killed, alone, tolerance=1e-4)


@pytest.mark.slow
def test_training_on_two_ranks_goes_on_with_one(make_run, alone: Run):
    """The global batch and the order of samples stay."""
    run = make_run("model.dropout=0.0")
    train_and_be_killed(run, "model.dropout=0.0", ranks=2)
    train(run, "model.dropout=0.0")
    assert run.checkpoint("SAD", 0).done["ranks"] == 1
    assert_same_losses(run, alone, tolerance=1e-4)


@pytest.fixture(scope="module")
def alone(make_run) -> Run:
    """Trained on one rank without dropout, whose draws depend on the rank."""
    run = make_run("model.dropout=0.0")
    train(run, "model.dropout=0.0")
    return run


@pytest.mark.slow
def test_two_ranks_train_like_one_without_dropout(make_run, alone: Run):
    together = make_run("model.dropout=0.0")
    train(together, "model.dropout=0.0", ranks=2)
    assert together.checkpoint("SAD", 0).done["ranks"] == 2
    # Sums of gradients differ in rounding, which hundreds of steps amplify (most of all in key
    # biases, whose gradient is nothing but rounding): the losses stay close, not the weights.
    assert_same_losses(alone, together, tolerance=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2])
def test_sharded_optimizer_states_train_the_same_model(make_run, undisturbed: Run, stage: int):
    """ZeRO: one rank holds all shards, and rounds as without."""
    overrides = [f"pretrain.zero_stage={stage}", "pretrain.precision=fp32"]
    run = make_run(*overrides)
    train(run, *overrides)
    assert_same_losses(run, undisturbed, tolerance=1e-4)
    at_end, folder = weights(run), run.checkpoint("SAD", 0).path
    forget_the_end(folder)
    train(run, *overrides)
    for name, weight in weights(run).items():
        assert torch.allclose(weight, at_end[name], rtol=0, atol=1e-6), name


def forget_the_end(folder: Path) -> None:
    """Restore the state of a training that was killed after its last checkpoint but one."""
    (folder / "done.json").unlink()
    index = folder / "state/checkpoints.json"
    newest, older = json.loads(index.read_text())
    shutil.rmtree(folder / "state" / newest["tag"])
    assert (folder / "state" / older["tag"]).is_dir()


class Attack:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_that_would_run_code_is_refused(
    make_run, undisturbed: Run, tmp_path: Path
) -> None:
    run = make_run()
    source, folder = undisturbed.checkpoint("SAD", 0).path, run.checkpoint("SAD", 0).path
    shutil.copytree(source, folder)
    (folder / "done.json").unlink()
    index = folder / "state/checkpoints.json"
    entries = json.loads(index.read_text())
    name = "mp_rank_00_model_states.pt"
    path = folder / "state" / entries[0]["tag"] / name
    torch.save({"module": Attack(tmp_path / "attacked")}, path)
    entries[0]["files"][name] = checksum(path.read_bytes())
    index.write_text(json.dumps(entries))
    with pytest.raises(CheckpointError, match="other than tensors"):
        pretrain(run, "SAD", 0)
    assert not (tmp_path / "attacked").exists()


@pytest.mark.slow
def test_half_precision_trains_nearly_as_well(make_run, undisturbed: Run):
    run = make_run("pretrain.precision=bf16")
    train(run, "pretrain.precision=bf16")
    assert run.checkpoint("SAD", 0).done["precision"] == "bf16"
    assert all(weight.dtype == torch.float32 for weight in weights(run).values())
    assert_same_losses(run, undisturbed, tolerance=0.02)


@pytest.mark.slow
def test_the_kernel_trains_as_torch_does(make_run, alone: Run):
    run = make_run("model.dropout=0", "pretrain.kernel=torch")
    train(run, "model.dropout=0", "pretrain.kernel=torch")
    assert_same_losses(run, alone, tolerance=1e-5)


def test_training_again_does_nothing(undisturbed: Run):
    folder = undisturbed.checkpoint("SAD", 0).path
    before = (folder / "weights.pt").stat().st_mtime_ns
    train(undisturbed)
    assert (folder / "weights.pt").stat().st_mtime_ns == before


def test_a_checkpoint_of_another_model_is_refused(undisturbed: Run):
    folder = undisturbed.checkpoint("SAD", 0).path
    with pytest.raises(CheckpointError, match="another model"):
        Checkpoints(folder, "0" * 12, 1).newest(zero_stage=0, precision="fp32")


def test_an_index_that_cannot_be_read_is_no_missing_one(
    undisturbed: Run, monkeypatch: pytest.MonkeyPatch
):
    """Or a disk that fails for a moment would cost the whole training."""
    checkpoints = Checkpoints(undisturbed.checkpoint("SAD", 0).path, "0" * 12, 1)
    error = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr("sad_hpc.pretrain.checkpoint.parse_json", mock.Mock(side_effect=error))
    with pytest.raises(CheckpointError, match=r"cannot read .*checkpoints\.json"):
        checkpoints.newest(zero_stage=0, precision="fp32")


def test_a_sharded_optimizer_is_refused_on_another_number_of_ranks(undisturbed: Run):
    signature = undisturbed.experiment.pretrain_signature("SAD", 0)
    checkpoints = Checkpoints(undisturbed.checkpoint("SAD", 0).path, signature, 2)
    assert checkpoints.newest(zero_stage=0, precision="fp32")
    with pytest.raises(CheckpointError, match="saved by 1 ranks"):
        checkpoints.newest(zero_stage=1, precision="fp32")


def test_a_checkpoint_of_another_precision_is_refused(undisturbed: Run):
    """Its optimizer has other parts, which DeepSpeed would look for in vain."""
    signature = undisturbed.experiment.pretrain_signature("SAD", 0)
    checkpoints = Checkpoints(undisturbed.checkpoint("SAD", 0).path, signature, 1)
    with pytest.raises(CheckpointError, match="saved in fp32, but this job trains in bf16"):
        checkpoints.newest(zero_stage=0, precision="bf16")


def test_a_torn_checkpoint_gives_way_to_the_one_before(undisturbed: Run, tmp_path: Path):
    folder = undisturbed.checkpoint("SAD", 0).path
    shutil.copytree(folder / "state", tmp_path / "state")
    newest, older = json.loads((folder / "state/checkpoints.json").read_text())
    path = folder / "state" / newest["tag"] / "mp_rank_00_model_states.pt"
    content = path.read_bytes()

    signature = undisturbed.experiment.pretrain_signature("SAD", 0)
    checkpoints = Checkpoints(folder, signature, 1)
    assert checkpoints.newest(zero_stage=0, precision="fp32") == newest["tag"]
    try:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert checkpoints.newest(zero_stage=0, precision="fp32") == older["tag"]
        # Nor does it take the place of one that is whole, when the next one is saved.
        shutil.copytree(folder / "state" / older["tag"], folder / "state" / "tmp-step-99999999")
        checkpoints._publish("tmp-step-99999999", "step-99999999", "fp32")
        listed = json.loads((folder / "state/checkpoints.json").read_text())
        assert [entry["tag"] for entry in listed] == ["step-99999999", older["tag"]]
        assert (folder / "state" / older["tag"]).is_dir()
    finally:
        shutil.rmtree(folder / "state")
        shutil.copytree(tmp_path / "state", folder / "state")


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides, words",
    [
        (["data.seed=5"], "no dataset at"),
        (["pretrain.batch_size=3"], "does not divide over 2 ranks"),
    ],
)
def test_what_cannot_be_trained_is_one_line(make_run, overrides: list[str], words: str):
    done = subprocess.run(
        command(make_run(*overrides), *overrides, ranks=2), capture_output=True, text=True
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_dits_lambda_is_no_more_than_a_factor_of_the_loss(make_run):
    ends, losses = [], []
    for weight in ("dit.weight=1.0", "dit.weight=500.0"):
        overrides = (weight, "rows=[DIT]", "pretrain.epochs=1")
        run = make_run(*overrides)
        train(run, *overrides, method="DIT")
        ends.append(weights(run, "DIT"))
        losses.append(metrics(run, "DIT")[-1]["holdout_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    # In nats: the weights are divided out.  A prefix that shows an action gives it away.
    assert 1 < losses[0] < math.log(5)
    # Adam divides by the gradient's size.  Only its epsilon acts then, which shows where there is
    # next to no gradient: an entry or two of a matrix, and a bias of all keys, which changes no
    # attention.  134 steps may move a weight by 0.1.
    for name, weight in ends[0].items():
        if "query_key_value" not in name:
            assert torch.allclose(weight, ends[1][name], rtol=0, atol=1e-3), name


def test_the_cosine_schedule_falls_from_the_learning_rate_to_0():
    constant = PretrainConfig(epochs=1, learning_rate=0.5)
    cosine = PretrainConfig(epochs=1, learning_rate=0.5, schedule="cosine")
    assert {learning_rate(constant, step, 100) for step in (0, 30, 99)} == {0.5}
    made = [learning_rate(cosine, step, 100) for step in (0, 50, 100)]
    assert made == pytest.approx([0.5, 0.25, 0])


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_learning_rate_rises_in_the_warm_up(schedule: str):
    config = PretrainConfig(epochs=1, learning_rate=0.5, schedule=schedule, warmup=0.1)
    made = [learning_rate(config, step, 40) for step in range(5)]
    assert made == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5])
    at_end = learning_rate(config, 40, 40)
    assert at_end == pytest.approx(0.5 if schedule == "constant" else 0)


def test_deepspeeds_dictionary_follows_the_config():
    config = PretrainConfig(epochs=1, batch_size=64, zero_stage=1, gradient_clipping=0.5)
    made = deepspeed_config(config, world_size=4, on_gpu=True)
    assert made["train_batch_size"] == 64
    assert made["train_micro_batch_size_per_gpu"] == 16
    assert made["gradient_clipping"] == 0.5
    assert made["zero_optimization"] == {"stage": 1}
    assert made["bf16"] == {"enabled": True}
    assert deepspeed_config(config, 4, on_gpu=False)["bf16"] == {"enabled": False}
    with_muon = config.model_copy(update={"optimizer": "normuon", "zero_stage": 0})
    assert deepspeed_config(with_muon, 4, on_gpu=True)["bf16"] == {"enabled": False}
    # Plain gradients are clipped by us.
    plain = config.model_copy(update={"zero_stage": 0})
    assert deepspeed_config(plain, 4, on_gpu=False)["gradient_clipping"] == 0
    assert deepspeed_config(plain, 4, on_gpu=True)["gradient_clipping"] == 0.5
