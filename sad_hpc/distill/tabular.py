"""A block of tabular tasks: Algorithm 1, roll-outs, and Algorithm 3 or 5."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Block, ContextArrays, Draw, LabelArrays
from sad_hpc.distill.contexts import (
    Transitions,
    sample_episodes,
    sample_state_actions,
    sample_transitions,
)
from sad_hpc.distill.labels import LabelRule, distill_labels, optimal_labels
from sad_hpc.experiment import DataConfig
from sad_hpc.tasks.base import TabularFamily, TabularMDPs


@dataclass(frozen=True)
class Variants:
    """The M distinct tasks of a split, which all blocks share."""

    parameters: NDArray[np.int16]
    """(M, p)"""
    mdps: TabularMDPs
    optimal: NDArray[np.bool_]
    """(M, S, A): whether an action is optimal in a state."""

    @classmethod
    @functools.lru_cache(maxsize=4)
    def of(cls, family: TabularFamily, split: str) -> "Variants":
        """The tasks of a split, remembered from block to block."""
        parameters = family.variants(split)
        return cls(parameters, family.mdps(parameters), family.optimal_actions(parameters))


def tabular_block(family: TabularFamily, data: DataConfig, split: str, block: int) -> Block:
    """See `distill.make_block`."""
    draw = Draw.of(family, data, split, block, ("context", "episodes", "sad", "dpt", "dpt_star"))
    count, policy, streams = draw.count, draw.policy, draw.streams
    variants = Variants.of(family, split)
    mdps = variants.mdps
    mdp_of_task = np.arange(draw.first, draw.first + count) % len(variants.parameters)
    horizon, rule = family.config.horizon, LabelRule.of(data, family.sparse_reward)

    context = sample_transitions(mdps, mdp_of_task, policy, horizon, streams["context"])
    episodes = sample_episodes(
        mdps, mdp_of_task, policy, horizon, family.start_state, streams["episodes"]
    )
    sad = distill_labels(mdps, mdp_of_task, policy, rule, streams["sad"])
    dpt_states, dpt_actions = sample_state_actions(family.n_states, policy, count, streams["dpt"])
    star_states, _ = sample_state_actions(family.n_states, policy, count, streams["dpt_star"])
    star_actions = optimal_labels(
        variants.optimal[mdp_of_task, star_states],
        np.random.default_rng(streams["dpt_star"]),
    )
    cells = family.coordinates
    return Block.of(
        draw.first,
        variants.parameters[mdp_of_task],
        {"context": _stored(family, context), "episodes": _stored(family, episodes)},
        {
            "sad": LabelArrays(cells[sad.query_states], sad.actions, sad.transitions),
            "dpt": LabelArrays(cells[dpt_states], dpt_actions),
            "dpt_star": LabelArrays(cells[star_states], star_actions),
        },
    )


def _stored(family: TabularFamily, transitions: Transitions) -> ContextArrays:
    return ContextArrays(
        np.take(family.coordinates, transitions.states, axis=0),  # ten times as fast as [...]
        transitions.actions,
        transitions.rewards.astype(family.reward_dtype),
        np.take(family.coordinates, transitions.next_states, axis=0),
    )
