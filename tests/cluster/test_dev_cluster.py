"""The dev cluster does what the launcher relies on: accounting, dependencies, requeues."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sad_hpc.launch.slurm import restarts
from tests.patience import HUNG, SOON

pytestmark = pytest.mark.cluster

DEV_CLUSTER = Path(__file__).resolve().parents[2] / "slurm" / "dev_cluster.sh"
Env = dict[str, str]


def run(env: Env, *command: str | Path) -> str:
    """Standard output, stripped; a command that fails shows its standard error."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, f"{command} (status {done.returncode}): {done.stderr}"
    return done.stdout.strip()


def submit(env: Env, folder: Path, script: str, *options: str) -> str:
    """The id of a batch job that runs `script` and writes its output into `folder`."""
    command = ["sbatch", "--parsable", f"--chdir={folder}", "--output=%A_%a.out", *options]
    return run(env, *command, f"--wrap={script}")


def state(env: Env, job: str) -> str:
    """Return the state by sacct, e.g. COMPLETED or "CANCELLED by 0"; empty before a record."""
    columns = ("--noheader", "--allocations", "--parsable2", "--format=State")
    return run(env, "sacct", "-j", job, *columns)


def wait_until(condition: Callable[[], bool], seconds: float = HUNG) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


def test_a_job_on_all_nodes_is_completed_in_the_accounting(dev_cluster: Env) -> None:
    names = "echo $SLURM_JOB_ID $SLURMD_NODENAME"
    lines = run(dev_cluster, "srun", "--nodes=4", "sh", "-c", names).splitlines()
    job = lines[0].split()[0]
    assert sorted(lines) == [f"{job} node{number}" for number in range(1, 5)]
    wait_until(lambda: state(dev_cluster, job) == "COMPLETED")


def test_node_names_lead_to_this_machine(dev_cluster: Env) -> None:
    assert run(dev_cluster, "getent", "ahostsv4", "node4").startswith("127.")


def test_an_array_and_what_depends_on_it_run_in_order(dev_cluster: Env, tmp_path: Path) -> None:
    first = submit(dev_cluster, tmp_path, "echo first >> order")
    after_first = ("--array=0-5%3", f"--dependency=afterok:{first}")
    array = submit(dev_cluster, tmp_path, "echo element >> order", *after_first)
    submit(dev_cluster, tmp_path, "echo last >> order", f"--dependency=afterok:{array}", "--wait")
    assert (tmp_path / "order").read_text().split() == ["first", *["element"] * 6, "last"]


def test_a_job_whose_dependency_failed_is_cancelled(dev_cluster: Env, tmp_path: Path) -> None:
    failing = submit(dev_cluster, tmp_path, "exit 1")
    waiting = submit(dev_cluster, tmp_path, "true", f"--dependency=afterok:{failing}")
    wait_until(lambda: state(dev_cluster, waiting).startswith("CANCELLED"))
    assert state(dev_cluster, failing) == "FAILED"


def test_a_requeued_job_starts_again_and_counts_it(
    dev_cluster: Env, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", dev_cluster["SLURM_CONF"])
    script = 'echo ${SLURM_RESTART_COUNT:-0} >> starts; [ -n "$SLURM_RESTART_COUNT" ] || sleep 300'
    job = submit(dev_cluster, tmp_path, script)
    starts = tmp_path / "starts"
    wait_until(starts.exists)
    assert restarts()[job] == 0
    run(dev_cluster, "scontrol", "requeue", job)
    assert restarts()[job] == 1
    wait_until(lambda: state(dev_cluster, job) == "COMPLETED")
    assert starts.read_text().split() == ["0", "1"]


def test_up_again_prints_only_the_export_line_and_changes_nothing(dev_cluster: Env) -> None:
    before = run(dev_cluster, DEV_CLUSTER, "status")
    again = run(dev_cluster, DEV_CLUSTER, "up", "4")
    assert again == f"export SLURM_CONF={dev_cluster['SLURM_CONF']}"
    assert run(dev_cluster, DEV_CLUSTER, "status") == before
    command = [DEV_CLUSTER, "up", "3"]
    other_size = subprocess.run(command, env=dev_cluster, capture_output=True, text=True)
    assert other_size.returncode == 1
    assert "already up with 4 nodes" in other_size.stderr


def test_a_second_cluster_leaves_nothing_behind(dev_cluster: Env, tmp_path: Path) -> None:
    hosts = lines_of_no_cluster()
    with tempfile.TemporaryDirectory(prefix="sadc", dir="/tmp") as parent:
        folder = Path(parent) / "second"
        env = {**os.environ, "SAD_HPC_DEV_CLUSTER": str(folder)}
        try:
            export = run(env, DEV_CLUSTER, "up", "1")
            assert export == f"export SLURM_CONF={folder}/slurm.conf"
            env["SLURM_CONF"] = f"{folder}/slurm.conf"
            submit(env, tmp_path, "touch started; sleep 300 & setsid sleep 300")
            wait_until((tmp_path / "started").exists)
            assert processes_of(folder)
        finally:
            run(env, DEV_CLUSTER, "down")
        wait_until(lambda: not processes_of(folder), SOON)
        assert not folder.exists()
    assert f" {folder}\n" not in Path("/etc/hosts").read_text()
    assert lines_of_no_cluster() == hosts
    assert run(dev_cluster, DEV_CLUSTER, "status").count(" alive") == 8


def lines_of_no_cluster() -> list[str]:
    """/etc/hosts without the lines of dev clusters: others on this machine may come and go."""
    lines = Path("/etc/hosts").read_text().splitlines()
    return [line for line in lines if "# sad_hpc dev_cluster " not in line]


def processes_of(folder: Path) -> list[str]:
    """The pids of the daemons and jobs: processes whose environment names the cluster's folder."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = environment.read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if f"={folder}/slurm.conf\0".encode() in text:
            found.append(environment.parent.name)
    return found
