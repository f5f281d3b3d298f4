"""The check of a Slurm cluster: slurm/check.sh, a job of two nodes.

The job's script runs each probe by an srun like those of the launcher's jobs, and prints a line for
each.  Finally it requeues itself, and its second start reports that this worked.
"""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sad_hpc.errors import ERROR_PREFIX, UserError
from sad_hpc.launch.check_machine import Outcome, print_outcome
from sad_hpc.launch.cluster import ClusterConfig
from sad_hpc.launch.environment import job_environment, submission_environment
from sad_hpc.launch.slurm import answer_lines, squeue
from sad_hpc.launch.srun import IGNORE_USR2, interpreter, setup_lines, srun_options
from sad_hpc.shipped.files import SLURM
from sad_hpc.tasks.miniworld.gl import DEBIAN_PACKAGES

SCRIPT = SLURM / "check.sh"

PROBE_SECONDS = 150
ACCOUNTING_SECONDS = 30.0
LOOK_SECONDS = 1.0

ALL_IS_WELL = "all ok: the pipeline will run here"


@dataclass(frozen=True)
class Probe:
    """A probe that the ranks of both nodes run together."""

    title: str
    name: str
    """Key of `cluster_probes.PROBES`."""
    stage: str
    """The stage whose jobs srun starts with the same options."""
    remedy: str


PROBES = (
    Probe("MPI", "mpi", "collect", "set cluster.mpi to one of `srun --mpi=list`"),
    Probe(
        "DeepSpeed",
        "deepspeed",
        "pretrain",
        "name the network between nodes, cluster.setup='[export GLOO_SOCKET_IFNAME=...]' (for GPUs "
        "NCCL_SOCKET_IFNAME), or train on one node (cluster.pretrain.nodes=1)",
    ),
    Probe(
        "shared files",
        "files",
        "collect",
        "choose a --runs folder that all nodes share; if it has no locks, "
        "cluster.hdf5_file_locking=false",
    ),
    Probe(
        "GL",
        "graphics",
        "collect",
        f"only Miniworld needs it: install {DEBIAN_PACKAGES} on the nodes, or use the container",
    ),
)


def submit_check(cluster: ClusterConfig, arguments: list[str], runs: Path) -> int:
    """Submit slurm/check.sh and print its log until it ends; return 1 if a check failed.

    Args:
        cluster: settings with partition, account, qos and more.
        arguments: `--cluster` and overrides, for the job.
        runs: the folder to check, which the nodes share.

    Raises:
        UserError: there is no Slurm, or it refuses the job.
    """
    if shutil.which("sbatch") is None:
        raise UserError("no sbatch on the PATH: run this on a login node")
    runs.mkdir(parents=True, exist_ok=True)
    log = (runs / f"check-{time.strftime('%Y%m%d-%H%M%S')}.log").absolute()
    command = ["sbatch", "--parsable", f"--output={log}", *_sbatch_flags(cluster), str(SCRIPT)]
    with submission_environment(options=["mem-per-cpu"]):
        asked = subprocess.run(
            [*command, *arguments, "--runs", str(runs.absolute())], capture_output=True, text=True
        )
    if asked.returncode != 0:
        raise UserError(
            f"Slurm refused slurm/check.sh: {' '.join(asked.stderr.split())}; check "
            "cluster.partition, account and qos"
        )
    job = asked.stdout.strip().partition(";")[0]
    print(f"job {job}, log {log}", flush=True)
    return 0 if ALL_IS_WELL in _follow(job, log, cluster) else 1


def _sbatch_flags(cluster: ClusterConfig) -> list[str]:
    """Return sbatch options that send the job to the nodes of pretrain if these have GPUs."""
    stage = "pretrain" if cluster.pretrain.gpus else "collect"
    keys = ("clusters", "partition", "account", "qos")
    named: dict[str, str | None] = {key: getattr(cluster, key) for key in keys}
    options: dict[str, str | int | bool] = {k: value for k, value in named.items() if value}
    options |= {**cluster.sbatch, **cluster.resources(stage).sbatch}
    if cluster.pretrain.gpus:
        options["gpus-per-task"] = "1"
    return [f"--{key}" if value is True else f"--{key}={value}" for key, value in options.items()]


def _follow(job: str, log: Path, cluster: ClusterConfig) -> str:
    """Print a job's log as it grows until the job has ended; return the log."""
    text, reason = "", ""
    while True:
        entry = squeue(cluster.clusters).get(job)
        if log.exists() and (grown := log.read_text(errors="replace")) != text:
            print(grown[len(text) :], end="", flush=True)
            text = grown
        if entry is None or not entry.is_alive:
            return text
        if entry.is_waiting and entry.reason not in (reason, "None"):
            reason = entry.reason
            print(f"(pending: {reason})", flush=True)
        time.sleep(LOOK_SECONDS)


def check_cluster(cluster: ClusterConfig, runs: Path) -> int:
    """Run all checks inside the job, and print a line for each; return 1 if a check failed.

    Raises:
        UserError: this process is not in a batch job.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        raise UserError("this command runs only inside slurm/check.sh: use sad-hpc doctor --submit")
    folder = runs.absolute() / f"check-{job}"
    failed = folder / "failed"
    if os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        folder.mkdir(parents=True, exist_ok=True)
        for title, outcome in _outcomes(cluster, job, folder):
            print_outcome(title, outcome)
            if outcome[0] == "miss":
                with failed.open("a") as names:
                    names.write(f"{title}\n")
    else:
        print_outcome("requeue", ("ok", "the job requeued itself"))
    missing = failed.read_text().split("\n")[:-1] if failed.exists() else []
    shutil.rmtree(folder, ignore_errors=True)
    print(f"failed: {', '.join(missing)}" if missing else ALL_IS_WELL, flush=True)
    return 1 if missing else 0


def _outcomes(cluster: ClusterConfig, job: str, folder: Path) -> Iterator[tuple[str, Outcome]]:
    for probe in PROBES:
        yield probe.title, _tried(probe, cluster, folder)
    yield "accounting", _accounting(job)
    # A successful requeue ends this script.
    if subprocess.run(["scontrol", "requeue", job]).returncode == 0:
        time.sleep(ACCOUNTING_SECONDS)
    remedy = "set JobRequeue=1 in slurm.conf, or launch again after each time limit"
    yield "requeue", ("miss", f"Slurm did not requeue the job: {remedy}")


def _tried(probe: Probe, cluster: ClusterConfig, folder: Path) -> Outcome:
    """Run a probe on both nodes, and return its outcome."""
    gpus = cluster.pretrain.gpus if probe.stage == "pretrain" else 0
    python = interpreter(cluster, probe.stage, [folder.parent, Path.cwd()])
    program = [*python, "-m", "sad_hpc.launch.cluster_probes", probe.name, str(folder)]
    lines = [*setup_lines(cluster.setup), f"exec {shlex.join(['sh', '-c', IGNORE_USR2, *program])}"]
    options = srun_options(probe.stage, 1, min(gpus, 1), cluster.mpi)
    command = ["srun", "--nodes=2", "--ntasks=2", *options, "bash", "-c", "\n".join(lines)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            env=os.environ | job_environment(cluster, probe.stage),
        )
    except subprocess.TimeoutExpired:
        return "miss", f"no answer in {PROBE_SECONDS} s; {probe.remedy}"
    if done.returncode == 0:
        return "ok", "; ".join(dict.fromkeys(done.stdout.strip().splitlines()[-2:]))
    reasons = [line for line in done.stderr.splitlines() if line.startswith(ERROR_PREFIX)]
    reasons = reasons or done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return "miss", f"{reasons[0].removeprefix(ERROR_PREFIX)}; {probe.remedy}"


def _accounting(job: str) -> Outcome:
    """Check that sacct lists this job soon after its first steps."""
    deadline, reason = time.monotonic() + ACCOUNTING_SECONDS, "sacct does not list this job"
    while time.monotonic() < deadline:
        try:
            command = ["sacct", "--noheader", "--parsable2", f"--jobs={job}", "--format=JobID"]
            if job in answer_lines(command):
                return "ok", "sacct lists this job"
        except UserError as error:
            reason = str(error)
            break
        time.sleep(LOOK_SECONDS)
    detail = "status shows no reason for old jobs, and out-of-memory kills are read from logs"
    return "skip", f"{reason}; {detail}"
