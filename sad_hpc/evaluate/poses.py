"""Evaluation on Miniworld: returns of episodes in rendered rooms.

This is Algorithm 6.  Offline, the agent acts greedily under a given context.  Online, it samples
actions from the softmax, and past episodes form the next context (see `evaluate.memory`).  A
context is constant for an episode, so it is encoded once and queried at every step.

Motion comes from the compiled kernel, and images of all rooms from one renderer.  The image encoder
reads each image once, and the features are reused when the transition becomes context.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.dataset.reader import Arrays
from sad_hpc.distill.pose_contexts import sample_pose_episodes
from sad_hpc.evaluate.acting import ActingRule, greedy, sampled
from sad_hpc.evaluate.agent_memory import history_places
from sad_hpc.evaluate.encoded import EncodedContexts, tokens_of
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.result import ModeResult
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.kernels.random import stream
from sad_hpc.model.context import Context, Queries
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.tasks.miniworld.family import Miniworld
from sad_hpc.tasks.miniworld.motion import step_poses
from sad_hpc.tasks.miniworld.render_process import shared_process
from sad_hpc.tasks.miniworld.room import ROOM_SIZE
from sad_hpc.tasks.miniworld.shortest import steps_to_reward

RANDOM_EPISODES = 100
"""Number of rollouts in each task that estimate the reference `random`."""

Choose = Callable[[NDArray[np.float32]], NDArray[np.int64]]
"""A function from logits (n, A) to actions (n,)."""


@dataclass(frozen=True)
class Walk:
    """An episode in each of n rooms."""

    starts: NDArray[np.float64]
    """(n, 3) start poses."""
    tokens: Tensor
    """(n, T, width): tokens of the transitions, for the next context."""
    rewards: NDArray[np.uint8]
    """(n, T)"""
    keys: NDArray[np.int64]
    """(n, T): numbers that are equal for equal poses and actions."""

    @property
    def returns(self) -> NDArray[np.float32]:
        """Returns of the episodes, (n,)."""
        return self.rewards.sum(axis=1, dtype=np.float32)


def evaluate_poses(
    family: Miniworld,
    evaluation: Evaluation,
    columns: Arrays,
) -> dict[str, ModeResult]:
    """Measure offline and online returns; see `families.evaluate_family`."""
    trained, settings = evaluation.trained, evaluation.settings
    targets = columns["tasks/parameters"][:, 0].astype(np.int64)
    rooms = Rooms(trained.model, family, targets, settings.batch_size, evaluation.generator)
    context = trained.shown(Context.of_group(columns, settings.context))
    offline = rooms.walk(rooms.read(context), greedy)
    evaluation.report(1)
    random = random_returns(family, targets, int(columns["tasks/index"][0]))
    modes = {"offline": _result(random, targets, [offline], [context.rewarded], 1)}
    count = settings.online_episodes
    for mode, rule, each in evaluation.online_modes(1, count):
        walks, seen = _walks(rooms, each, rule)
        modes[mode] = _result(random, targets, walks, seen, settings.headline_episodes)
    return modes


def play_rooms(
    family: Miniworld,
    evaluation: Evaluation,
    parameters: NDArray[Any],
    rule: ActingRule,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Play online; see `families.play_online`."""
    targets = parameters[:, 0].astype(np.int64)
    size = evaluation.settings.batch_size
    rooms = Rooms(evaluation.trained.model, family, targets, size, evaluation.generator)
    walks, seen = _walks(rooms, evaluation, rule)
    return np.stack([walk.returns for walk in walks], axis=1), np.stack(seen, axis=1)


def _walks(
    rooms: "Rooms",
    evaluation: Evaluation,
    rule: ActingRule,
) -> tuple[list[Walk], list[NDArray[np.int32]]]:
    """Play successive episodes, and return them with the numbers of rewards in their contexts."""
    longest, settings = evaluation.trained.longest, evaluation.settings
    generator = evaluation.generator
    walks: list[Walk] = []
    seen: list[NDArray[np.int32]] = []

    def sample(logits: NDArray[np.float32]) -> NDArray[np.int64]:
        return sampled(rule.applied(logits, seen[-1] > 0), generator.random(len(logits)))

    for episode in range(settings.online_episodes):
        tokens = rooms.nothing()
        rewards: NDArray[Any] = np.zeros((len(tokens), 0))
        if walks:
            tokens, rewards = _remembered(walks, settings.memory, longest, generator)
        seen.append(rewards.sum(axis=1).astype(np.int32))
        walks.append(rooms.walk(tokens, sample))
        evaluation.report(1 + episode)
    return walks, seen


def _remembered(
    walks: list[Walk], memory: str, size: int, generator: np.random.Generator
) -> tuple[Tensor, NDArray[Any]]:
    """Return tokens (n, size, width) and rewards (n, size) of the next context."""
    if memory == "episode":
        last, first = walks[-1], max(0, walks[-1].rewards.shape[1] - size)
        return last.tokens[:, first:], last.rewards[:, first:]
    rewards = np.concatenate([walk.rewards for walk in walks], axis=1)
    keys = np.concatenate([walk.keys for walk in walks], axis=1)
    places = history_places(keys, rewards > 0, size, generator)
    tokens = torch.cat([walk.tokens for walk in walks], dim=1)
    chosen = torch.from_numpy(places).to(tokens.device)[:, :, None]
    shown = tokens.take_along_dim(chosen, dim=1)
    return shown, np.take_along_axis(rewards, places, axis=1)


class Rooms:
    """n rooms, and the model that acts in them."""

    def __init__(
        self,
        model: SequenceModel,
        family: Miniworld,
        targets: NDArray[np.int64],
        batch_size: int,
        generator: np.random.Generator,
    ) -> None:
        self._model, self._targets, self._batch_size = model, targets, batch_size
        self._horizon, self._generator = family.config.horizon, generator
        self._renderer = shared_process(family.config.image_size)
        self._device = model.device
        self._numbers: dict[bytes, int] = {}

    def nothing(self) -> Tensor:
        """Return empty contexts, (n, 0, width)."""
        return torch.empty(len(self._targets), 0, self._model.inputs.width, device=self._device)

    def read(self, context: Context) -> Tensor:
        """Return the tokens of contexts, (n, t, width)."""
        return tokens_of(self._model, context, self._batch_size)

    @torch.no_grad()
    def walk(self, context: Tensor, choose: Choose) -> Walk:
        """Play one episode from the middle of the room, under fixed contexts (n, t, width)."""
        starts = self._starts()
        encoded = EncodedContexts.of_tokens(self._model, context, self._batch_size)
        poses, rewards, tokens, keys = starts, [], [], []
        for _ in range(self._horizon):
            query = self._query(poses)
            actions = choose(encoded.ask(query)[:, 0]).astype(np.uint8)
            keys.append(self._keys(poses, actions))
            poses, paid = step_poses(poses, actions, self._targets)
            rewards.append(paid)
            tokens.append(
                self._model.transition_tokens(
                    query[:, :, : self._model.inputs.features],
                    torch.from_numpy(actions).to(self._device)[:, None],
                    None,
                    torch.from_numpy(paid).to(self._device)[:, None],
                )
            )
        walked = torch.cat(tokens, dim=1)
        return Walk(starts, walked, np.stack(rewards, axis=1), np.stack(keys, axis=1))

    def _keys(self, poses: NDArray[np.float64], actions: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return numbers (n,) that identify poses (n, 3) and actions (n,) among all so far."""
        rows = np.column_stack([poses, actions])
        numbers = self._numbers
        return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows])

    def _query(self, poses: NDArray[np.float64]) -> Tensor:
        """Return query tokens (n, 1, width) of poses (n, 3), with features of rendered images."""
        states, images = torch.from_numpy(poses), torch.from_numpy(self._renderer.render(poses))
        queries = Queries(
            states[:, None].to(self._device),
            torch.zeros(
                len(poses), 1, 1, dtype=torch.int64
            ),  # not used: EncodedContexts queries whole contexts
            images[:, None].to(self._device),
        )
        return self._model.query_tokens(queries)

    def _starts(self) -> NDArray[np.float64]:
        """Draw start poses (n, 3): the middle of the room with random headings."""
        starts = np.full((len(self._targets), 3), ROOM_SIZE / 2)
        starts[:, 2] = 2 * np.pi * self._generator.random(len(starts))
        return starts


def _result(
    random: NDArray[np.float32],
    targets: NDArray[np.int64],
    walks: list[Walk],
    context_rewards: list[NDArray[Any]],
    headline: int,
) -> ModeResult:
    """Return the result of a mode, one column an episode; `random` is (n,)."""
    values = np.stack([walk.returns for walk in walks], axis=1)
    horizon = walks[0].rewards.shape[1]
    best = [optimal_returns(walk.starts, targets, horizon) for walk in walks]
    counts = np.stack(context_rewards, axis=1).astype(np.int32)
    references = {"optimal": np.stack(best, axis=1), "random": random}
    return ModeResult.of_episodes(values, counts, headline, references)


def optimal_returns(
    starts: NDArray[np.float64], targets: NDArray[np.int64], horizon: int
) -> NDArray[np.float32]:
    """Return the largest return (n,) of T steps from poses (n, 3); staying keeps a reward."""
    steps = np.maximum(1, steps_to_reward(starts, targets))
    return np.maximum(0, horizon + 1 - steps).astype(np.float32)


def random_returns(family: Miniworld, targets: NDArray[np.int64], seed: int) -> NDArray[np.float32]:
    """Return the mean return (n,) of RANDOM_EPISODES rollouts of the uniform policy, by task."""
    policy = policy_table("uniform", family.n_actions)
    episodes = sample_pose_episodes(
        targets.repeat(RANDOM_EPISODES),
        policy,
        family.config.horizon,
        stream(seed, 0, 0, "reference"),
    )
    returns = episodes.rewards.sum(axis=1, dtype=np.float32)
    return returns.reshape(len(targets), RANDOM_EPISODES).mean(axis=1)
