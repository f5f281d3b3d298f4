"""Jobs that are told to stop, on a real Slurm: they queue themselves again and lose nothing."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from sad_hpc.experiment_file import load_experiment
from sad_hpc.files import read_json
from sad_hpc.launch.graph import Step, graph
from sad_hpc.run import Run

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/configs/tiny.yaml"
# Small blocks, batches and chunks: every stage lasts long enough to be hit in the middle.
OVERRIDES = [
    *("methods=[SAD]", "seeds=[0]", "data.tasks=9000", "data.block_tasks=10"),
    *("pretrain.batch_size=8", "pretrain.epochs=2", "pretrain.log_seconds=0.2"),
    *("evaluate.tasks=400", "evaluate.chunk_tasks=10", "evaluate.online_episodes=20"),
]
Env = dict[str, str]


def launch(env: Env, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        *(str(BIN / "sad-hpc"), "launch", str(TINY), *OVERRIDES, *arguments),
        *("--runs", str(folder / "runs"), "--results", str(folder / "results")),
    ]
    return subprocess.Popen(
        command, env=env, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(process: subprocess.Popen[str]) -> str:
    log, _ = process.communicate(timeout=400)
    assert process.returncode == 0, log
    return log


def steps_of(folder: Path) -> dict[str, Step]:
    run = Run(load_experiment(TINY, OVERRIDES), folder / "runs")
    return {step.stage: step for step in graph(run)}


def is_half_done(step: Step) -> bool:
    if step.stage == "collect":
        return len(list(step.folder.path.glob("train/shard-*.h5"))) > 50
    if step.stage == "evaluate":
        return len(list(step.folder.path.glob("chunks/*.h5"))) > 5
    progress = step.folder.progress
    return progress is not None and progress["done"] > progress["total"] / 3


def wait_until_half_done(step: Step) -> None:
    for _ in range(6000):
        if is_half_done(step):
            break
        time.sleep(0.02)
    assert is_half_done(step) and not step.complete, f"{step.title} cannot be hit"


def job_of(step: Step, folder: Path) -> str:
    return json.loads((folder / "runs/tiny/jobs.json").read_text())[step.title]["id"]


@pytest.fixture(scope="module")
def undisturbed(dev_cluster: Env, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(launch(dev_cluster, folder, "--cluster", "slurm", "--wait"))
    return folder


def assert_same_tables(folder: Path, other: Path) -> None:
    for name in ("summary.csv", "evaluations/sad-seed0.h5"):
        mine, theirs = (each / "results/tiny" / name for each in (folder, other))
        assert mine.read_bytes() == theirs.read_bytes(), name


SIGNAL, REQUEUE = ["scancel", "--signal=USR2"], ["scontrol", "requeue"]


@pytest.mark.parametrize(
    "stage, command",
    [
        ("pretrain", SIGNAL),
        pytest.param("collect", SIGNAL, marks=pytest.mark.stress),
        pytest.param("evaluate", SIGNAL, marks=pytest.mark.stress),
        pytest.param("collect", REQUEUE, marks=pytest.mark.stress),
        pytest.param("pretrain", REQUEUE, marks=pytest.mark.stress),
        pytest.param("evaluate", REQUEUE, marks=pytest.mark.stress),
    ],
)
def test_a_job_that_is_hit_queues_itself_again_and_ends_as_if_undisturbed(
    dev_cluster: Env, tmp_path: Path, undisturbed: Path, stage: str, command: list[str]
) -> None:
    process = launch(dev_cluster, tmp_path, "--cluster", "slurm", "--wait")
    step = steps_of(tmp_path)[stage]
    wait_until_half_done(step)
    job = job_of(step, tmp_path)
    subprocess.run([*command, job], env=dev_cluster, check=True)
    finish(process)
    shown = subprocess.check_output(["scontrol", "show", "job", job], env=dev_cluster, text=True)
    assert "Restarts=1" in shown
    if "scancel" in command:
        log = (tmp_path / f"runs/tiny/logs/{stage}/{job}_0_log.out").read_text()
        assert "all that was finished is saved" in log
    digests, weights = ([], [])
    for each in (tmp_path, undisturbed):
        steps = steps_of(each)
        digests.append(read_json(steps["collect"].folder.path / "done.json")["digests"])
        path = steps["pretrain"].folder.path / "weights.pt"
        weights.append(torch.load(path, weights_only=True)["state"])
    assert digests[0] == digests[1]
    for name, weight in weights[0].items():
        assert torch.allclose(weight, weights[1][name], rtol=0, atol=1e-6), name
    assert_same_tables(tmp_path, undisturbed)


@pytest.mark.stress
def test_a_stage_longer_than_its_time_limit_is_a_chain_of_jobs(
    dev_cluster: Env, tmp_path: Path
) -> None:
    """Two minutes, of which Slurm may take the last one and a half away with its early signal."""
    longer = ["pretrain.epochs=14", "cluster.pretrain.minutes=2"]
    finish(launch(dev_cluster, tmp_path, *longer, "--cluster", "slurm", "--wait"))
    run = Run(load_experiment(TINY, [*OVERRIDES, longer[0]]), tmp_path / "runs")
    step = next(step for step in graph(run) if step.stage == "pretrain")
    job = job_of(step, tmp_path)
    shown = subprocess.check_output(["scontrol", "show", "job", job], env=dev_cluster, text=True)
    assert int(shown.split("Restarts=")[1].split()[0]) >= 1
    lines = (step.folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 15))
