"""--dry-run: every submission script, on a machine without Slurm."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from sad_hpc.experiment.load import parse_experiment
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.launch.graph import graph
from sad_hpc.launch.pipeline import launch
from sad_hpc.storage.run import Run
from tests.launch.conftest import EXPERIMENT, FakeSlurm, complete, steps_of


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def scripts(run: Run, cluster: str, overrides: list[str]) -> dict[str, str]:
    config = load_cluster(cluster, overrides)
    assert (
        launch(run, Path("x.yaml"), ["data.tasks=900"], Path("results"), config, True, False) == 0
    )
    return {path.stem: path.read_text() for path in (run.path / "submit").glob("*.sh")}


def test_the_script_of_the_tables_may_replace_others(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    local = load_cluster("local", [])
    for replace in (False, True):
        assert launch(run, Path("x.yaml"), [], Path("r"), local, True, False, replace=replace) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "sad-hpc" in line]
        assert [line.endswith(" --replace") for line in lines] == [False] * 9 + [replace]


def test_the_last_line_counts_the_steps(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    complete(*steps_of(run, "collect"))
    scripts(run, "local", [])
    last = capsys.readouterr().out.splitlines()[-2:]
    counts = "9 steps (4 pretrain, 4 evaluate, 1 aggregate)"
    assert last == [
        f"# {counts}, scripts in {run.path / 'submit'}",
        "1 of 10 steps are complete and skipped",
    ]


def test_resources_and_dependencies(run: Run) -> None:
    overrides = ["partition=cpu", "account=lab", "collect.ranks=6", "collect.nodes=3", "mpi=pmix"]
    overrides += ["setup=[module load hdf5]", "hdf5_file_locking=false", "array_parallelism=2"]
    overrides += ["sbatch.constraint=ib", "collect.cpus_per_rank=2", "collect.memory_gb=3"]
    text = scripts(run, "slurm", overrides)
    assert len(text) == 7
    for script in text.values():
        for line in (
            "#SBATCH --partition=cpu",
            "#SBATCH --account=lab",
            "#SBATCH --constraint=ib",
            "export HDF5_USE_FILE_LOCKING=FALSE",
            "export PYTHONSAFEPATH=1",
            "module load hdf5",
        ):
            assert f"{line}\n" in script
    collect = text["collect"]
    assert "#SBATCH --ntasks=6\n" in collect and "#SBATCH --nodes=3\n" in collect
    assert "#SBATCH --cpus-per-task=2\n" in collect and "#SBATCH --mem-per-cpu=1536M\n" in collect
    assert "--mpi=pmix" in collect and "export OMP_NUM_THREADS=2\n" in collect
    assert "--dependency" not in collect
    assert "#SBATCH --dependency='afterok:<collect>'\n" in text["pretrain-sad-seed0"]
    assert "--mpi=none" in text["pretrain-sad-seed0"]
    assert "#SBATCH --array=0-3%2\n" in text["evaluate"]
    assert "--dependency='afterok:<collect>,afterany:<pretrain-sad-seed0>:" in text["evaluate"]
    assert "#SBATCH --dependency='afterok:<evaluate>'\n" in text["aggregate"]
    assert "#SBATCH --kill-on-invalid-dep=yes\n" in text["aggregate"]


def test_nodes_are_left_to_slurm(run: Run) -> None:
    text = scripts(run, "slurm", ["pretrain.ranks=2"])
    assert "--nodes" not in text["collect"] and "--nodes" not in text["pretrain-sad-seed0"]


def test_gpus(run: Run) -> None:
    text = scripts(run, "slurm-gpu", ["pretrain.ranks=4"])
    assert "#SBATCH --gpus-per-task=1\n" in text["pretrain-sad-seed0"]
    assert "--gpu-bind=none" in text["pretrain-sad-seed0"]
    assert "--gpu" not in text["collect"]


def test_a_stage_may_have_a_partition_of_its_own(run: Run) -> None:
    overrides = ["partition=cpu", "pretrain.sbatch={partition: gpu, exclusive: true}"]
    text = scripts(run, "slurm", overrides)
    assert "#SBATCH --partition=cpu\n" in text["collect"]
    training = text["pretrain-sad-seed0"]
    assert "#SBATCH --partition=gpu\n" in training and "#SBATCH --exclusive\n" in training
    assert training.count("--partition") == 1


def test_another_interpreter(run: Run) -> None:
    script = scripts(run, "slurm", ["python=/opt/venv/bin/python"])["collect"]
    assert "/opt/venv/bin/python -u -m submitit" in script and sys.executable not in script


def test_jobs_trust_whom_the_launcher_trusts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAD_HPC_TRUSTED_OWNERS", "alice,bob smith")
    assert (
        "export SAD_HPC_TRUSTED_OWNERS='alice,bob smith'\n" in scripts(run, "slurm", [])["collect"]
    )


def test_a_container(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    text = scripts(run, "slurm-gpu", ["container=an image.sif"])
    wrapped = f"apptainer exec --nv --bind={run.runs} --bind={tmp_path} '{tmp_path}/an image.sif'"
    assert f"{wrapped} python3 -u -m submitit" in text["pretrain-sad-seed0"]
    assert "--nv" not in text["collect"]
    assert text["collect"].rstrip().endswith("exit $code")


def test_slurm_is_asked_whether_it_would_take_a_script(
    run: Run, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm._program("squeue", "exit 0")
    slurm._program("sbatch", 'echo "allocation failure: no such partition $1" >&2; exit 1')
    scripts(run, "slurm", [])
    assert "# allocation failure: no such partition --test-only\n" in capsys.readouterr().out


def test_a_slurm_that_does_not_answer_is_named_once(
    run: Run, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in ("squeue", "sbatch"):
        slurm._program(program, 'echo "Could not establish a configuration source" >&2; exit 1')
    scripts(run, "slurm", [])
    assert capsys.readouterr().out.count("Could not establish") == 1


def test_jobs_find_the_modules_of_users(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where SBATCH_EXPORT=NONE starts them bare."""
    monkeypatch.setenv("PYTHONPATH", "/their/modules::more of them")
    (export,) = re.findall(r"export PYTHONPATH=(.*)", scripts(run, "slurm", [])["collect"])
    assert shlex.split(export) == [f"/their/modules:{Path.cwd()}/more of them"]
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in scripts(run, "slurm", [])["collect"]


def test_setup_comes_after_our_exports(run: Run) -> None:
    script = scripts(run, "slurm", ["setup=[export OMP_NUM_THREADS=7]"])["collect"]
    assert script.index("OMP_NUM_THREADS=1") < script.index("OMP_NUM_THREADS=7")
    assert script.index("OMP_NUM_THREADS=7") < script.index("srun")


def test_only_what_is_missing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    scripts(run, "slurm", [])
    complete(*steps_of(run, "collect"), *steps_of(run, "pretrain"))
    assert sorted(scripts(run, "slurm", [])) == ["aggregate", "evaluate"]
    printed = capsys.readouterr().out
    assert "submit/evaluate.sh\n#!/bin/bash" in printed
    assert "5 of 10 steps are complete and skipped" in printed


def test_a_complete_run_without_an_environment_lacks_no_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = {"task": {"family": "logged", "horizon": 9}, "rows": ["DPT"]}
    run = Run(parse_experiment(EXPERIMENT | logged, "test"), tmp_path / "runs")
    complete(*graph(run))
    assert not scripts(run, "local", [])
    assert "# 0 steps, scripts" in capsys.readouterr().out


def test_local_scripts_are_commands_to_run_by_hand(run: Run) -> None:
    text = scripts(run, "local", [])
    command = f"sad-hpc collect x.yaml data.tasks=900 --runs {run.runs} --results results"
    assert f"mpiexec -n 2 {command}\n" in text["collect"]
    assert "--row 'DPT*' --seed 1\n" in text["pretrain-dpt_star-seed1"]
    assert text["evaluate"].count("\nsad-hpc evaluate") == 4


def test_local_scripts_ask_no_slurm(run: Run, slurm: FakeSlurm) -> None:
    """Slurm's programs may be installed without a controller that answers."""
    slurm._program("squeue", "echo dead >&2; exit 1")
    assert "collect" in scripts(run, "local", [])


def test_tables_elsewhere_stay_complete(run: Run) -> None:
    step = steps_of(run, "aggregate")[0]
    complete(step)
    assert "aggregate" in scripts(run, "slurm", [])
    assert step.complete


def test_nothing_is_recorded(run: Run) -> None:
    scripts(run, "slurm", [])
    assert not (run.path / "jobs.json").exists()


def test_scripts_are_shown_where_no_slurm_answers(
    run: Run, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm._program("squeue", "echo no controller >&2; exit 1")
    cluster = load_cluster("slurm", [])
    launch(run, Path("x.yaml"), [], run.runs.parent / "results", cluster, dry_run=True, wait=False)
    printed = capsys.readouterr().out
    assert "# assuming an empty queue, because squeue failed: no controller" in printed
    assert printed.count("#SBATCH --job-name") == len(list((run.path / "submit").glob("*.sh")))
