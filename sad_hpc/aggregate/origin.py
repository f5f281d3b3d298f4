"""Origin of an experiment's numbers: code, machine and libraries of every stage."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from pydantic import BaseModel

from sad_hpc.experiment.experiment import Element
from sad_hpc.storage.provenance import (
    StageRecord,
    portable,
    provenance,
    read_record,
    without_folders,
)
from sad_hpc.storage.run import Run
from sad_hpc.storage.stage_folder import StageFolder

DRAWING_LIBRARIES = ("matplotlib", "pandas", "scipy")
STAGE_HEADER = ("stage", "commit", "machine", "versions")


class Origin(BaseModel):
    """The part of a results folder's `provenance.json` that pages show."""

    command: list[str]
    dataset_signature: str
    seeds: list[int]
    stages: dict[str, StageRecord | None]


def origin(
    run: Run, present: Sequence[Element], stored: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the content of a results folder's `provenance.json`, as JSON values.

    `stages` has the provenance of every stage folder that was read, under keys such as
    `pretrain/<folder>`, with `ranks` and `precision` if known, and the time when it `finished`
    (seconds since the epoch).

    Args:
        run: the run of the tables.
        present: the elements of the tables.
        stored: `stages` of the results folder, for stages whose folder was deleted.

    Raises:
        UserError: a stage's config, provenance or metrics were changed after it was complete.
    """
    own = provenance()
    own["libraries"] |= {name: metadata.version(name) for name in DRAWING_LIBRARIES}
    recorded = read_record(run.path / "provenance.json") or {}
    known = stored or {}
    stages = {
        folder.key: _of_stage(folder) or known.get(folder.key) for folder in _folders(run, present)
    }
    return {
        "experiment": run.experiment.name,
        "signature": run.experiment.aggregate_signature(),
        "command": without_folders(recorded.get("command") or []),
        "dataset_signature": ", ".join(own.data().path.name for own in run.with_datasets()),
        "seeds": run.experiment.seeds,
        "stages": stages | {"aggregate": portable(own)},
    }


def _folders(run: Run, present: Sequence[Element]) -> Iterator[StageFolder]:
    for own in run.with_datasets():
        yield own.data()
    if run.experiment.pretrained is not None:
        for own in Run(run.experiment.source, run.runs).with_datasets():
            yield own.data()
    for element in present:
        yield run.checkpoint(*element)
        yield run.evaluation(*element)


def _of_stage(folder: StageFolder) -> dict[str, Any] | None:
    folder.check_records()
    record = portable(read_record(folder.path / "provenance.json"))
    marker = folder.done or {}
    told = {key: marker[key] for key in ("ranks", "precision", "finished") if key in marker}
    return record if record is None else record | told


def training_ranks(provenances: dict[str, Any]) -> int | None:
    """Return the number of ranks of all trainings, which affects last digits; None if it varies."""
    found = {
        (record or {}).get("ranks")
        for title, record in provenances["stages"].items()
        if title.startswith("pretrain/")
    }
    return found.pop() if len(found) == 1 else None


def describe_stages(provenances: dict[str, Any]) -> list[list[str]]:
    """Return a line for each stage: name, and distinct commits, machines and library versions."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for title, record in provenances["stages"].items():
        stages.setdefault(title.split("/")[0], []).extend(_makers(record or {}))
    told = (_commit, _machine, _versions)
    return [
        [stage, *("; ".join(dict.fromkeys(map(tell, makers))) for tell in told)]
        for stage, makers in stages.items()
    ]


def _makers(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the makers of a stage's output: the first start, and later starts that resumed it."""
    told = {key: record.get(key) for key in ("ranks", "precision")}
    return [record, *(maker | told for maker in record.get("resumed", []))]


def _commit(record: dict[str, Any]) -> str:
    commit = record.get("commit")
    if not commit:
        sources = record.get("sources")
        return f"version {record.get('version')}, sources {sources[:12]}" if sources else "unknown"
    return commit[:12] + (" with uncommitted changes" if record.get("dirty") else "")


def _machine(record: dict[str, Any]) -> str:
    if not record.get("host"):
        return "unknown"
    parts = [record.get("machine"), f"{record.get('cpus')} processors", record.get("gpu")]
    machine = f"{record['host']} ({', '.join(str(part) for part in parts if part)})"
    ranks, precision = record.get("ranks"), record.get("precision")
    told = [machine, ranks and f"{ranks} rank{'s' * (ranks > 1)}", precision]
    return ", ".join(part for part in told if part)


def _versions(record: dict[str, Any]) -> str:
    versions = {"python": record.get("python"), **(record.get("libraries") or {})}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)
