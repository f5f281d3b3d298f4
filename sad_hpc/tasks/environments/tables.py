"""The task family `gymnasium_table`: environments with a table of each action's outcomes.

FrozenLake, Taxi and CliffWalking have such a table, `unwrapped.P`.  They need no copies of states,
run in compiled kernels, and have a Bayes-optimal learner and an oracle.

task:
  family: gymnasium_table
  env: FrozenLake-v1
  states: [4, 4]                    # sizes of the coordinates that number the states
  horizon: 30
  rewards: sparse
  vary: {desc: {choice: [[SFF, FHF, FFG], [SFF, FFH, FFG], [SFH, FFF, FFG]]}}
"""

import functools
import hashlib
import math
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.numbers import MOST_STATES, integer_dtype, reward_fault
from sad_hpc.tasks.environments.config import EnvironmentConfig
from sad_hpc.tasks.environments.simulator import environment_code
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment
from sad_hpc.tasks.fingerprint import Fingerprint, fingerprint
from sad_hpc.tasks.mdps import ActionOutcomes
from sad_hpc.tasks.tabular import StochasticFamily

MOST_TASKS = 2**14
"""Largest number of tasks; the tables of each are in memory while data is collected."""

TABLES_KEPT = 64
"""Number of tasks whose tables stay in memory; an environment can take long to make one."""

FINGERPRINTED = 16
"""Number of tasks whose tables are compared between processes."""


class GymnasiumTableConfig(EnvironmentConfig):
    """The `task` section of a tabular environment."""

    family: Literal["gymnasium_table"] = "gymnasium_table"
    states: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Sizes of the state's coordinates, the last one varying fastest.  The model sees the
    coordinates."""


class GymnasiumTable(StochasticFamily):
    """The tasks of one environment; a task's parameter is its number among all."""

    config_class = GymnasiumTableConfig
    config: GymnasiumTableConfig
    # Tasks with equal tables became one at 1; replicates got the split of their own seed at 2.
    data_revision = StochasticFamily.data_revision + 2

    def __init__(self, config: GymnasiumTableConfig) -> None:
        super().__init__(config)
        self.name = config.name
        total = config.laws.total
        if total is None or total > MOST_TASKS:
            raise ConfigError(
                f"task.family=gymnasium_table takes at most {MOST_TASKS:,} tasks, drawn by "
                "`integers` and `choice` without `test`: use family: gymnasium"
            )
        self.sparse_reward = config.rewards == "sparse"
        environment = _with_table(_task(config, 0), self.sparse_reward)
        self.code = environment_code(environment)
        outcomes = [each for state in environment.P.values() for each in state.values()]
        self.n_outcomes = max(map(len, outcomes))
        self.n_actions = max(map(len, environment.P.values()))
        sizes = np.array(config.states)
        if math.prod(config.states) != len(environment.P):
            raise ConfigError(
                f"task.states={config.states} counts {math.prod(config.states)} states, but "
                f"{config.env} has {len(environment.P)}: correct task.states"
            )
        if len(environment.P) > MOST_STATES:
            raise ConfigError(
                f"{config.env} has {len(environment.P):,} states, but task.family=gymnasium_table "
                f"takes at most {MOST_STATES:,}: use family: gymnasium"
            )
        self.coordinates = np.array(
            list(np.ndindex(*config.states)), integer_dtype(max(config.states) - 1, "task.states:")
        )
        self.state_center = tuple(((sizes - 1) / 2).tolist())
        self.state_scale = tuple((4 / np.maximum(sizes - 1, 1)).tolist())
        self.reward_dtype = np.uint8 if self.sparse_reward else np.float32
        largest = max(abs(reward) for each in outcomes for _, _, reward, _ in each)
        self.dense_reward_scale = 1 / max(largest, 1e-6)
        some = range(min(total, FINGERPRINTED))
        self.fingerprint = sum((self._table_fingerprint(number) for number in some), ())

    def distinct_tasks(self, split: str) -> NDArray[np.int16]:
        """Implement `TabularFamily.distinct_tasks`.

        Tasks with equal tables count as one.  Seeds of a small map often draw the same map, which
        would otherwise be in both splits.
        """
        unequal = _unequal(_any_split(self.config), self.code)
        return self.config.laws.dealt(split, unequal).astype(np.int16)[:, None]

    def outcomes_of(self, parameters: NDArray[Any]) -> tuple[ActionOutcomes, NDArray[np.float64]]:
        """Implement `StochasticFamily.outcomes_of`."""
        return _outcomes(_any_split(self.config), self.code, int(parameters[0]))

    def _table_fingerprint(self, number: int) -> Fingerprint:
        outcomes, starts = self.outcomes_of(np.array([number]))
        listed = [
            each for state in outcomes.values() for action in state.values() for each in action
        ]
        return fingerprint(np.append(np.array(listed, np.float64), starts)[None, None])


@functools.cache
def _unequal(config_json: str, code: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the numbers of the tasks whose tables differ from those of all earlier tasks.

    Raises:
        ConfigError: all tables are equal.
    """
    config = GymnasiumTableConfig.model_validate_json(config_json)
    total = config.laws.total
    assert total is not None
    first: dict[bytes, int] = {}
    for number in range(total):
        first.setdefault(_digest(*_outcomes(config_json, code, number)), number)
    if len(first) < 2:
        raise ConfigError(
            f"task.vary changes no table of {config.name}, so all {total:,} tasks are equal: "
            "vary another parameter"
        )
    return np.array(list(first.values()))


def _any_split(config: GymnasiumTableConfig) -> str:
    """Return a config as JSON, the same for all splits, whose tables are the same."""
    return config.model_copy(update={"split_seed": 0, "test_share": 0.5}).model_dump_json()


@functools.lru_cache(maxsize=TABLES_KEPT)
def _outcomes(
    config_json: str, _code: tuple[str, ...], number: int
) -> tuple[ActionOutcomes, NDArray[np.float64]]:
    """Return a task's table and the chances of its first states; a change of `_code` changes it."""
    config = GymnasiumTableConfig.model_validate_json(config_json)
    environment = _with_table(_task(config, number), config.rewards == "sparse")
    return environment.P, np.asarray(environment.initial_state_distrib)


def _task(config: GymnasiumTableConfig, number: int) -> EnvironmentTask:
    return config.task(config.laws.rows(np.array([number]))[0])


def _digest(outcomes: ActionOutcomes, starts: NDArray[np.float64]) -> bytes:
    return hashlib.blake2b(repr((outcomes, starts.tolist())).encode(), digest_size=16).digest()


def _with_table(task: EnvironmentTask, sparse: bool) -> Any:
    """Make the unwrapped environment of a task, and check its table.

    Args:
        task: the task.
        sparse: whether all rewards must be 0 or 1.

    Raises:
        ConfigError: `P` or `initial_state_distrib` is missing, or a reward is invalid.
    """
    environment: Any = make_environment(task).unwrapped
    for name in ("P", "initial_state_distrib"):
        if not hasattr(environment, name):
            raise ConfigError(
                f"task.family=gymnasium_table: {task} has no table `{name}`; use family: gymnasium"
            )
    for state in environment.P.values():
        for outcomes in state.values():
            for _, _, reward, _ in outcomes:
                if fault := reward_fault(reward, sparse):
                    raise ConfigError(f"{task}: {fault}")
    return environment
