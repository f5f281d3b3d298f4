"""Validation tasks: which distinct training tasks they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.tasks.darkroom import Darkroom, DarkroomConfig
from sad_hpc.tasks.validation import are_among, drawn_tasks
from tests.conftest import ROOT, TINY

SHARES = st.floats(0.001, 0.999)
KEY = "pretrain.validation_tasks"


def rows(parameters: np.ndarray) -> set[tuple[int, ...]]:
    return set(map(tuple, parameters.tolist()))


@given(st.integers(2, 60), SHARES, st.integers(0, 5))
def test_the_share_is_kept_and_both_parts_have_tasks(count: int, share: float, seed: int):
    tasks = np.arange(2 * count).reshape(count, 2)
    drawn = drawn_tasks(tasks, share, seed)
    assert rows(drawn) < rows(tasks) and len(rows(drawn)) == len(drawn) >= 1
    assert abs(len(drawn) - share * count) <= 1


def test_the_draw_depends_on_tasks_and_seed_alone():
    tasks = np.arange(80).reshape(40, 2)
    drawn = drawn_tasks(tasks, 0.2, 3)
    reordered = np.concatenate([tasks[::-1], tasks[:7]])  # some twice
    np.testing.assert_array_equal(drawn_tasks(reordered, 0.2, 3), drawn)
    assert rows(drawn_tasks(tasks, 0.2, 4)) != rows(drawn)
    assert len(drawn_tasks(tasks[:1], 0.2, 0)) == 0


def test_every_task_is_drawn_equally_often():
    tasks = np.arange(10)[:, None]
    counts = np.bincount(
        [drawn_tasks(tasks, 0.1, seed)[0, 0] for seed in range(2000)], minlength=10
    )
    assert counts.min() > 150 and counts.max() < 250


@pytest.mark.parametrize("total", [1, 38, 39, 100, 1000])
def test_the_number_of_contexts_is_that_of_the_tasks_in_the_dataset(total: int):
    family = Darkroom(DarkroomConfig(train_goals=39, split_seed=2))
    tasks = family.validation_tasks(0.2)
    among = [tuple(goal) in rows(tasks) for goal in family.parameters("train", 0, total).tolist()]
    assert family.n_validation(0.2, total) == sum(among)


def test_the_rest_of_a_family_has_the_other_training_tasks_and_all_test_tasks():
    family = Darkroom(DarkroomConfig(train_goals=39, split_seed=1))
    tasks = family.validation_tasks(0.2)
    rest = family.without(tasks)
    assert rows(rest.distinct["train"]) == rows(family.distinct["train"]) - rows(tasks)
    assert rows(rest.distinct["test"]) == rows(family.distinct["test"])
    assert len(family.distinct["train"]) == 39, "the family itself is unchanged"
    assert not are_among(family.distinct["test"], tasks).any()


@pytest.mark.parametrize(
    ("config", "overrides", "words"),
    [
        ("tests/configs/tiny_gaussian.yaml", [f"{KEY}=0.1"], "is for tabular families"),
        ("configs/miniworld.yaml", [f"{KEY}=0.1"], "is for tabular families"),
        ("tests/configs/tiny.yaml", [f"{KEY}=0.1", "task.train_goals=1"], "no task for validation"),
        (
            "tests/configs/tiny.yaml",
            [f"{KEY}=0.1", "data.imported_contexts=minari-0123456789ab"],
            "does not apply to imported contexts",
        ),
        ("tests/configs/tiny.yaml", [f"{KEY}=0.99"], "do not fill one batch"),
        ("tests/configs/tiny.yaml", [f"{KEY}=1.0"], "less than 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(config: str, overrides: list[str], words: str):
    with pytest.raises(ConfigError, match=words) as caught:
        load_experiment(ROOT / config, overrides)
    assert "\n" not in str(caught.value)


def test_training_steps_leave_out_the_contexts_of_validation_tasks():
    # 600 training tasks of 6 goals: 100 a goal.  Held out are 64; a batch has 64.
    for share, left_out in ((0.0, 0), (0.2, 100), (0.5, 300)):
        experiment = load_experiment(TINY, [f"{KEY}={share}", "pretrain.epochs=1"])
        assert experiment.validation_contexts == left_out
        assert experiment.training_steps == (600 - left_out - 64) // 64
