"""Blocks of Miniworld tasks: Algorithm 1, rollouts and Algorithm 5 on poses, without images."""

import numpy as np

from sad_hpc.distill.block import Block, Draw
from sad_hpc.distill.labels import LabelRule, Labels, optimal_labels
from sad_hpc.distill.pose_contexts import (
    sample_pose_actions,
    sample_pose_episodes,
    sample_pose_transitions,
)
from sad_hpc.distill.rollout_labels import distill_pose_labels
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.miniworld.family import Miniworld
from sad_hpc.tasks.miniworld.shortest import optimal_pose_actions


def pose_block(family: Miniworld, data: DataConfig, split: str, block: int) -> Block:
    """Make a block of Miniworld tasks; see `distill.make_block`."""
    draw = Draw.of(
        family, data, split, block, ("transitions", "episodes", "sad", "dpt", "dpt_star")
    )
    policy, streams = draw.policy, draw.streams
    parameters = family.parameters(split, draw.first, draw.count)
    targets = parameters[:, 0].astype(np.int64)
    horizon = family.config.horizon
    context = sample_pose_transitions(targets, policy, horizon, streams["transitions"])
    episodes = sample_pose_episodes(targets, policy, horizon, streams["episodes"])
    rule = LabelRule.of(data, family.sparse_reward)
    target_of_query = np.repeat(targets, data.queries_per_task)
    sad = distill_pose_labels(target_of_query, policy, rule, streams["sad"])
    dpt_poses, dpt_actions = sample_pose_actions(target_of_query, policy, streams["dpt"])
    star_poses, _ = sample_pose_actions(target_of_query, policy, streams["dpt_star"])
    star_actions = optimal_labels(
        optimal_pose_actions(star_poses, target_of_query),
        data,
        np.random.default_rng(streams["dpt_star"]),
    )
    return Block.of(
        draw.first,
        parameters,
        {"transitions": context, "episodes": episodes},
        {
            "sad": sad,
            "dpt": Labels(dpt_poses, dpt_actions),
            "dpt_star": Labels(star_poses, star_actions),
        },
    )
