"""Interruption of blocks that would take years: they stop soon and leave no side effects."""

import threading
import time

import numpy as np
import pytest

from sad_hpc.distill import make_block
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.families import TaskConfig
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels import interruption
from sad_hpc.kernels.interruption import STOP_FLAG, Interrupted, interruptible
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.bandit import BernoulliBanditConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.miniworld.family import MiniworldConfig
from sad_hpc.tasks.tabular import TabularFamily
from tests.patience import SOON

YEARS = 10**12


def left_soon(work) -> None:
    before, threads = time.monotonic(), threading.active_count()
    with pytest.raises(Interrupted):
        interruptible(work, lambda: time.monotonic() - before > 0.1)
    assert time.monotonic() - before < SOON
    assert not STOP_FLAG[0] and threading.active_count() == threads


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "PATIENCE_SECONDS", 0.1)


@pytest.mark.parametrize(
    ("config", "long"),
    [
        (DarkroomConfig(), {"episodes_per_action": YEARS}),
        (DarkroomConfig(), {"q_learning_steps": YEARS}),
        (MiniworldConfig(), {"episodes_per_action": YEARS}),
        (BernoulliBanditConfig(horizon=9), {"trust_horizon": YEARS}),
    ],
    ids=["labels", "q-learning", "poses", "bandit"],
)
def test_a_block_is_left_soon_and_made_again(config: TaskConfig, long: dict[str, int]):
    family = make_family(config)
    data = DataConfig(tasks=300, trust_horizon=3, block_tasks=100)
    short = data.model_copy(update=dict.fromkeys(long, 60))
    make = lambda data: make_block(family, data, "train", 0).arrays  # noqa: E731
    expected = make(short)  # compiles what it needs
    left_soon(lambda: make(data.model_copy(update=long)))
    again = interruptible(lambda: make(short), lambda: False)
    assert all(np.array_equal(expected[name], again[name]) for name in expected)


def test_algorithm_3_is_left_soon():
    family = make_family(DarkroomConfig())
    assert isinstance(family, TabularFamily)

    def distill(episodes: int) -> None:
        rule = LabelRule(3, episodes, 0.9, False, 1e-6, False)
        mdps = family.mdps(family.distinct["train"])
        tasks, policy = np.zeros(2, np.int64), policy_table("uniform", 5)
        distill_labels(mdps, tasks, policy, rule, stream(0, 0, 0, "sad"))

    distill(1)  # compiles what it needs
    left_soon(lambda: distill(YEARS))


def test_an_error_travels():
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0, lambda: False)
