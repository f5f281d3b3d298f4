"""The paper's Algorithms 1, 2, 3 and 5 as pure batch kernels: no files, no MPI."""

from sad_hpc.distill.bandits import bandit_block
from sad_hpc.distill.block import Block
from sad_hpc.distill.poses import pose_block
from sad_hpc.distill.tabular import tabular_block
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TabularFamily, TaskFamily
from sad_hpc.tasks.miniworld.family import Miniworld


def make_block(family: TaskFamily, data: DataConfig, split: str, block: int) -> Block:
    """Contexts and labels of block number `block` of a split; nothing but its arguments decides.

    Args:
        family: of the tasks.
        data: how many tasks, and how labels are distilled.
        split: train or test.
        block: 0, 1, ... up to n_tasks / block_tasks.
    """
    if isinstance(family, TabularFamily):
        return tabular_block(family, data, split, block)
    if isinstance(family, BanditFamily):
        return bandit_block(family, data, split, block)
    if isinstance(family, Miniworld):
        return pose_block(family, data, split, block)
    raise TypeError(f"no kernels for {type(family).__name__}")


__all__ = ["Block", "make_block"]
