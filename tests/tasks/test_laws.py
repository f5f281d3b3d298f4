"""Distributions of parameters, and the disjoint training and test tasks."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare, kstest, norm

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import build
from sad_hpc.tasks.environments.laws import Law, Laws


def laws(test_share: float = 0.2, **given: Any) -> Laws:
    return Laws({name: build(Law, law, name) for name, law in given.items()}, test_share, 0)


def rows(which: Laws, split: str, count: int = 4000) -> np.ndarray:
    return which.draw(split, count, np.random.default_rng(1))


def test_continuous_parameters_have_their_law_in_both_splits() -> None:
    made = laws(a={"uniform": [2, 5]}, b={"normal": [1, 3]}, c={"integers": [0, 1]})
    for split in ("train", "test"):
        a, b, c = rows(made, split).T
        assert kstest(a, "uniform", (2, 3)).pvalue > 1e-4
        assert kstest(b, norm(1, 3).cdf).pvalue > 1e-4
        assert abs(c.mean() - 0.5) < 0.05


def test_finitely_many_tasks_are_dealt_to_the_splits() -> None:
    made = laws(0.25, a={"integers": [3, 6]}, b={"choice": ["x", "y", "z"]})
    tasks = {split: {tuple(row) for row in rows(made, split)} for split in ("train", "test")}
    assert len(tasks["train"]) == 9 and len(tasks["test"]) == 3
    assert not tasks["train"] & tasks["test"]
    counts = np.unique(rows(made, "train"), axis=0, return_counts=True)[1]
    assert chisquare(counts).pvalue > 1e-4


def test_of_very_many_tasks_each_belongs_to_one_split() -> None:
    made = laws(0.3, seed={"integers": [0, 2**30]}, b={"integers": [0, 3]})
    salts = Laws(made._laws, 0.3, 1)
    for split, share in (("train", 0.7), ("test", 0.3)):
        found = rows(made, split, 2000)
        assert made._belong(found, split).all()
        # Another seed deals them in another way.
        assert abs(salts._belong(found, split).mean() - share) < 0.06


@pytest.mark.parametrize(
    "given",
    [
        {"a": {"uniform": [2, 5]}, "b": {"choice": ["x", "y"]}, "c": {"normal": [1, 3]}},
        {"seed": {"integers": [0, 2**30]}, "b": {"integers": [0, 3]}},
        {"a": {"integers": [3, 6]}, "b": {"choice": ["x", "y", "z"]}},
    ],
)
def test_the_first_tasks_do_not_depend_on_the_number_of_tasks(given: dict[str, Any]) -> None:
    made = laws(0.3, **given)
    few, many = rows(made, "test", 30), rows(made, "test", 300)
    assert (few == many[:30]).all()


def test_values_are_what_the_environment_is_given() -> None:
    made = laws(
        a={"integers": [3, 6]}, b={"choice": ["x", None], "test": {"choice": [[1]]}},
        c={"uniform": [0, 1], "test": {"uniform": [2, 3]}},
    )  # fmt: skip
    train = [made.values(row) for row in rows(made, "train", 50)]
    test = [made.values(row) for row in rows(made, "test", 50)]
    assert {each["b"] for each in train} == {"x", None}
    assert all(each["b"] == [1] and 2 <= each["c"] < 3 for each in test)
    assert all(isinstance(each["a"], int) and 3 <= each["a"] <= 6 for each in train + test)
    assert all(isinstance(each["c"], float) and each["c"] < 1 for each in train)


@pytest.mark.parametrize(
    "given",
    [
        {"a": {"integers": [3, 6]}, "b": {"choice": ["x", "y", "z"]}},
        {"seed": {"integers": [0, 2**30]}, "b": {"integers": [0, 3]}},
        {"a": {"integers": [3, 6], "test": {"integers": [7, 9]}}},
        {"a": {"uniform": [2, 5], "test": {"uniform": [6, 7]}}, "b": {"normal": [1, 3]}},
    ],
)
def test_training_tasks_are_known_again(given: dict[str, Any]) -> None:
    made = laws(0.3, **given)
    train, test = rows(made, "train", 500), rows(made, "test", 500)
    assert made.allow(train).all()
    assert not made.allow(test).any()
    strange = train.copy()
    strange[:, 0] += 0.5 if "uniform" not in given["a" if "a" in given else "seed"] else 9
    assert not made.allow(strange).any()


@pytest.mark.parametrize(
    "law, message",
    [
        ({"uniform": [2, 1]}, "lower end first"),
        ({"integers": [1]}, "two numbers"),
        ({"normal": [0, 0]}, "standard deviation above 0"),
        ({"choice": [1, 1]}, "differ from one another"),
        ({"uniform": [0, 1], "choice": [1]}, "exactly one"),
        ({}, "exactly one"),
        ({"choice": [1, 2], "test": {"uniform": [0, 1]}}, "both be choices"),
        ({"integers": [1, 9], "test": {"uniform": [5, 15]}}, "must be integers"),
        ({"unifrom": [0, 1]}, "did you mean 'uniform'"),
    ],
)
def test_a_law_that_makes_no_sense_is_refused(law: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        laws(a=law)


@pytest.mark.parametrize(
    "given, message",
    [
        ({}, "add a parameter that differs"),
        ({"a": {"choice": [1]}}, "only one task"),
        ({"a": {"integers": [0, 5], "test": {"integers": [5, 9]}}}, "would share tasks"),
        ({"a": {"choice": [1, 2], "test": {"choice": [2, 3]}}}, "would share tasks"),
    ],
)
def test_splits_that_cannot_be_told_apart_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        laws(**given)
