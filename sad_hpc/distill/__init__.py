"""The paper's Algorithms 1, 2, 3 and 5 as batch kernels without files and MPI."""

import functools
from typing import Any

from sad_hpc.distill.bandits import bandit_block
from sad_hpc.distill.block import Block
from sad_hpc.distill.incumbent import Incumbent
from sad_hpc.distill.poses import pose_block
from sad_hpc.distill.simulated import simulated_block
from sad_hpc.distill.tabular import tabular_block
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import TaskFamily


@functools.singledispatch
def make_block(
    family: TaskFamily, data: DataConfig, split: str, block: int, **options: Any
) -> Block:
    """Make contexts and labels of one block of a split, as a function of the arguments only.

    Args:
        family: family of the tasks.
        data: settings of contexts and labels.
        split: train or test.
        block: number of the block, from 0 up to n_tasks / block_tasks.
        options: `incumbent` (families without `no_rounds`), the model of the round before; `given`
            (families with `takes_contexts`), imported tasks and contexts of the block.
    """
    raise TypeError(f"{type(family).__name__} has no kernels for contexts and labels")


make_block.register(tabular_block)
make_block.register(bandit_block)
make_block.register(pose_block)
make_block.register(simulated_block)

__all__ = ["Block", "Incumbent", "make_block"]
