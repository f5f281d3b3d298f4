"""A block of tabular tasks: Algorithm 1, roll-outs, and Algorithm 3 or 5."""

import numpy as np

from sad_hpc.distill.block import Block, ContextArrays, Draw, LabelArrays
from sad_hpc.distill.contexts import (
    Transitions,
    sample_episodes,
    sample_state_actions,
    sample_transitions,
)
from sad_hpc.distill.labels import LabelRule, distill_labels, optimal_labels
from sad_hpc.experiment import DataConfig
from sad_hpc.tasks.base import TabularFamily


def tabular_block(family: TabularFamily, data: DataConfig, split: str, block: int) -> Block:
    """See `distill.make_block`."""
    draw = Draw.of(family, data, split, block, ("context", "episodes", "sad", "dpt", "dpt_star"))
    count, policy, streams = draw.count, draw.policy, draw.streams
    parameters = family.parameters(split, draw.first, count)
    distinct, mdp_of_task = np.unique(parameters, axis=0, return_inverse=True)
    mdp_of_task = mdp_of_task.reshape(-1)
    mdps = family.mdps(distinct)
    horizon, rule = family.config.horizon, LabelRule.of(data, family.sparse_reward)

    context = sample_transitions(mdps, mdp_of_task, policy, horizon, streams["context"])
    episodes = sample_episodes(
        mdps, mdp_of_task, policy, horizon, family.start_state, streams["episodes"]
    )
    sad = distill_labels(mdps, mdp_of_task, policy, rule, streams["sad"])
    dpt_states, dpt_actions = sample_state_actions(family.n_states, policy, count, streams["dpt"])
    star_states, _ = sample_state_actions(family.n_states, policy, count, streams["dpt_star"])
    star_actions = optimal_labels(
        family.optimal_actions(distinct)[mdp_of_task, star_states],
        np.random.default_rng(streams["dpt_star"]),
    )
    cells = family.coordinates
    return Block.of(
        draw.first,
        parameters,
        {"context": _stored(family, context), "episodes": _stored(family, episodes)},
        {
            "sad": LabelArrays(cells[sad.query_states], sad.actions, sad.transitions),
            "dpt": LabelArrays(cells[dpt_states], dpt_actions),
            "dpt_star": LabelArrays(cells[star_states], star_actions),
        },
    )


def _stored(family: TabularFamily, transitions: Transitions) -> ContextArrays:
    return ContextArrays(
        family.coordinates[transitions.states],
        transitions.actions,
        transitions.rewards.astype(family.reward_dtype),
        family.coordinates[transitions.next_states],
    )
