"""Logged episodes of small rooms, as a Minari dataset."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from sad_hpc.dataset.interchange import _minari_folder
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family

Episode = tuple[int, Any, dict[str, Any]]
"""Number of the task, its parameters, and what the buffer has."""
ROOM = {"family": "darkroom", "size": 3, "horizon": 9, "train_goals": 6}


def room_run(folder: Path, **data: Any) -> Run:
    """A run of six rooms for training."""
    mapping = {"name": "rooms", "task": ROOM, "rows": ["SAD", "AD"], "evaluate": {"tasks": 2}}
    mapping["data"] = {"tasks": 9, "block_tasks": 4, "trust_horizon": 3} | data
    mapping["pretrain"] = {"epochs": 1, "holdout_tasks": 2, "batch_size": 4}
    return Run(parse_experiment(mapping, "test"), folder)


def play(goal: Any, steps: int, seed: int) -> dict[str, Any]:
    """An episode of random play in a room, logged as its environment shows it."""
    environment = gymnasium.make("sad_hpc/Darkroom-v0", size=3, horizon=steps, goal=tuple(goal))
    environment.action_space.seed(seed)
    observation, _ = environment.reset()
    observations, actions, rewards = [observation], [], []
    for _ in range(steps):
        actions.append(environment.action_space.sample())
        observation, reward, *_ = environment.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
    return {
        "observations": np.stack(observations),
        "actions": np.array(actions),
        "rewards": np.array(rewards),
        "terminations": np.zeros(steps, np.bool_),
        "truncations": np.arange(steps) == steps - 1,
    }


def rooms(run: Run) -> list[Episode]:
    """Return episodes of 5 steps of training goals in a mixed order, and then a second round."""
    goals = make_family(run.experiment.task).distinct["train"][[5, 3, 2, 2, 1, 0]]
    return [
        (10 * task, goal, play(goal, 5, seed=10 * again + task))
        for again in range(2)
        for task, goal in enumerate(goals)
    ]


def logged(folder: Path, episodes: list[Episode], **changes: Any) -> Path:
    """A Minari dataset of episodes."""
    told = {
        "observation_space": spaces.MultiDiscrete([3, 3]),
        "action_space": spaces.Discrete(5),
        "origin": {"config": {"task": ROOM | {"horizon": 5, "train_goals": 2}}},
        "names": ("task_index", "task_parameters"),
    } | changes
    folder.mkdir(parents=True)
    with _minari_folder(str(folder)), warnings.catch_warnings(action="ignore"):
        dataset = minari.create_dataset_from_buffers(
            "rooms-v0",
            [EpisodeBuffer(**{"infos": {}} | steps) for _, _, steps in episodes],
            observation_space=told["observation_space"],
            action_space=told["action_space"],
        )
    tasks = [dict(zip(told["names"], each[:2], strict=True)) for each in episodes]
    dataset.storage.update_episode_metadata(tasks, range(len(tasks)))
    if told["origin"] is not None:
        dataset.storage.update_metadata({"sad_hpc": told["origin"]})
    return folder / "rooms-v0"
