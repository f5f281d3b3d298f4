import gymnasium
import numpy as np
import pytest

from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.environments.tables import GymnasiumTable, GymnasiumTableConfig

MAPS = [["SFF", "FHF", "FFG"], ["SFF", "FFH", "FFG"], ["SFH", "FFF", "FFG"], ["SFF", "HFF", "FFG"]]


def lakes(**changes) -> GymnasiumTable:
    task = {"env": "FrozenLake-v1", "states": [3, 3], "horizon": 12, "rewards": "sparse"}
    task["vary"] = {"desc": {"choice": MAPS}, "is_slippery": {"choice": [False, True]}}
    family = make_family(GymnasiumTableConfig(**(task | changes)))
    assert isinstance(family, GymnasiumTable)
    return family


def test_every_task_is_one_environment_and_in_one_split():
    family = lakes()
    numbers = np.concatenate([family.distinct[split] for split in ("train", "test")])
    assert sorted(numbers[:, 0]) == list(range(8))
    mdps = family.mdps(numbers)
    seen = set()
    for row, number in enumerate(numbers[:, 0]):
        map, slippery = MAPS[number // 2], bool(number % 2)
        env = gymnasium.make("FrozenLake-v1", desc=map, is_slippery=slippery).unwrapped
        seen.add((tuple(map), slippery))
        for state, actions in env.P.items():
            for action, outcomes in actions.items():
                expected = np.zeros(9)
                for chance, after, _, _ in outcomes:
                    expected[after] += chance
                may = mdps.outcomes
                ours = np.zeros(9)
                np.add.at(
                    ours, may.next_states[row, state, action], may.chances[row, state, action]
                )
                assert ours == pytest.approx(expected)
    assert len(seen) == 8


def test_environments_with_equal_tables_are_one_task():
    family = lakes(vary={"desc": {"choice": MAPS}, "render_mode": {"choice": [None, "ansi"]}})
    tables = [
        repr(family.outcomes_of(task)) for task in np.concatenate([*family.distinct.values()])
    ]
    assert len(tables) == len(set(tables)) == len(MAPS)


def test_environments_that_are_all_equal_are_refused():
    family = lakes(make={"desc": MAPS[0]}, vary={"render_mode": {"choice": [None, "ansi"]}})
    with pytest.raises(ConfigError, match="all 2 tasks are equal"):
        family.distinct_tasks("train")


def test_a_state_is_shown_by_its_row_and_column():
    family = lakes()
    env = gymnasium.make("FrozenLake-v1", desc=MAPS[0], is_slippery=False).unwrapped
    assert (family.coordinates == [divmod(state, env.ncol) for state in range(9)]).all()


def test_contexts_obey_the_dynamics():
    family = lakes()
    block = make_block(family, DataConfig(tasks=40, trust_horizon=5), "train", 0)
    for group in ("transitions", "episodes"):
        parts = "states", "actions", "rewards", "next_states", "ends"
        context = {part: block.arrays[f"{group}/{part}"] for part in parts}
        assert family.dynamics_faults(block.arrays["tasks/parameters"], group, context) == []
        context["rewards"] = 1 - context["rewards"]
        assert family.dynamics_faults(block.arrays["tasks/parameters"], group, context)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"states": [4, 4]}, r"counts 16 states, but FrozenLake-v1 has 9"),
        ({"env": "CartPole-v1", "vary": {"render_mode": {"choice": [None, "rgb_array"]}}}, "`P`"),
        ({"vary": {"success_rate": {"uniform": [0.1, 0.9]}}}, "use family: gymnasium"),
        (
            {
                "env": "CliffWalking-v1",
                "states": [4, 12],
                "vary": {"is_slippery": {"choice": [False, True]}},
            },
            "its reward is -1, but task.rewards=sparse needs 0 or 1; set task.rewards=dense",
        ),
    ],
    ids=["states", "no table", "continuum", "rewards"],
)
def test_what_is_no_table_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        lakes(**changes)
