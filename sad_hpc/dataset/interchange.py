"""Export of a split's episodes as a Minari dataset, which other libraries for offline RL read.

    FOLDER/<experiment>-<split>-v0/     for `minari.load_dataset` with MINARI_DATASETS_PATH=FOLDER

It has the episodes that AD and DIT are trained on, task by task.  An episode's metadata has its
task.  The dataset's metadata has the config under `sad_hpc`.
"""

import functools
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from sad_hpc.dataset.layout import layout
from sad_hpc.dataset.reader import Arrays, read_shard
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import origin_of
from sad_hpc.errors import UserError
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.storage.files import write_error
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily, jumps
from sad_hpc.tasks.simulated import SimulatedFamily
from sad_hpc.tasks.tabular import TabularFamily

ROOT = "MINARI_DATASETS_PATH"
"""The environment variable with Minari's folder; the default is in the home folder."""


def dataset_id(experiment: str, split: str) -> str:
    """Return the Minari id of a split's episodes; ids have no dots."""
    return f"{experiment.replace('.', '_')}-{split}-v0"


def export_episodes(source: Path, manifest: Manifest, experiment: str, folder: Path) -> int:
    """Write the episodes of a split as a Minari dataset.

    Args:
        source: folder of the split.
        manifest: its complete manifest.
        experiment: name of the experiment.
        folder: folder of Minari datasets.

    Returns:
        the number of episodes.

    Raises:
        UserError: Minari is not installed, the dataset exists or cannot be written, or the family
            is not supported.
        DatasetError: the split is damaged.
    """
    minari, name = minari_library(), dataset_id(experiment, manifest.split)
    family, data = origin_of(manifest)
    observations, actions = observation_space(family), action_space(family)
    split = {"split": manifest.split, "signature": manifest.signature}
    target = folder / name
    if target.exists():
        raise UserError(f"{target} already exists: choose another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A rename makes the complete dataset visible at once; Minari ignores hidden folders.
        # An absolute path, because Minari does not find its files by a relative one.
        whole = folder.absolute()
        with tempfile.TemporaryDirectory(dir=whole, prefix=f".{name}-") as unfinished:
            with _minari_folder(unfinished), warnings.catch_warnings(action="ignore"):
                dataset = minari.create_dataset_from_buffers(
                    name,
                    [],
                    observation_space=observations,
                    action_space=actions,
                    algorithm_name=_policy(data, manifest.split),
                    description=f"{family.description}. Each episode's metadata has its task.",
                )
            for _, entry in sorted(manifest.shards.items()):
                arrays = read_shard(source, manifest, entry, _names(family), layout(family, data))
                _append(dataset, arrays, family.config.horizon, split)
            origin = {**split, "digest": manifest.digest, "config": manifest.config}
            dataset.storage.update_metadata({"sad_hpc": {"experiment": experiment, **origin}})
            (Path(unfinished) / name).rename(target)
    except OSError as error:
        raise write_error(target, error) from error
    return int(dataset.total_episodes)


def cut_into_episodes(
    context: Mapping[str, NDArray[Any]], horizon: int
) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
    """Divide contexts (n, t, ...) in time order into episodes.

    An episode's last observation is the next state of its last step.  An episode that does not end
    by itself is truncated after T steps, or where the next one begins.

    Args:
        context: arrays of the contexts; those of learning histories have several episodes.
        horizon: T.

    Yields:
        the number of the context, and the arrays of an episode of m steps: observations (m + 1, d)
        and actions (m,) or (m, a) with the context's dtypes, rewards (m,) as floats, terminations
        (m,) and truncations (m,).
    """
    states, next_states, rewards = (context[p] for p in ("states", "next_states", "rewards"))
    ended = context.get("ends", np.zeros_like(rewards)) != 0
    last = ended.copy()
    last[:, :-1] |= jumps(states, next_states)
    last[:, horizon - 1 :: horizon] = True
    last[:, -1] = True
    for number in range(len(rewards)):
        first = 0
        for final in np.flatnonzero(last[number]).tolist():
            steps = number, slice(first, final + 1)
            yield (
                number,
                {
                    "observations": np.concatenate(
                        [states[steps], next_states[number, final][None]]
                    ),
                    "actions": context["actions"][steps],
                    "rewards": rewards[steps].astype(np.result_type(rewards, np.float32)),
                    "terminations": ended[steps],
                    "truncations": last[steps] & ~ended[steps],
                },
            )
            first = final + 1


@functools.singledispatch
def observation_space(family: TaskFamily) -> spaces.Box:
    """Return the space of states with a dataset's dtype.

    Raises:
        UserError: the family is not supported.
    """
    reason = "Minari datasets are for tabular and simulated families, and for bandits"
    if family.image_size is not None:
        reason = "a dataset has no image of the state after an episode's last step"
    raise UserError(f"{family.name} cannot be exported: {reason}")


@observation_space.register
def _of_tables(family: TabularFamily) -> spaces.Box:
    """Return a box from the smallest to the largest value of each coordinate."""
    cells = family.coordinates
    return spaces.Box(cells.min(axis=0), cells.max(axis=0), dtype=cells.dtype)


@observation_space.register
def _of_bandits(family: BanditFamily) -> spaces.Box:
    """Return the space of the only state."""
    return spaces.Box(0, 0, (1,), np.uint8)


@observation_space.register
def _of_simulators(family: SimulatedFamily) -> spaces.Box:
    """Return a box of images, or an unbounded one of numbers."""
    if family.frame_shape is not None:
        return spaces.Box(0, 255, family.frame_shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, (len(family.state_center),), np.float32)


def action_space(family: TaskFamily) -> Space[Any]:
    """Return the space of actions in a dataset: numbers, or vectors in [-1, 1]^a."""
    if family.components is None:
        return spaces.Discrete(family.n_actions)
    return spaces.Box(-1, 1, (family.components,), np.float32)


def _names(family: TaskFamily) -> list[str]:
    """Return the HDF5 names of contexts in time order and of their tasks."""
    group = "episodes" if "episodes" in family.context_groups else "transitions"
    parts = ["states", "actions", "rewards", "next_states", *(["ends"] if family.has_ends else [])]
    return [*(f"{group}/{part}" for part in parts), "tasks/index", "tasks/parameters"]


def _append(dataset: Any, arrays: Arrays, horizon: int, split: Mapping[str, str]) -> None:
    """Add the episodes of a shard, with their tasks as metadata."""
    from minari.data_collector import EpisodeBuffer

    groups = [name.split("/") for name in arrays]
    context = {part: arrays[f"{group}/{part}"] for group, part in groups if group != "tasks"}
    cut = list(cut_into_episodes(context, horizon))
    before = dataset.total_episodes
    dataset.update_dataset_from_buffer([EpisodeBuffer(**steps, infos={}) for _, steps in cut])
    index, parameters = arrays["tasks/index"], arrays["tasks/parameters"]
    tasks = [
        {"task_index": index[number], "task_parameters": parameters[number], **split}
        for number, _ in cut
    ]
    dataset.storage.update_episode_metadata(tasks, range(before, before + len(cut)))


def minari_library() -> ModuleType:
    """Import Minari.

    Raises:
        UserError: Minari is not installed.
    """
    try:
        import minari
    except ImportError as error:
        raise UserError(f"Minari is missing ({error}): pip install 'sad_hpc[minari]'") from error
    return minari


@contextmanager
def _minari_folder(folder: str) -> Iterator[None]:
    """Set Minari's folder, instead of the one in the user's home, in this context."""
    before = os.environ.get(ROOT)
    os.environ[ROOT] = folder
    try:
        yield
    finally:
        if before is None:
            del os.environ[ROOT]
        else:
            os.environ[ROOT] = before


def _policy(data: DataConfig, split: str) -> str:
    """Name the policy of the episodes."""
    if data.imported_contexts and split == "train":
        return "as logged"
    if data.q_learning_steps:
        return "tabular Q-learning"
    if data.draws_policies(split):
        return "random policies, one a task"
    return f"random policy ({data.behavior_policy})"
