"""A block of Miniworld tasks: Algorithm 1, roll-outs and Algorithm 5 on poses, without pictures."""

import numpy as np

from sad_hpc.distill.block import Block, ContextArrays, LabelArrays
from sad_hpc.distill.labels import LabelRule, optimal_labels
from sad_hpc.distill.random import stream
from sad_hpc.distill.rollouts import (
    PoseTransitions,
    distill_pose_labels,
    sample_pose_actions,
    sample_pose_episodes,
    sample_pose_transitions,
)
from sad_hpc.distill.shortest import optimal_pose_actions
from sad_hpc.experiment import DataConfig
from sad_hpc.policy import policy_table
from sad_hpc.tasks.base import SPLITS
from sad_hpc.tasks.miniworld import Miniworld


def pose_block(family: Miniworld, data: DataConfig, split: str, block: int) -> Block:
    """See `distill.make_block`."""
    first = block * data.block_tasks
    count = min(data.block_tasks, family.n_tasks(split, data.tasks) - first)
    parameters = family.parameters(split, first, count)
    targets = parameters[:, 0].astype(np.int64)
    policy = policy_table(data.behavior_policy, family.n_actions)
    streams = {
        purpose: stream(data.seed, SPLITS.index(split), block, purpose)
        for purpose in ("context", "episodes", "sad", "dpt", "dpt_star")
    }
    horizon = family.config.horizon
    context = sample_pose_transitions(targets, policy, horizon, streams["context"])
    episodes = sample_pose_episodes(targets, policy, horizon, streams["episodes"])
    rule = LabelRule.of(data, sparse_reward=True)
    sad = distill_pose_labels(targets, policy, rule, streams["sad"])
    dpt_poses, dpt_actions = sample_pose_actions(targets, policy, streams["dpt"])
    star_poses, _ = sample_pose_actions(targets, policy, streams["dpt_star"])
    star_actions = optimal_labels(
        optimal_pose_actions(star_poses, targets), np.random.default_rng(streams["dpt_star"])
    )
    return Block.of(
        first,
        parameters,
        {"context": _stored(context), "episodes": _stored(episodes)},
        {
            "sad": LabelArrays(sad.query_poses, sad.actions, sad.transitions),
            "dpt": LabelArrays(dpt_poses, dpt_actions),
            "dpt_star": LabelArrays(star_poses, star_actions),
        },
    )


def _stored(drawn: PoseTransitions) -> ContextArrays:
    return ContextArrays(drawn.poses, drawn.actions, drawn.rewards, drawn.next_poses)
