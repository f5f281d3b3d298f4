"""Reading and writing of `result.h5`, the result file of one (method, seed)."""

import hashlib
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import UserError
from sad_hpc.evaluate.acting import ActingRule, Selection
from sad_hpc.evaluate.result import (
    ALL_MODES,
    HIGHER_IS_BETTER,
    MODES,
    Measure,
    ModeResult,
    Result,
)
from sad_hpc.storage.hdf5 import member, read_attribute, read_numbers, write_file

FORMAT_VERSION = 1
RESULT = "result.h5"
OF_CONTEXTS = "_context_rewards"
"""Suffix of the mode in the name of a reference's context rewards."""


def write_result(
    path: Path,
    attributes: dict[str, Any],
    tasks: dict[str, NDArray[Any]],
    modes: dict[str, ModeResult],
    selection: Selection | None = None,
) -> None:
    """Write a result file in one step.

        tasks/index (n) parameters (n, p)
        <mode>/steps (K) values (n, K) context_rewards (n, K)       attrs of `Measure`
        references/<name>/<mode> (n, K) <mode>_context_rewards (n, K)
        acting/temperature greedy_after_reward mean score error (R) attrs: chosen

    Context rewards are omitted if they were not counted, and `acting` if the config gives the rule.

    Args:
        path: path of the file.
        attributes: attributes of its root; `config` is written as JSON.
        tasks: datasets of the group `tasks`.
        modes: results by mode.
        selection: how the acting rule was chosen; None: the config gives it.
    """

    def fill(file: h5py.File) -> None:
        file.attrs["format_version"] = FORMAT_VERSION
        for name, value in attributes.items():
            file.attrs[name] = json.dumps(value, sort_keys=True) if name == "config" else value
        for name, array in tasks.items():
            _put(file, f"tasks/{name}", array)
        for mode, result in modes.items():
            group = file.create_group(mode)
            group.attrs.update(measure_attributes(result.measure))
            for name, array in own_arrays(result).items():
                _put(group, name, array)
            # Sorted, so that files of equal results have equal bytes.
            for reference, values in sorted(result.references.items()):
                _put(file, f"references/{reference}/{mode}", values)
            for reference, counts in sorted(result.reference_context_rewards.items()):
                _put(file, f"references/{reference}/{mode}{OF_CONTEXTS}", counts)
        if selection is not None:
            write_selection(file, selection)
        file.attrs["digest"] = _digest(modes, selection)

    write_file(path, fill)


def measure_attributes(measure: Measure) -> dict[str, Any]:
    """Return the attributes of a mode's group."""
    return {
        "metric": measure.metric,
        "higher_is_better": HIGHER_IS_BETTER[measure.metric],
        "axis": measure.axis,
        "headline": measure.headline,
    }


def own_arrays(result: ModeResult) -> dict[str, NDArray[Any]]:
    """Return the datasets of a mode's group, without those of references."""
    arrays: dict[str, NDArray[Any]] = {"steps": result.steps, "values": result.values}
    if result.context_rewards is not None:
        arrays["context_rewards"] = result.context_rewards
    return arrays


def _reference_arrays(result: ModeResult) -> dict[str, NDArray[Any]]:
    counts = result.reference_context_rewards
    return {
        **{f"references/{name}": values for name, values in result.references.items()},
        **{f"references/{name}{OF_CONTEXTS}": each for name, each in counts.items()},
    }


def _put(group: h5py.Group, name: str, array: NDArray[Any]) -> None:
    """Write a compressed dataset in a single chunk, which is smallest."""
    group.create_dataset(
        name, data=array, chunks=array.shape, compression="gzip", compression_opts=9, shuffle=True
    )


def modes_of(group: Any) -> list[str]:
    """Return the modes of a result's group, which must have MODES."""
    return [mode for mode in ALL_MODES if mode in MODES or mode in list(group)]


def write_selection(group: h5py.Group, selection: Selection) -> None:
    """Write the comparison of acting rules as the subgroup `acting`."""
    acting = group.create_group("acting")
    acting.attrs["chosen"] = selection.chosen
    acting["temperature"] = [rule.temperature for rule in selection.rules]
    for name in ("greedy_after_reward", "mean"):
        acting[name] = np.array([getattr(rule, name) for rule in selection.rules], np.uint8)
    acting["score"] = selection.scores
    if selection.errors is not None:
        acting["error"] = selection.errors


def read_selection(group: Any) -> Selection | None:
    """Read what `write_selection` has written, or None if there is none.

    Raises:
        ValueError: it is inconsistent.
    """
    if "acting" not in list(group):
        return None
    acting = _group(group, "acting")
    names = "temperature", "greedy_after_reward", "mean", "score"
    *settings, scores = (read_numbers(acting, name) for name in names)
    chosen = read_attribute(acting, "chosen", int)
    errors = read_numbers(acting, "error") if "error" in list(acting) else None
    if any(
        each.shape != (scores.size,) for each in (*settings, scores, errors) if each is not None
    ):
        raise ValueError("acting has arrays of different lengths")
    if not (0 <= chosen < scores.size and np.isfinite(scores).all()):
        raise ValueError("acting has no chosen rule")
    rules = [
        ActingRule(float(temperature), bool(after), bool(mean))
        for temperature, after, mean in zip(*settings, strict=True)
    ]
    return Selection(rules, scores.tolist(), chosen, None if errors is None else errors.tolist())


def _digest(modes: dict[str, ModeResult], selection: Selection | None) -> str:
    """Return a checksum of all names and numbers; those of HDF5 do not cover the whole file."""
    digest = hashlib.blake2b(digest_size=16)
    if selection is not None:
        digest.update(repr(selection).encode())
    for mode in sorted(modes, key=ALL_MODES.index):
        result = modes[mode]
        arrays = {**own_arrays(result), **_reference_arrays(result)}
        for name in sorted(arrays):
            digest.update(f"{mode}/{name} {result.measure} {arrays[name].dtype}".encode())
            digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def read_result(path: Path) -> Result:
    """Read and check one result file.

    Raises:
        UserError: the file is missing, not HDF5, of another format, or inconsistent.
    """
    try:
        with h5py.File(path, "r") as file:
            _check_version(path, file)
            modes = {
                mode: read_mode(
                    path,
                    _group(file, mode),
                    mode,
                    _read_references(file, mode),
                    _read_references(file, mode + OF_CONTEXTS),
                )
                for mode in modes_of(file)
            }
            selection = read_selection(file)
            if read_attribute(file, "digest", str) != _digest(modes, selection):
                raise _unusable(path, "was altered since it was written")
            return Result(
                path=path,
                row=read_attribute(file, "method", str),
                seed=read_attribute(file, "seed", int),
                task_family=read_attribute(file, "task_family", str),
                signature=read_attribute(file, "signature", str),
                modes=modes,
                selection=selection,
                tasks={name: read_numbers(file, f"tasks/{name}") for name in _group(file, "tasks")},
            )
    # TypeError: HDF5 has types that NumPy does not.
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise _unusable(path, f"cannot be read as HDF5 ({reason})") from error
    except KeyError as error:
        raise _unusable(path, f"is incomplete ({error.args[0]})") from error


def _unusable(path: Path, reason: str) -> UserError:
    return UserError(f"{path} {reason}; remove its folder and run `sad-hpc evaluate` again")


def _check_version(path: Path, file: Any) -> None:
    if "format_version" not in file.attrs:
        raise _unusable(path, "is not a result file: it has no format_version")
    version = read_attribute(file, "format_version", int)
    if version != FORMAT_VERSION:
        raise _unusable(path, f"has format {version}, but only {FORMAT_VERSION} is supported")


def read_mode(
    path: Path,
    group: Any,
    mode: str,
    references: dict[str, NDArray[Any]],
    reference_context_rewards: dict[str, NDArray[Any]],
) -> ModeResult:
    """Read and check a mode's group, which has `measure_attributes` and `own_arrays`.

    Args:
        path: the group's file, for errors.
        group: the group, of an untrusted file.
        mode: offline or online, for errors.
        references: see `ModeResult`.
        reference_context_rewards: see `ModeResult`.

    Raises:
        KeyError: an attribute or a dataset is missing.
        ValueError: an attribute or a dataset has another type.
        UserError: the arrays are not consistent with each other and the measure.
    """
    measure = Measure(
        read_attribute(group, "metric", str),
        read_attribute(group, "axis", str),
        read_attribute(group, "headline", int),
    )
    # A list of names, because a membership test of the group would follow a link.
    counted = read_numbers(group, "context_rewards") if "context_rewards" in list(group) else None
    steps, values = read_numbers(group, "steps"), read_numbers(group, "values")
    result = ModeResult(measure, steps, values, counted, references, reference_context_rewards)
    _check_measure(path, mode, measure, read_attribute(group, "higher_is_better", bool))
    _check_arrays(path, mode, result)
    return result


def _read_references(file: Any, dataset: str) -> dict[str, NDArray[Any]]:
    """Read a dataset of all references that have it."""
    others = _group(file, "references") if "references" in list(file) else {}
    return {
        name: read_numbers(others, f"{name}/{dataset}")
        for name in others
        if dataset in list(_group(others, name))
    }


def _group(group: Any, name: str) -> Any:
    found = member(group, name)
    if not isinstance(found, h5py.Group):
        raise ValueError(f"{name} is not a group")
    return found


def _check_measure(path: Path, mode: str, measure: Measure, higher_is_better: bool) -> None:
    if measure.metric not in HIGHER_IS_BETTER:
        valid = ", ".join(HIGHER_IS_BETTER)
        raise _unusable(path, f"has an unknown {mode} metric {measure.metric!r} (valid: {valid})")
    if HIGHER_IS_BETTER[measure.metric] != higher_is_better:
        raise _unusable(path, f"has higher_is_better={higher_is_better} for {measure.metric}")


def _check_arrays(path: Path, mode: str, result: ModeResult) -> None:
    shape = result.values.shape
    if len(shape) != 2 or 0 in shape:
        raise _unusable(path, f"has {mode} values of shape {shape}, not (n_tasks, K)")
    if not 1 <= result.measure.headline <= shape[1]:
        raise _unusable(path, f"has headline={result.measure.headline} of {shape[1]} columns")
    arrays = {**own_arrays(result), **_reference_arrays(result)}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise _unusable(path, f"has {mode} {name} that are not finite")
        expected = shape[1:] if name == "steps" else shape
        if array.shape != expected:
            raise _unusable(path, f"has {mode} {name} of shape {array.shape}, not {expected}")
    if (np.diff(result.steps, prepend=0) <= 0).any():
        raise _unusable(path, f"has {mode} steps that do not ascend from 1")
