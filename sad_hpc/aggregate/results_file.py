"""results.h5: every value of an experiment in one file, readable with plain h5py.

    /                                  attrs format_version experiment title trained_title
                                       task_family horizon has_episodes digest, and as JSON
                                       sweep config missing
    rows/<slug>/                       attrs row order method settings (JSON) label_accuracy
                                       context_transitions label_transitions
    rows/<slug>/seeds/<seed>/          attrs signature commit
        offline/  online/              attrs metric axis headline higher_is_better
            steps (K)  values (n, K)  context_rewards (n, K)
            references/<name>/         values (n, K)  context_rewards (n, K)
        training/                      epochs (E)  step (E)  holdout_loss (E) ...
        tasks/                         index (n)  parameters (n, p)
    references/<name>/seeds/<seed>/<mode>/    link to the reference of the first row that has it

Equal arrays are stored once and shared by hard links.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import EXACT, ModeResult, Result
from sad_hpc.evaluate.result_file import (
    measure_attributes,
    modes_of,
    own_arrays,
    read_mode,
    read_selection,
    write_selection,
)
from sad_hpc.experiment.rows import slug
from sad_hpc.storage.hdf5 import member, read_attribute, read_numbers, write_file

FORMAT_VERSION = 1
RESULTS = "results.h5"
TEXTS = ("experiment", "title", "trained_title", "task_family")
JSON = {"sweep": list, "config": dict, "missing": list}
LABEL_FACTS = ("label_accuracy", "context_transitions", "label_transitions")
SMALL_BYTES = 2048
"""Arrays below this size are not compressed, since a chunk's index would be larger."""


@dataclass(frozen=True)
class RowFacts:
    """A row of the tables: its settings, label accuracy and transitions."""

    row: str
    method: str
    settings: Mapping[str, Any]
    """Differences from the experiment's config, by dotted key."""
    label_accuracy: float = float("nan")
    """Share of training labels that are optimal actions; NaN if unknown."""
    context_transitions: float = float("nan")
    """Environment transitions of a training task's context."""
    label_transitions: float = float("nan")
    """Environment transitions of all labels of a training task."""


@dataclass(frozen=True)
class SeedResult:
    """One trained model of a row: its values on every test task, and its training curves."""

    result: Result
    commit: str
    """Git commit of its evaluation; empty if unknown."""
    training: Mapping[str, NDArray[Any]]
    """`epochs` (E,) and the curves (E,) of its training, see `read_epochs`; may be empty."""


@dataclass(frozen=True)
class ExperimentResults:
    """The content of results.h5."""

    experiment: str
    title: str
    """Title of the environment in pages and figures."""
    trained_title: str
    """Title of the training's environment, which may be another one."""
    task_family: str
    horizon: int
    """T: the number of transitions in a context."""
    has_episodes: bool
    """True if the contexts of AD and DIT are episodes, unlike those of the other methods."""
    sweep: list[str]
    """Dotted keys of a sweep; the first one is the horizontal axis of its figure."""
    config: Mapping[str, Any]
    missing: list[tuple[str, int]]
    """The (row, seed)s without a result."""
    rows: Mapping[str, RowFacts]
    seeds: list[SeedResult]

    @property
    def results(self) -> list[Result]:
        """The values of every (row, seed)."""
        return [each.result for each in self.seeds]


def write_results(path: Path, found: ExperimentResults) -> None:
    """Write results.h5 atomically."""

    def fill(file: h5py.File) -> None:
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["horizon"] = found.horizon
        file.attrs["has_episodes"] = found.has_episodes
        for name, text in _texts(found).items():
            file.attrs[name] = text
        store = _Store()
        for number, (row, facts) in enumerate(found.rows.items()):
            group = file.create_group(f"rows/{slug(row)}")
            group.attrs.update(_facts(facts), order=number)
        for each in found.seeds:
            group = file.create_group(f"rows/{slug(each.result.row)}/seeds/{each.result.seed}")
            _write_seed(store, group, each)
            _link_references(file, group, each.result.seed)
        file.attrs["digest"] = _digest(found)

    write_file(path, fill)


class _Store:
    """Writer that stores each distinct array of a file once."""

    def __init__(self) -> None:
        self._known: dict[bytes, h5py.Dataset] = {}

    def put(self, group: h5py.Group, name: str, array: NDArray[Any]) -> None:
        content = f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        key = hashlib.blake2b(content).digest()
        if key in self._known:
            group[name] = self._known[key]
            return
        filters: dict[str, Any] = {}
        if array.nbytes >= SMALL_BYTES:
            filters = {"chunks": array.shape, "compression": 9, "shuffle": True}
        self._known[key] = group.create_dataset(name, data=array, **filters)


def _write_seed(store: _Store, group: h5py.Group, each: SeedResult) -> None:
    group.attrs.update(signature=each.result.signature, commit=each.commit)
    if each.result.selection is not None:
        write_selection(group, each.result.selection)
    for mode, part in each.result.modes.items():
        place = group.create_group(mode)
        place.attrs.update(measure_attributes(part.measure))
        for name, array in _mode_arrays(part):
            store.put(place, name, array)
    for name, array in each.training.items():
        store.put(group, f"training/{name}", array)
    for name, array in each.result.tasks.items():
        store.put(group, f"tasks/{name}", array)


def _link_references(file: h5py.File, group: h5py.Group, seed: int) -> None:
    for mode in modes_of(group):
        for name, reference in group.get(f"{mode}/references", {}).items():
            if name == EXACT:  # each row has its own
                continue
            place = f"references/{name}/seeds/{seed}/{mode}"
            if place not in file:
                file[place] = reference


def _texts(found: ExperimentResults) -> dict[str, str]:
    texts: dict[str, str] = {name: getattr(found, name) for name in TEXTS}
    return texts | {name: json.dumps(getattr(found, name)) for name in JSON}


def _facts(facts: RowFacts) -> dict[str, Any]:
    return vars(facts) | {"settings": json.dumps(facts.settings, sort_keys=True)}


def _mode_arrays(part: ModeResult) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the arrays of a mode with their paths below its group."""
    yield from own_arrays(part).items()
    for name in sorted(part.references):
        yield f"references/{name}/values", part.references[name]
        if name in part.reference_context_rewards:
            yield f"references/{name}/context_rewards", part.reference_context_rewards[name]


def _digest(found: ExperimentResults) -> str:
    """Return a checksum of all texts and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    attributes = [found.horizon, found.has_episodes, _texts(found)]
    digest.update(json.dumps(attributes, sort_keys=True).encode())
    for row in sorted(found.rows):
        digest.update(json.dumps(_facts(found.rows[row]), sort_keys=True).encode())
    for each in sorted(found.seeds, key=lambda one: (one.result.row, one.result.seed)):
        result = each.result
        digest.update(f"{result.row} {result.seed} {result.signature} {each.commit}".encode())
        if result.selection is not None:
            digest.update(repr(result.selection).encode())
        for mode, part in result.modes.items():
            digest.update(f"{mode} {part.measure}".encode())
            for name, array in _mode_arrays(part):
                _add(digest, name, array)
        for name, array in sorted(each.training.items()):
            _add(digest, name, array)
        for name, array in sorted(each.result.tasks.items()):
            _add(digest, name, array)
    return digest.hexdigest()


def _add(digest: Any, name: str, array: NDArray[Any]) -> None:
    digest.update(f"{name} {array.dtype} {array.shape}".encode())
    digest.update(np.ascontiguousarray(array).tobytes())


def read_results(path: Path) -> ExperimentResults:
    """Read and check a results.h5, which may be untrusted.

    Raises:
        UserError: the file is not a results.h5, has another format version, was changed or is
            inconsistent.
    """
    try:
        with h5py.File(path, "r") as file:
            version = read_attribute(file, "format_version", int)
            if version != FORMAT_VERSION:
                raise ValueError(f"format {version}, but only {FORMAT_VERSION} is supported")
            found = _read(path, file)
            if read_attribute(file, "digest", str) != _digest(found):
                raise ValueError("altered since it was written")
            return found
    # TypeError: HDF5 has types that NumPy lacks.
    except (OSError, RuntimeError, TypeError, ValueError, KeyError) as error:
        reason = " ".join(str(error.args[0] if error.args else error).split())
        raise UserError(
            f"{path} was not written by `sad-hpc aggregate` ({reason}): run it again, or move the "
            "folder away"
        ) from error


def _read(path: Path, file: h5py.File) -> ExperimentResults:
    content: dict[str, Any] = {name: read_attribute(file, name, str) for name in TEXTS}
    content |= {name: _json(read_attribute(file, name, str), kind) for name, kind in JSON.items()}
    content["missing"] = [(str(row), int(seed)) for row, seed in content["missing"]]
    rows: dict[str, RowFacts] = {}
    seeds: list[SeedResult] = []
    groups = [member(file, f"rows/{name}") for name in list(member(file, "rows"))]
    for group in sorted(groups, key=lambda each: read_attribute(each, "order", int)):
        facts = _read_facts(group)
        rows[facts.row] = facts
        for seed in list(member(group, "seeds")) if "seeds" in list(group) else []:
            place = member(group, f"seeds/{seed}")
            seeds.append(_read_seed(path, place, facts.row, int(seed), content["task_family"]))
    if not seeds:
        raise ValueError("no row has a result")
    order = list(rows)
    return ExperimentResults(
        **content,
        horizon=read_attribute(file, "horizon", int),
        has_episodes=read_attribute(file, "has_episodes", bool),
        rows=rows,
        seeds=sorted(seeds, key=lambda one: (order.index(one.result.row), one.result.seed)),
    )


def _json(text: str, kind: type[Any]) -> Any:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"an attribute is not JSON: {error}") from error
    if not isinstance(content, kind):
        raise ValueError(f"an attribute is not a JSON {kind.__name__}")
    return content


def _read_facts(group: h5py.Group) -> RowFacts:
    return RowFacts(
        read_attribute(group, "row", str),
        read_attribute(group, "method", str),
        _json(read_attribute(group, "settings", str), dict),
        **{name: read_attribute(group, name, float) for name in LABEL_FACTS},
    )


def _read_seed(path: Path, group: h5py.Group, row: str, seed: int, family: str) -> SeedResult:
    signature = read_attribute(group, "signature", str)
    modes = {mode: _read_mode(path, member(group, mode), mode) for mode in modes_of(group)}
    selection, tasks = read_selection(group), _read_arrays(group, "tasks")
    return SeedResult(
        Result(path, row, seed, family, signature, modes, selection, tasks),
        read_attribute(group, "commit", str),
        _read_training(group),
    )


def _read_arrays(group: h5py.Group, name: str) -> dict[str, NDArray[Any]]:
    if name not in list(group):
        return {}
    inside = member(group, name)
    return {part: read_numbers(inside, part) for part in list(inside)}


def _read_training(group: h5py.Group) -> dict[str, NDArray[Any]]:
    curves = _read_arrays(group, "training")
    if any(curve.shape != (len(curves["epochs"]),) for curve in curves.values()):
        raise ValueError("training curves differ in length")
    return curves


def _read_mode(path: Path, group: h5py.Group, mode: str) -> ModeResult:
    others = member(group, "references") if "references" in list(group) else {}
    references = {name: member(others, name) for name in list(others)}
    values = {name: read_numbers(each, "values") for name, each in references.items()}
    counted = {
        name: read_numbers(each, "context_rewards")
        for name, each in references.items()
        if "context_rewards" in list(each)
    }
    return read_mode(path, group, mode, values, counted)
