import numpy as np
import pytest

from sad_hpc.distill import make_block
from sad_hpc.experiment.families import family_class
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import MOVES
from sad_hpc.tasks.key_to_door import CARRIES, DONE, SEARCHES, KeyToDoor, KeyToDoorConfig


def room() -> KeyToDoor:
    family = make_family(KeyToDoorConfig(size=4, horizon=16, train_tasks=200))
    assert isinstance(family, KeyToDoor)
    return family


def test_every_pair_of_cells_is_in_one_split():
    train, test = ({tuple(p) for p in room().distinct_tasks(split)} for split in ("train", "test"))
    assert (len(train), len(test)) == (200, 40)
    assert not train & test
    assert all((key_x, key_y) != (x, y) for key_x, key_y, x, y in train | test)


def test_the_key_comes_before_the_door_and_each_pays_once():
    """The family agrees with the rules, state by state."""
    family = room()
    tasks = family.distinct_tasks("test")
    mdps = family.mdps(tasks)
    for number, (*key, door_x, door_y) in enumerate(tasks.tolist()):
        for state, (*cell, phase) in enumerate(family.coordinates.astype(int).tolist()):
            for action, move in enumerate(MOVES):
                after, then, reward = np.clip(np.add(cell, move), 0, 3).tolist(), phase, 0
                if phase == SEARCHES and after == key:
                    then, reward = CARRIES, 1
                elif phase == CARRIES and after == [door_x, door_y]:
                    after, then, reward = [0, 0], DONE, 1
                elif phase == DONE:
                    after = cell
                reached = family.coordinates[mdps.next_states[number, state, action]]
                assert reached.tolist() == [*after, then]
                assert mdps.rewards[number, state, action] == reward


def test_optimal_actions_are_those_of_dynamic_programming():
    """With a discount, since otherwise a detour in time for both costs nothing."""
    family = room()
    tasks = family.distinct_tasks("test")
    mdps, values = family.mdps(tasks), np.zeros((len(tasks), family.n_states))
    for _ in range(20):
        q = mdps.action_values(values, discount=0.9)
        values = q.max(axis=2)
    best = np.isclose(q, q.max(axis=2, keepdims=True))
    assert (family.optimal_actions(tasks) == best).all()


def test_play_by_optimal_actions_returns_two():
    family = make_family(KeyToDoorConfig())
    assert isinstance(family, KeyToDoor)
    tasks = family.distinct_tasks("test")[:200]
    mdps, actions = family.mdps(tasks), family.optimal_actions(tasks).argmax(axis=2)
    task, states = np.arange(len(tasks)), np.full(len(tasks), family.start_state)
    assert family.coordinates[family.start_state].tolist() == [4, 4, SEARCHES]
    returns = np.zeros(len(tasks))
    for _ in range(family.config.horizon):
        chosen = actions[task, states]
        returns += mdps.rewards[task, states, chosen]
        states = mdps.next_states[task, states, chosen]
    assert (returns == 2).all()


def test_the_kernels_take_it_as_it_is():
    family = room()
    block = make_block(family, DataConfig(tasks=240, trust_horizon=4), "train", 0)
    arrays = block.arrays
    oracle = family.are_optimal(
        arrays["tasks/parameters"],
        arrays["labels/dpt_star/query_states"],
        arrays["labels/dpt_star/actions"],
    )
    assert oracle.all()
    assert (arrays["labels/sad/query_states"][..., 2] != DONE).all()  # no reward comes after it
    context = {
        part: arrays[f"transitions/{part}"]
        for part in ("states", "actions", "rewards", "next_states")
    }
    assert family.dynamics_faults(arrays["tasks/parameters"], "transitions", context) == []


def test_a_split_without_test_tasks_is_refused():
    with pytest.raises(ValueError, match="leaves none for test"):
        KeyToDoorConfig(size=3, train_tasks=72)


def test_configs_know_it_by_its_name():
    assert family_class("key_to_door") is KeyToDoor
