import numpy as np

from sad_hpc.distill import make_block
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import MOVES
from sad_hpc.tasks.permuted_darkroom import PermutedDarkroom, PermutedDarkroomConfig


def room() -> PermutedDarkroom:
    family = make_family(PermutedDarkroomConfig(size=4, horizon=16))
    assert isinstance(family, PermutedDarkroom)
    return family


def test_permutations_are_split_without_overlap():
    train, test = ({tuple(p) for p in room().distinct_tasks(split)} for split in ("train", "test"))
    assert (len(train), len(test)) == (96, 24)
    assert not train & test


def test_an_action_makes_the_move_that_the_task_says():
    family = room()
    tasks = family.distinct_tasks("test")
    mdps = family.mdps(tasks)
    for number, permutation in enumerate(tasks):
        for state, cell in enumerate(family.coordinates.astype(int)):
            for action, move in enumerate(permutation):
                after = np.clip(cell + MOVES[move], 0, 3)
                assert (family.coordinates[mdps.next_states[number, state, action]] == after).all()
                assert mdps.rewards[number, state, action] == (after == 3).all()


def test_optimal_actions_lead_nearer_to_the_corner_in_every_task():
    family = room()
    tasks = family.distinct_tasks("train")
    mdps, optimal = family.mdps(tasks), family.optimal_actions(tasks)
    distance = 6 - family.coordinates.astype(int).sum(axis=1)
    after = distance[mdps.next_states]
    assert (optimal == (after == after.min(axis=2, keepdims=True))).all()


def test_the_kernels_take_it_as_it_is():
    family = room()
    data = DataConfig(tasks=240, trust_horizon=4)
    block = make_block(family, data, "test", 0)
    accuracy = family.are_optimal(
        block.arrays["tasks/parameters"],
        block.arrays["labels/dpt_star/query_states"],
        block.arrays["labels/dpt_star/actions"],
    ).mean()
    assert accuracy == 1
