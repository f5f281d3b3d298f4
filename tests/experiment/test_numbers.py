"""Rewards and observations inside and outside of the range of float32."""

import math
import re

import numpy as np
import pytest

from sad_hpc.errors import ConfigError, UserError
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.environments.tables import GymnasiumTableConfig
from sad_hpc.tasks.mdps import tables_of
from tests.tasks.own_environments import sized


def test_sparse_rewards_are_0_or_1():
    with pytest.raises(UserError, match=r"Sized-v0 \(luck=\d\) fails .*task\.rewards=sparse needs"):
        sized(rewards="sparse")


def table(rewards: str, *pay: float):
    task = {
        "env": "tests.tasks.own_environments:Table-v0",
        "states": [2],
        "horizon": 5,
        "rewards": rewards,
    }
    family = make_family(GymnasiumTableConfig(**task, vary={"pay": {"choice": [*pay]}}))
    return family.distinct


@pytest.mark.parametrize(
    ("rewards", "pay"),
    [("sparse", -1), ("sparse", 0.5), ("dense", 1e39), ("dense", -1e300)],
)
def test_no_table_of_any_task_has_a_reward_that_cannot_be_stored(rewards: str, pay: float):
    table(rewards, 0, 1)
    for order in ((1, pay), (pay, 1)):
        with pytest.raises(ConfigError, match=re.escape(f"Table-v0 (pay={pay}): its reward is")):
            table(rewards, *order)


@pytest.mark.parametrize("reward", [1e39, math.inf, math.nan])
def test_tables_of_other_families_have_such_rewards_neither(reward: float):
    with pytest.raises(UserError, match=r"state 0, action 0: reward .*, which is not within"):
        tables_of([{0: {0: [(1.0, 0, reward, False)]}}], [np.ones(1)])
