"""Distributions of an environment's task parameters, and the division into training and test.

A task is a draw of parameters.  Training and test never share a task: each of finitely many tasks
belongs to one split, and continuous parameters never repeat.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.config import Section

DEALT = 2**20
"""Largest number of distinct tasks that are divided exactly; beyond it, a hash decides for each."""


LARGEST_INTEGER = 2**53
"""Largest magnitude in `integers`: float64, which stores parameters, is exact up to it."""

LARGEST = 1e300
"""Largest magnitude in `uniform` and `normal`: draws and their differences stay finite."""


def _told_apart(value: Any) -> str:
    """Return a text that is the same for equal values, such as 1 and 1.0."""
    if isinstance(value, dict):
        return repr({key: _told_apart(part) for key, part in sorted(value.items())})
    if isinstance(value, list):
        return repr([_told_apart(part) for part in value])
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


class Range(Section):
    """A distribution of a parameter; exactly one of its keys is given."""

    uniform: list[float] | None = None
    """[low, high)"""
    integers: list[int] | None = None
    """[low, high], both included"""
    normal: list[float] | None = None
    """[mean, standard deviation]"""
    choice: list[Any] | None = None
    """Any values, all with the same probability."""

    @model_validator(mode="after")
    def _check_one(self) -> "Range":
        given = [key for key in Range.model_fields if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(Range.model_fields)}")
        numbers = getattr(self, given[0])
        if given[0] == "choice":
            if not numbers or len(set(map(_told_apart, numbers))) < len(numbers):
                raise ValueError("choice needs values that differ from one another")
        elif len(numbers) != 2:
            raise ValueError(f"{given[0]} needs two numbers, not {numbers}")
        elif max(map(abs, numbers)) > (LARGEST_INTEGER if given[0] == "integers" else LARGEST):
            raise ValueError(f"{given[0]} needs numbers of a smaller magnitude, not {numbers}")
        elif given[0] == "normal":
            if numbers[1] <= 0:
                raise ValueError(f"normal needs a standard deviation above 0, not {numbers[1]}")
        elif numbers[0] >= numbers[1]:
            raise ValueError(f"{given[0]} needs its lower end first, not {numbers}")
        return self

    @property
    def size(self) -> int | None:
        """Number of values; None: a continuous distribution."""
        if self.integers is not None:
            return self.integers[1] - self.integers[0] + 1
        return None if self.choice is None else len(self.choice)

    def at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the values with indices `places`, (count,): integers, or indices of choices."""
        return (places + (self.integers[0] if self.integers is not None else 0)).astype(np.float64)

    def allows(self, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether numbers (or indices of choices) can have been drawn, (count,)."""
        if self.size is not None:
            places = numbers - (self.integers[0] if self.integers is not None else 0)
            return (places == np.floor(places)) & (places >= 0) & (places < self.size)
        low, high = self.uniform or (-math.inf, math.inf)
        return (numbers >= low) & (numbers <= high)  # a draw can be rounded to the upper end

    def draw(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Draw numbers (or indices of choices), (count,)."""
        if self.size is not None:
            return self.at(generator.integers(self.size, size=count))
        if self.uniform is not None:
            low, high = self.uniform
            return generator.uniform(low, high, count)
        assert self.normal is not None
        mean, deviation = self.normal
        return generator.normal(mean, deviation, count)


class Law(Range):
    """The distribution of a parameter, with an optional other one for the test split."""

    test: Range | None = None

    @model_validator(mode="after")
    def _check_test(self) -> "Law":
        if self.test is not None and (self.test.choice is None) != (self.choice is None):
            raise ValueError("a choice and its test must both be choices")
        if self.test is not None and self.integers is not None and self.test.integers is None:
            raise ValueError("the test of integers must be integers: others would be rounded")
        return self

    def draw_of(
        self, split: str, count: int, generator: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw numbers of a split, (count,); test choices are numbered after training choices."""
        if split == "train" or self.test is None:
            return self.draw(count, generator)
        return self.test.draw(count, generator) + len(self.choice or ())

    def value(self, number: float) -> Any:
        """Return the value that a drawn number represents."""
        if self.choice is not None:
            values = self.choice + ((self.test.choice or []) if self.test is not None else [])
            return values[int(number)]
        return float(number) if self.integers is None else int(number)

    @property
    def apart(self) -> bool:
        """True if training and test have no value in common."""
        if self.test is None:
            return False
        if self.choice is not None and self.test.choice is not None:
            return set(map(_told_apart, self.choice)).isdisjoint(map(_told_apart, self.test.choice))
        if self.integers is not None and self.test.integers is not None:
            low, high = self.integers
            return high < self.test.integers[0] or self.test.integers[1] < low
        return True  # continuous values do not repeat


class Laws:
    """The distributions of all parameters of a task.

    Args:
        laws: distribution of each parameter.
        test_share: share of tasks in the test split.
        seed: seed of the division of finitely many tasks.

    Raises:
        ConfigError: nothing differs between tasks, or training and test would share some.
    """

    def __init__(self, laws: Mapping[str, Law], test_share: float, seed: int) -> None:
        self._laws, self._test_share, self._seed = dict(laws), test_share, seed
        if not laws:
            raise ConfigError(
                "task.vary and task.attributes are empty: add a parameter that differs between "
                "tasks"
            )
        self._sizes = [law.size for law in laws.values() if law.size is not None]
        self.total: int | None = None
        """Number of tasks to divide; None: infinitely many, or `test` has other distributions."""
        if len(self._sizes) < len(laws):
            return
        if all(law.test is None for law in laws.values()):
            self.total = math.prod(self._sizes)
        elif not any(law.apart for law in laws.values()):
            raise ConfigError(
                "training and test would share tasks: give a parameter values in `test` "
                "that are not among those for training"
            )
        if self.total == 1:
            raise ConfigError("there is only one task: add values, so that one task is for test")

    def dealt(self, split: str, tasks: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the numbers of a split's tasks, among `tasks` or among all (at most DEALT)."""
        order = np.random.default_rng(self._seed)
        permutation = order.permutation(math.prod(self._sizes) if tasks is None else tasks)
        total = len(permutation)
        test = min(max(round(total * self._test_share), 1), total - 1)
        return permutation[:test] if split == "test" else permutation[test:]

    def draw(self, split: str, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Draw parameters of tasks, (count, p): numbers, or indices of choices.

        With another count the first tasks stay the same.
        """
        if self.total is not None and self.total <= DEALT:
            return self.rows(generator.choice(self.dealt(split), size=count))
        seeds = generator.integers(2**63, size=len(self._laws))
        streams = [np.random.default_rng(seed) for seed in seeds]
        rows = self._independent(split, count, streams)
        while self.total is not None and len(rows := rows[self._belong(rows, split)]) < count:
            rows = np.concatenate([rows, self._independent(split, count, streams)])
        return rows[:count]

    def allow(self, rows: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether tasks (n, p) can be training tasks, (n,)."""
        columns = zip(self._laws.values(), rows.T, strict=True)
        possible: NDArray[np.bool_] = np.all([law.allows(each) for law, each in columns], axis=0)
        if self.total is None:
            return possible
        if self.total > DEALT:
            return possible & self._belong(rows, "train")
        dealt = set(map(tuple, self.rows(self.dealt("train")).tolist()))
        return np.array([tuple(row) in dealt for row in rows.tolist()])

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the parameters of the tasks with these numbers, (count, p)."""
        places = np.unravel_index(numbers, self._sizes)
        laws = self._laws.values()
        return np.stack([law.at(place) for law, place in zip(laws, places, strict=True)], axis=1)

    def _independent(
        self, split: str, count: int, streams: Sequence[np.random.Generator]
    ) -> NDArray[np.float64]:
        """Draw tasks (count, p), each parameter from a random stream of its own."""
        drawn = zip(self._laws.values(), streams, strict=True)
        return np.stack([law.draw_of(split, count, stream) for law, stream in drawn], axis=1)

    def _belong(self, rows: NDArray[np.float64], split: str) -> NDArray[np.bool_]:
        """Return whether tasks (n, p) belong to a split, (n,), by a hash of their parameters."""
        salt = str(self._seed).encode()
        digests = (hashlib.blake2b(row.tobytes(), digest_size=8, key=salt) for row in rows)
        shares = np.array([int.from_bytes(each.digest(), "big") / 2**64 for each in digests])
        return (shares < self._test_share) == (split == "test")

    def values(self, row: NDArray[np.float64]) -> dict[str, Any]:
        """Return the names and values of the parameters (p,) of a task."""
        laws = self._laws.items()
        return {name: law.value(number) for (name, law), number in zip(laws, row, strict=True)}
