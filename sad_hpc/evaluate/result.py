"""The result file of one (method, seed), `result.h5`: what it reached on every test task."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import SadError
from sad_hpc.storage.hdf5 import member, read_attribute, read_numbers, write_file

FORMAT_VERSION = 1
RESULT = "result.h5"

MODES = ("offline", "online")
SUBSETS = ("all", "reward_seen")
HIGHER_IS_BETTER = {"return": True, "suboptimality": False, "regret": False}
"""By metric."""


@dataclass(frozen=True)
class Measure:
    """What the numbers of a mode mean."""

    metric: str
    """return, suboptimality or regret."""
    axis: str
    """What the K columns count: episode, context length or pull."""
    headline: int
    """The number in the tables is the mean over the last so many columns."""


@dataclass(frozen=True)
class ModeResult:
    """One mode, offline or online, of one element."""

    measure: Measure
    values: NDArray[np.float32]
    """(n_tasks, K)"""
    context_rewards: NDArray[np.int32] | None
    """(n_tasks, K): rewarded transitions in the context of each entry, where they were counted."""
    references: dict[str, NDArray[np.float32]]
    """(n_tasks, K) by name: what other policies reach on the same tasks."""
    reference_context_rewards: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    """(n_tasks, K) by name, of references that collect contexts of their own."""

    @classmethod
    def of_chunks(cls, chunks: Sequence["ModeResult"]) -> "ModeResult":
        """The results of successive tasks as one."""
        first = chunks[0]
        counted = [each.context_rewards for each in chunks if each.context_rewards is not None]
        return cls(
            first.measure,
            np.concatenate([each.values for each in chunks]),
            np.concatenate(counted) if counted else None,
            {
                name: np.concatenate([each.references[name] for each in chunks])
                for name in first.references
            },
        )

    @property
    def headline_mean(self) -> float:
        """The number in the tables, for this one seed."""
        return float(self.values[:, -self.measure.headline :].mean())

    @property
    def subsets(self) -> tuple[str, ...]:
        """The subsets that can be told apart."""
        return SUBSETS[:1] if self.context_rewards is None else SUBSETS

    def mask(self, subset: str) -> NDArray[np.bool_]:
        """(n_tasks, K): which entries belong to `subset`."""
        if subset == "all" or self.context_rewards is None:
            return np.ones(self.values.shape, dtype=bool)
        return self.context_rewards > 0


@dataclass(frozen=True)
class Result:
    """One element's result file."""

    path: Path
    method: str
    """Of a copy in a results folder: the row of its tables."""
    seed: int
    task_family: str
    signature: str
    modes: dict[str, ModeResult]


def write_result(
    path: Path,
    attributes: dict[str, Any],
    tasks: dict[str, NDArray[Any]],
    modes: dict[str, ModeResult],
) -> None:
    """Writes a result file in one step.

    Args:
        path: of the file.
        attributes: of its root; `config` is written as JSON.
        tasks: datasets of the group `tasks`.
        modes: offline and online.
    """

    def fill(file: h5py.File) -> None:
        file.attrs["format_version"] = FORMAT_VERSION
        for name, value in attributes.items():
            file.attrs[name] = json.dumps(value, sort_keys=True) if name == "config" else value
        for name, array in tasks.items():
            _put(file, f"tasks/{name}", array)
        for mode, result in modes.items():
            measure = result.measure
            group = file.create_group(mode)
            group.attrs.update(
                metric=measure.metric,
                higher_is_better=HIGHER_IS_BETTER[measure.metric],
                axis=measure.axis,
                headline=measure.headline,
            )
            _put(group, "values", result.values)
            if result.context_rewards is not None:
                _put(group, "context_rewards", result.context_rewards)
            for reference, values in result.references.items():
                _put(file, f"references/{reference}/{mode}", values)
        file.attrs["digest"] = _digest(modes)

    write_file(path, fill)


def _put(group: h5py.Group, name: str, array: NDArray[Any]) -> None:
    """Compressed, for results are kept for good."""
    group.create_dataset(name, data=array, compression="gzip", shuffle=True)


def _digest(modes: dict[str, ModeResult]) -> str:
    """A checksum of all names and numbers: HDF5's own do not cover every byte of a file."""
    digest = hashlib.blake2b(digest_size=16)
    for mode in MODES:
        result = modes[mode]
        arrays: dict[str, NDArray[Any]] = {"values": result.values, **result.references}
        if result.context_rewards is not None:
            arrays["context_rewards"] = result.context_rewards
        for name in sorted(arrays):
            digest.update(f"{mode}/{name} {result.measure} {arrays[name].dtype}".encode())
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def read_result(path: Path) -> Result:
    """Reads and checks one result file.

    Raises:
        SadError: it is missing, is no HDF5, has another format or contradicts itself.
    """
    try:
        with h5py.File(path, "r") as file:
            _check_version(path, file)
            modes = {mode: _read_mode(path, file, mode) for mode in MODES}
            if read_attribute(file, "digest", str) != _digest(modes):
                raise _unusable(path, "was altered since it was written")
            return Result(
                path=path,
                method=read_attribute(file, "row" if "row" in file.attrs else "method", str),
                seed=read_attribute(file, "seed", int),
                task_family=read_attribute(file, "task_family", str),
                signature=read_attribute(file, "signature", str),
                modes=modes,
            )
    # TypeError: HDF5 has types that NumPy does not.
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise _unusable(path, f"cannot be read as HDF5 ({reason})") from error
    except KeyError as error:
        raise _unusable(path, f"is incomplete ({error.args[0]})") from error


def _unusable(path: Path, reason: str) -> SadError:
    return SadError(f"{path} {reason}; remove its folder and run `sad-hpc evaluate` again")


def _check_version(path: Path, file: Any) -> None:
    if "format_version" not in file.attrs:
        raise _unusable(path, "is no result file: it has no format_version")
    version = read_attribute(file, "format_version", int)
    if version != FORMAT_VERSION:
        raise _unusable(path, f"has format {version}, but only {FORMAT_VERSION} is understood")


def _read_mode(path: Path, file: Any, mode: str) -> ModeResult:
    group = _group(file, mode)
    measure = Measure(
        read_attribute(group, "metric", str),
        read_attribute(group, "axis", str),
        read_attribute(group, "headline", int),
    )
    # Lists of names: to ask a group itself would follow a link.
    counted = read_numbers(group, "context_rewards") if "context_rewards" in list(group) else None
    others = _group(file, "references") if "references" in list(file) else {}
    references = {
        name: read_numbers(others, f"{name}/{mode}")
        for name in others
        if mode in list(_group(others, name))
    }
    result = ModeResult(measure, read_numbers(group, "values"), counted, references)
    _check_measure(path, mode, measure, read_attribute(group, "higher_is_better", bool))
    _check_arrays(path, mode, result)
    return result


def _group(group: Any, name: str) -> Any:
    found = member(group, name)
    if not isinstance(found, h5py.Group):
        raise ValueError(f"{name} is no group")
    return found


def _check_measure(path: Path, mode: str, measure: Measure, higher_is_better: bool) -> None:
    if measure.metric not in HIGHER_IS_BETTER:
        valid = ", ".join(HIGHER_IS_BETTER)
        raise _unusable(path, f"has an unknown {mode} metric {measure.metric!r} (valid: {valid})")
    if HIGHER_IS_BETTER[measure.metric] != higher_is_better:
        raise _unusable(path, f"says higher_is_better={higher_is_better} of {measure.metric}")


def _check_arrays(path: Path, mode: str, result: ModeResult) -> None:
    shape = result.values.shape
    if len(shape) != 2 or 0 in shape:
        raise _unusable(path, f"has {mode} values of shape {shape}, not (n_tasks, K)")
    if not 1 <= result.measure.headline <= shape[1]:
        raise _unusable(path, f"has headline={result.measure.headline} of {shape[1]} columns")
    arrays: dict[str, NDArray[Any]] = {"values": result.values, **result.references}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise _unusable(path, f"has {mode} {name} that are not finite")
    if result.context_rewards is not None:
        arrays["context_rewards"] = result.context_rewards
    for name, array in arrays.items():
        if array.shape != shape:
            raise _unusable(path, f"has {mode} {name} of shape {array.shape}, not {shape}")
