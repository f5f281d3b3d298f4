"""A block of tabular tasks: Algorithm 1, roll-outs, and Algorithm 3 or 5."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Block
from sad_hpc.distill.contexts import (
    Transitions,
    sample_episodes,
    sample_state_actions,
    sample_transitions,
)
from sad_hpc.distill.labels import LabelRule, distill_labels, optimal_labels
from sad_hpc.distill.random import stream
from sad_hpc.experiment import DataConfig
from sad_hpc.policy import policy_table
from sad_hpc.tasks.base import SPLITS, TabularFamily


def label_rule(family: TabularFamily, data: DataConfig) -> LabelRule:
    """The rule that a `data` section asks for."""
    return LabelRule(
        trust_horizon=data.trust_horizon,
        episodes_per_action=data.episodes_per_action,
        discount=data.discount,
        stop_at_reward=family.sparse_reward,
        return_threshold=data.return_threshold,
        random_ties=data.tie_break == "random",
    )


def tabular_block(family: TabularFamily, data: DataConfig, split: str, block: int) -> Block:
    """See `distill.make_block`."""
    first = block * data.block_tasks
    count = min(data.block_tasks, family.n_tasks(split, data.tasks) - first)
    parameters = family.parameters(split, first, count)
    distinct, mdp_of_task = np.unique(parameters, axis=0, return_inverse=True)
    mdp_of_task = mdp_of_task.reshape(-1)
    mdps = family.mdps(distinct)
    policy = policy_table(data.behavior_policy, family.n_actions)
    streams = {
        purpose: stream(data.seed, SPLITS.index(split), block, purpose)
        for purpose in ("context", "episodes", "sad", "dpt", "dpt_star")
    }
    horizon = family.config.horizon

    context = sample_transitions(mdps, mdp_of_task, policy, horizon, streams["context"])
    episodes = sample_episodes(
        mdps, mdp_of_task, policy, horizon, family.start_state, streams["episodes"]
    )
    sad = distill_labels(mdps, mdp_of_task, policy, label_rule(family, data), streams["sad"])
    dpt = sample_state_actions(family.n_states, policy, count, streams["dpt"])
    star_states, _ = sample_state_actions(family.n_states, policy, count, streams["dpt_star"])
    star_actions = optimal_labels(
        family.optimal_actions(distinct),
        mdp_of_task,
        star_states,
        np.random.default_rng(streams["dpt_star"]),
    )
    labels = {
        "sad": (sad.query_states, sad.actions),
        "dpt": dpt,
        "dpt_star": (star_states, star_actions),
    }
    arrays: dict[str, NDArray[Any]] = {
        **_context_arrays("context", family, context),
        **_context_arrays("episodes", family, episodes),
        "tasks/index": np.arange(first, first + count, dtype=np.int64),
        "tasks/parameters": parameters,
    }
    for name, (query_states, actions) in labels.items():
        arrays[f"labels/{name}/query_states"] = family.coordinates[query_states]
        arrays[f"labels/{name}/actions"] = actions
    transitions = {
        "context": context.actions.size,
        "episodes": episodes.actions.size,
        "labels_sad": sad.transitions,
        "labels_dpt": 0,
        "labels_dpt_star": 0,
    }
    return Block(arrays, transitions)


def _context_arrays(
    group: str, family: TabularFamily, transitions: Transitions
) -> dict[str, NDArray[Any]]:
    return {
        f"{group}/states": family.coordinates[transitions.states],
        f"{group}/actions": transitions.actions,
        f"{group}/rewards": transitions.rewards.astype(family.reward_dtype),
        f"{group}/next_states": family.coordinates[transitions.next_states],
    }
