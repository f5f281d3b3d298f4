"""Resubmission of jobs that Slurm has killed for memory, with twice the memory."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from sad_hpc.errors import UserError
from sad_hpc.launch.cluster import ClusterConfig, Resources
from sad_hpc.launch.executor import settings_of
from sad_hpc.launch.graph import Step
from sad_hpc.launch.plan import SubmitBatch
from sad_hpc.launch.records import JobRecord, log_end
from sad_hpc.launch.slurm import answer_lines, ids_by_cluster, on

KILLED = re.compile(
    r"\b(slurmstepd[-\w.]*|srun): .*(oom[-_]kill|out of memory|exceeded (job |step )?memory limit)",
    re.IGNORECASE,
)
"""Pattern of Slurm's log line about a step that it, or the kernel, has killed for memory.  The
prefix excludes similar messages of ranks about a GPU's memory."""

GIB_OF_UNIT = {"K": 2**-20, "M": 2**-10, "G": 1.0, "T": 2**10}


@dataclass(frozen=True)
class MemoryGrant:
    """The memory of a job whose step was killed for memory before."""

    memory_gb: float | None = None
    """Memory of each rank; None: that of the cluster's settings."""
    kills: int = 0
    """Number of the step's jobs that were killed for memory."""
    killed: str = ""
    """Id of the step's last job if it was killed for memory; empty: an earlier one was."""

    @property
    def text(self) -> str:
        """The grant in words; empty without a change."""
        if self.memory_gb is None:
            return ""
        cause = f"job {self.killed}" if self.killed else "an earlier job"
        return f"with {self.memory_gb:g} GB a rank, because {cause} was killed for memory"


def memory_grants(
    steps: Iterable[Step], records: Mapping[str, JobRecord], cluster: ClusterConfig
) -> dict[str, MemoryGrant]:
    """Return the memory grants, by title, of steps whose jobs were killed for memory.

    If the last job was, a grant doubles its memory, at most `memory_retries` times.  If it ended
    for another reason, it keeps its grant.  Steps whose cluster settings have changed since get
    none.
    """
    known = [
        (step, record)
        for step in steps
        if (record := records.get(step.title)) is not None
        and not step.complete
        and record.settings == settings_of(cluster, step.stage)
    ]
    killed = _killed(record for _, record in known)
    grants = {}
    for step, record in known:
        if record.key not in killed:
            if record.memory_gb:
                grants[step.title] = MemoryGrant(record.memory_gb, record.kills)
            continue
        resources = cluster.resources(step.stage)
        had = record.memory_gb or resources.memory_gb or _default_memory(record, resources)
        if had:
            wanted = 2 * had if record.kills < cluster.memory_retries else had
            grants[step.title] = MemoryGrant(wanted, record.kills + 1, record.id)
    return grants


def steps_to_retry(
    steps: Iterable[Step], records: Mapping[str, JobRecord], cluster: ClusterConfig
) -> list[Step]:
    """Return the steps killed for memory that may be retried, and all steps that require them."""
    steps = list(steps)
    grants = memory_grants(steps, records, cluster)
    again: dict[str, Step] = {}
    for step in steps:
        grant = grants.get(step.title)
        needs_one = any(required.title in again for required in step.requires)
        is_killed = grant is not None and grant.killed and grant.kills <= cluster.memory_retries
        if needs_one or is_killed:
            again[step.title] = step
    return list(again.values())


def split_by_grant(
    batch: SubmitBatch, grants: Mapping[str, MemoryGrant]
) -> list[tuple[MemoryGrant, SubmitBatch]]:
    """Split a batch into parts of equal memory, since an array's elements share their memory."""

    def grant_of(step: Step) -> MemoryGrant:
        return grants.get(step.title, MemoryGrant())

    def key(step: Step) -> tuple[float, int]:
        return grant_of(step).memory_gb or 0, grant_of(step).kills

    groups = groupby(sorted(batch.steps, key=key), key=key)
    parts = [tuple(part) for _, part in groups]
    return [(grant_of(part[0]), replace(batch, steps=part)) for part in parts]


def _killed(records: Iterable[JobRecord]) -> set[str]:
    """Return the keys of Slurm's jobs that were killed for memory, by their logs or sacct."""
    jobs = [record for record in records if record.executor == "slurm"]
    # In a pack, Slurm's message is in the job's log, not in that of the step.
    logs = _logs_by_job({Path(record.log).parent for record in jobs})
    killed = {
        record.key
        for record in jobs
        if any(KILLED.search(log_end(path)) for path in logs.get(_log_key(record), ()))
    }
    unsaid = [record for record in jobs if record.key not in killed]
    for cluster, ids in ids_by_cluster(unsaid).items():
        lines = _accounted(ids, cluster, "JobID,State")
        ended = {line.split("|")[0].split(".")[0] for line in lines if "OUT_OF_MEMORY" in line}
        killed |= {each.key for each in unsaid if each.cluster == cluster and each.id in ended}
    return killed


def _logs_by_job(folders: Iterable[Path]) -> dict[tuple[Path, str], list[Path]]:
    """Return the logs in folders by folder and job id; their names are `<id>_<rank>_log.out`."""
    found: dict[tuple[Path, str], list[Path]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*_log.out")):
            found.setdefault((folder, path.name.rsplit("_", 2)[0]), []).append(path)
    return found


def _log_key(record: JobRecord) -> tuple[Path, str]:
    return Path(record.log).parent, record.id


def _default_memory(record: JobRecord, resources: Resources) -> float | None:
    """Return the GB of each rank of a job that got the cluster's default memory."""
    for line in _accounted([record.id], record.cluster, "ReqMem,ReqCPUS"):
        if found := re.fullmatch(r"([\d.]+)([KMGT])([cn]?)\|(\d+)", line.strip()):
            memory, cpus = float(found[1]) * GIB_OF_UNIT[found[2]], int(found[4])
            # ReqMem is that of the whole job; until Slurm 21.08 that of a CPU (c) or node (n).
            shares = {"": cpus, "c": 1, "n": cpus / (resources.nodes or 1)}[found[3]]
            return memory * resources.cpus_per_rank / shares
    return None


def _accounted(ids: Collection[str], cluster: str | None, fields: str) -> list[str]:
    """Return sacct's lines about jobs and their steps; none on a cluster without accounting."""
    jobs = f"--jobs={','.join(ids)}"
    try:
        return answer_lines(
            on(cluster, ["sacct", "--noheader", "--parsable2", jobs, f"--format={fields}"])
        )
    except UserError:
        return []
