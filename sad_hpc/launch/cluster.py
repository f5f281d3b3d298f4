"""Cluster settings: where the stages run, and with which resources."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import Section, apply_overrides, build, read_yaml
from sad_hpc.shipped.files import CONFIGS

FOLDER = CONFIGS / "cluster"
"""The folder of this package's cluster files."""

ALIASES = {"slurm": "slurm-cpu"}

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.,:@+-]*$"
"""Pattern of partitions (several with commas), accounts and the like; safe in a shell."""

ELSEWHERE = ("cluster", "clusters", "cluster-constraint")
"""sbatch parameters that send jobs to a cluster that squeue does not query by itself."""

OWNED = (
    *("array", "dependency", "error", "export", "job-name", "kill-on-invalid-dep", "ntasks"),
    *("comment", "cpus-per-task", "gpus-per-task", "mem", "mem-per-cpu", "nodes", "time"),
    *("open-mode", "output", "parsable", "requeue", "signal", "wait", "wrap"),
)
"""sbatch parameters that the launcher itself sets or relies on."""

OTHER_MEANING = (
    *("test-only", "hold", "uid", "gid", "help", "usage", "version", "quiet", "verbose"),
    *("chdir", "input", "get-user-env", "export-file", "ignore-pbs", "no-kill"),
)
"""sbatch parameters that prevent the submission or change its output, user, folder or input."""

LEGAL_BEGINNINGS = ("gpus",)
"""Options of sbatch that are also the beginning of a refused one."""


def _refused(key: str) -> str | None:
    """Return why a parameter is refused, or None; sbatch accepts abbreviated options."""

    def among(options: tuple[str, ...]) -> bool:
        return key not in LEGAL_BEGINNINGS and any(each.startswith(key) for each in options)

    if among(ELSEWHERE):
        return (
            f"{key!r} is not supported here: name the cluster by the key `clusters` of the cluster "
            "settings"
        )
    if among(OWNED):
        return f"{key!r} is set by the launcher or by another key of the cluster settings"
    if among(OTHER_MEANING):
        return f"{key!r} is not supported, since it changes what sbatch does: remove it"
    return None


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text!r} contains a line break or another control character")
    return text


def _sbatch_options(parameters: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    for key, value in parameters.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
            raise ValueError(f"{key!r} is not a long option of sbatch, such as `constraint`")
        if reason := _refused(key):
            raise ValueError(reason)
        if value is False:
            raise ValueError(f"{key}: false has no meaning to sbatch; remove the key")
        _one_line(str(value))
    return parameters


SbatchOptions = Annotated[dict[str, str | int | bool], AfterValidator(_sbatch_options)]
"""Long options of sbatch without their dashes; the value is true for options without a value."""

Line = Annotated[str, AfterValidator(_one_line)]


class Resources(Section):
    """The resources of one job of a stage."""

    nodes: int | None = Field(None, ge=1)
    """Number of nodes; null: as few as the ranks fit on."""
    ranks: int = Field(1, ge=1)
    """MPI ranks of collect, data-parallel ranks of pretrain."""
    cpus_per_rank: int = Field(1, ge=1)
    """CPUs, and threads, of each rank."""
    gpus: int = Field(0, ge=0)
    """GPUs of each rank."""
    memory_gb: float | None = Field(None, gt=0)
    """Memory of each rank; null: the cluster's default."""
    minutes: int = Field(1440, ge=2)
    """Time limit under Slurm.  A stage that reaches it is requeued and resumes."""
    pack: int = Field(1, ge=1)
    """Number of trainings, or evaluations, of one rank that share a Slurm job.  Each has its own
    cores; they share the job's GPU, if any.  Without Slurm: trainings that share the GPU."""
    sbatch: SbatchOptions = {}
    """More sbatch parameters of this stage's jobs, such as `partition`; they override those of all
    stages."""


class ClusterConfig(Section):
    """The content of a file in configs/cluster/; the defaults are those of local.yaml."""

    executor: Literal["local", "slurm"] = "local"
    clusters: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    """The one of several Slurm clusters, as `sacctmgr show cluster` names them, that gets all jobs
    (`sbatch --clusters`); null: that of this machine's slurm.conf.  Needs slurmdbd."""
    partition: str | None = Field(None, pattern=NAME)
    account: str | None = Field(None, pattern=NAME)
    qos: str | None = Field(None, pattern=NAME)
    mpi: str = Field("pmi2", pattern=r"^[a-z][a-z0-9_]*$")
    """Value of `srun --mpi=`; `srun --mpi=list` shows the supported ones."""
    python: Line | None = Field(None, min_length=1)
    """The interpreter on the nodes or in the container; null: the launcher's, or `python3` in the
    container."""
    container: Line | None = Field(None, min_length=1)
    """An Apptainer image (or unpacked folder) in which every rank runs."""
    setup: list[Line] = []
    """Shell lines at the beginning of every job, such as `module load ...`."""
    array_parallelism: int = Field(2, ge=1)
    """Elements of an array job that run at a time.  Without Slurm: evaluations at a time, and
    trainings if there are cores for them."""
    max_requeues: int = Field(20, ge=0)
    """Number of times that a Slurm job may reach its time limit and be requeued before it fails."""
    memory_retries: int = Field(2, ge=0)
    """Number of times that a job which was killed for memory is resubmitted with twice as much."""
    hdf5_file_locking: bool | None = None
    """HDF5_USE_FILE_LOCKING of every job; null keeps the environment's value.  Use false for Lustre
    without flock."""
    sbatch: SbatchOptions = {}
    """More sbatch parameters of every job, such as `constraint: haswell`."""
    collect: Resources = Resources(ranks=2)
    pretrain: Resources = Resources()
    evaluate: Resources = Resources()
    aggregate: Resources = Resources()

    def resources(self, stage: str) -> Resources:
        """Return the resources of a job of `stage`."""
        resources: Resources = getattr(self, stage)
        return resources

    @property
    def packs(self) -> dict[str, int]:
        """The number of steps that share a Slurm job, by stage."""
        return {stage: self.resources(stage).pack for stage in ("pretrain", "evaluate")}

    def with_resources(self, stage: str, **changes: float | None) -> "ClusterConfig":
        """Return these settings with changed `Resources` of `stage`; None keeps a value."""
        given = {key: value for key, value in changes.items() if value is not None}
        return self.model_copy(update={stage: self.resources(stage).model_copy(update=given)})

    @field_validator("sbatch")
    @classmethod
    def _check_sbatch(cls, parameters: SbatchOptions) -> SbatchOptions:
        for key in parameters:
            if key in ClusterConfig.model_fields:
                raise ValueError(f"{key!r} is a key of the cluster settings: set it there")
        return parameters

    @model_validator(mode="after")
    def _check_executor(self) -> "ClusterConfig":
        asked = [key for key in ("clusters", "partition", "account", "qos") if getattr(self, key)]
        if asked and self.executor == "local":
            raise ValueError(
                f"{', '.join(asked)} would have no effect without Slurm: use --cluster slurm, or "
                "set executor: slurm"
            )
        return self

    @model_validator(mode="after")
    def _check_container(self) -> "ClusterConfig":
        if self.container is not None and self.executor == "local":
            raise ValueError(
                "container needs Slurm; without it, start sad-hpc inside the container: "
                f"`apptainer exec {self.container} sad-hpc launch ...`"
            )
        return self

    @model_validator(mode="after")
    def _check_ranks_and_nodes(self) -> "ClusterConfig":
        for stage in ("evaluate", "aggregate"):
            if self.resources(stage).ranks > 1:
                raise ValueError(
                    f"{stage}.ranks must be 1: {stage} has one rank; set array_parallelism for the "
                    "number of evaluations at a time"
                )
        for stage in ("collect", "aggregate"):
            if self.resources(stage).pack > 1:
                raise ValueError(f"{stage}.pack must be 1: only pretrain and evaluate are packed")
        for stage in ("pretrain", "evaluate"):
            resources = self.resources(stage)
            if resources.pack > 1 and (resources.ranks > 1 or resources.gpus > 1):
                raise ValueError(
                    f"{stage}.pack={resources.pack} needs steps of one rank with at most one GPU: "
                    f"set {stage}.ranks=1 and {stage}.gpus=1 or 0, or {stage}.pack=1"
                )
        for stage in ("collect", "pretrain", "evaluate", "aggregate"):
            nodes, ranks = self.resources(stage).nodes or 1, self.resources(stage).ranks
            if nodes > ranks:
                raise ValueError(f"{stage}.nodes={nodes} exceeds {stage}.ranks={ranks}")
        return self


def load_cluster(name_or_path: str, overrides: list[str]) -> ClusterConfig:
    """Load cluster settings: defaults < YAML < `key.sub=value` overrides.

    Args:
        name_or_path: local, slurm, the name of a file in configs/cluster, or a YAML file.
        overrides: as on the command line, without the prefix `cluster.`.

    Raises:
        ConfigError: the file is missing or invalid; the line names the key and the valid choices.
    """
    path = _find(name_or_path)
    mapping = {} if path is None else read_yaml(path)
    source = " ".join([str(path or name_or_path), *overrides])
    return build(ClusterConfig, apply_overrides(mapping, overrides), source, "cluster.")


def _find(name_or_path: str) -> Path | None:
    if name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    path = FOLDER / f"{ALIASES.get(name_or_path, name_or_path)}.yaml"
    names = sorted({"local", *ALIASES, *(file.stem for file in FOLDER.glob("*.yaml"))})
    if name_or_path not in names:
        raise ConfigError(
            f"unknown cluster {name_or_path!r}; valid: {', '.join(names)}, or a YAML file"
        )
    return path if path.exists() or name_or_path != "local" else None
