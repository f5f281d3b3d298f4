"""Reseeding of copied environments."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from sad_hpc.tasks.environments.task import Environment


def reseed(environment: Environment, parts: Iterable[object], seed: int) -> None:
    """Give a copied environment its own random numbers.

    Without this, a copy and its origin would draw the same random numbers.

    Args:
        environment: the copy.
        parts: all objects of the copy.  Generators among them are reseeded in place, so that
            references to them stay valid.
        seed: seed of all generators; each has its own stream.
    """
    for number, part in enumerate(parts):
        if isinstance(part, np.random.Generator):
            own = np.random.SeedSequence([seed, number])
            part.bit_generator.state = type(part.bit_generator)(own).state
        elif isinstance(part, np.random.RandomState):
            part.seed(np.random.SeedSequence([seed, number]).generate_state(4))
        elif isinstance(part, random.Random):
            part.seed(f"{seed} {number}")
    plain: Any = environment.unwrapped
    if plain._np_random is None:  # otherwise Gymnasium makes one without a fixed seed later
        plain.np_random = np.random.default_rng(seed)
