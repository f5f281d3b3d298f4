"""Cluster settings: where the stages run, and with how much of it."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import Section, apply_overrides, build, read_yaml
from sad_hpc.shipped.files import CONFIGS

FOLDER = CONFIGS / "cluster"
"""The cluster files of this package, found from any working directory."""

ALIASES = {"slurm": "slurm-cpu"}

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.,:@+-]*$"
"""Partitions (several with commas), accounts and the like: nothing that a shell would read."""

ELSEWHERE = ("cluster", "clusters", "cluster-constraint")
"""sbatch parameters that send jobs where squeue does not look for them."""

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
"""sbatch parameters with which it submits nothing, prints something else than a job's id, starts
no job, or starts it as another user, elsewhere or with other input."""

LEGAL_BEGINNINGS = ("gpus",)
"""Options of sbatch by themselves, though another one begins with them."""


def _refused(key: str) -> str | None:
    """Why a parameter cannot be given; sbatch takes the beginning of an option for the option."""

    def among(options: tuple[str, ...]) -> bool:
        return key not in LEGAL_BEGINNINGS and any(each.startswith(key) for each in options)

    if among(ELSEWHERE):
        return (
            f"{key!r} has no meaning: jobs go to the cluster of this machine's slurm.conf; for "
            "another one launch from its login node, or set SLURM_CONF"
        )
    if among(OWNED):
        return f"{key!r} is set by the launcher or has a key of its own"
    if among(OTHER_MEANING):
        return f"{key!r} would change what a submission does; give it to an sbatch of your own"
    return None


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text!r} holds a line break or another control character")
    return text


def _sbatch_options(parameters: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
    for key, value in parameters.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", key):
            raise ValueError(f"{key!r} is no long option of sbatch, such as `constraint`")
        if reason := _refused(key):
            raise ValueError(reason)
        if value is False:
            raise ValueError(f"{key}: false has no meaning to sbatch; leave the key out")
        _one_line(str(value))
    return parameters


SbatchOptions = Annotated[dict[str, str | int | bool], AfterValidator(_sbatch_options)]
"""Long options of sbatch without their dashes; true for those that take no value."""

Line = Annotated[str, AfterValidator(_one_line)]


class Resources(Section):
    """What one job of a stage gets."""

    nodes: int | None = Field(None, ge=1)
    """null: as few as Slurm needs to fit the ranks."""
    ranks: int = Field(1, ge=1)
    """MPI ranks of collect, data-parallel ranks of pretrain."""
    cpus_per_rank: int = Field(1, ge=1)
    """CPUs, and threads, of each rank."""
    gpus: int = Field(0, ge=0)
    """GPUs of each rank."""
    memory_gb: float | None = Field(None, gt=0)
    """Memory of each rank; null: what the cluster gives by default."""
    minutes: int = Field(1440, ge=2)
    """Time limit under Slurm: a stage that reaches it is queued again and goes on where it was."""
    pack: int = Field(1, ge=1)
    """Trainings, or evaluations, of one rank that share a Slurm job, each on cores of its own, and
    its GPU, if it has one; so many trainings share the GPU of a machine without Slurm, too."""
    sbatch: SbatchOptions = {}
    """More sbatch parameters of this stage's jobs, also such as `partition`: they go before those
    of all stages."""


class ClusterConfig(Section):
    """A file of configs/cluster/; the defaults are those of local.yaml."""

    executor: Literal["local", "slurm"] = "local"
    partition: str | None = Field(None, pattern=NAME)
    account: str | None = Field(None, pattern=NAME)
    qos: str | None = Field(None, pattern=NAME)
    mpi: str = Field("pmi2", pattern=r"^[a-z][a-z0-9_]*$")
    """Of `srun --mpi=`; `srun --mpi=list` shows what a Slurm offers."""
    python: Line | None = Field(None, min_length=1)
    """The interpreter of the nodes, or of the container; null: the launcher's own, or `python3` of
    the container."""
    container: Line | None = Field(None, min_length=1)
    """An Apptainer image (or unpacked folder) in which every rank runs."""
    setup: list[Line] = []
    """Shell lines that run in every job first, such as `module load ...`."""
    array_parallelism: int = Field(2, ge=1)
    """Elements of an array that run at a time: evaluations, rows of a sweep; on this machine alone,
    evaluations, and trainings if there are cores for them."""
    max_requeues: int = Field(20, ge=0)
    """Times that a Slurm job may reach its time limit and be queued again, before it has failed."""
    memory_retries: int = Field(2, ge=0)
    """Times that a Slurm job which was killed for memory is submitted again with twice as much."""
    hdf5_file_locking: bool | None = None
    """HDF5_USE_FILE_LOCKING of every job; null leaves it alone.  false for Lustre without flock."""
    sbatch: SbatchOptions = {}
    """More sbatch parameters of every job, such as `constraint: haswell`."""
    collect: Resources = Resources(ranks=2)
    pretrain: Resources = Resources()
    evaluate: Resources = Resources()
    aggregate: Resources = Resources()

    def resources(self, stage: str) -> Resources:
        """What a job of `stage` gets."""
        resources: Resources = getattr(self, stage)
        return resources

    @property
    def packs(self) -> dict[str, int]:
        """By stage, how many steps share a Slurm job."""
        return {stage: self.resources(stage).pack for stage in ("pretrain", "evaluate")}

    def with_resources(self, stage: str, **changes: float | None) -> "ClusterConfig":
        """These settings with other `Resources` of `stage`; None leaves one."""
        given = {key: value for key, value in changes.items() if value is not None}
        return self.model_copy(update={stage: self.resources(stage).model_copy(update=given)})

    @field_validator("sbatch")
    @classmethod
    def _check_sbatch(cls, parameters: SbatchOptions) -> SbatchOptions:
        for key in parameters:
            if key in ClusterConfig.model_fields:
                raise ValueError(f"{key!r} has a key of its own")
        return parameters

    @model_validator(mode="after")
    def _check_container(self) -> "ClusterConfig":
        if self.container is not None and self.executor == "local":
            raise ValueError(
                "container is for Slurm's jobs: on this machine start sad-hpc inside of it, "
                f"`apptainer exec {self.container} sad-hpc launch ...`"
            )
        return self

    @model_validator(mode="after")
    def _check_ranks_and_nodes(self) -> "ClusterConfig":
        for stage in ("evaluate", "aggregate"):
            if self.resources(stage).ranks > 1:
                raise ValueError(
                    f"{stage} is one rank: {stage}.ranks must be 1; array_parallelism says how "
                    "many evaluations run at a time"
                )
        for stage in ("collect", "aggregate"):
            if self.resources(stage).pack > 1:
                raise ValueError(f"{stage}.pack must be 1: only pretrain and evaluate are packed")
        for stage in ("pretrain", "evaluate"):
            resources = self.resources(stage)
            if resources.pack > 1 and (resources.ranks > 1 or resources.gpus > 1):
                raise ValueError(
                    f"{stage}.pack={resources.pack} is for steps of one rank, which share a GPU or "
                    f"have none: set {stage}.ranks=1 and {stage}.gpus=1 or 0, or {stage}.pack=1"
                )
        for stage in ("collect", "pretrain", "evaluate", "aggregate"):
            nodes, ranks = self.resources(stage).nodes or 1, self.resources(stage).ranks
            if nodes > ranks:
                raise ValueError(f"{stage}.nodes={nodes} exceeds {stage}.ranks={ranks}")
        return self


def load_cluster(name_or_path: str, overrides: list[str]) -> ClusterConfig:
    """Reads cluster settings: defaults < YAML < `key.sub=value` overrides.

    Args:
        name_or_path: local, slurm, the name of a file in configs/cluster, or a YAML file.
        overrides: as on the command line, without the prefix `cluster.`.

    Raises:
        ConfigError: there is no such file, or one line with the key and the valid choices.
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
