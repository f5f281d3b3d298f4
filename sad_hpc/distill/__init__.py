"""The paper's Algorithms 1, 2, 3 and 5 as pure batch kernels: no files, no MPI."""

import functools
from typing import Any

from sad_hpc.distill.bandits import bandit_block
from sad_hpc.distill.block import Block
from sad_hpc.distill.poses import pose_block
from sad_hpc.distill.simulated import simulated_block
from sad_hpc.distill.tabular import tabular_block
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import TaskFamily


@functools.singledispatch
def make_block(
    family: TaskFamily, data: DataConfig, split: str, block: int, **options: Any
) -> Block:
    """Contexts and labels of block number `block` of a split; nothing but its arguments decides.

    Args:
        family: of the tasks.
        data: how many tasks, and how labels are distilled.
        split: train or test.
        block: 0, 1, ... up to n_tasks / block_tasks.
        options: of simulated families `policy`, which label rollouts follow; of families that take
            contexts `given`, the block's tasks and contexts instead of drawn ones.
    """
    raise TypeError(f"no kernels for {type(family).__name__}")


make_block.register(tabular_block)
make_block.register(bandit_block)
make_block.register(pose_block)
make_block.register(simulated_block)

__all__ = ["Block", "make_block"]
