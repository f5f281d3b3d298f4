"""The random numbers of a copied environment."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from sad_hpc.tasks.environments.task import Environment


def reseed(environment: Environment, parts: Iterable[object], seed: int) -> None:
    """Gives a copied environment random numbers of its own.

    A copy begins with the state of its origin's generators, and would see the same random events.

    Args:
        environment: the copy.
        parts: all objects of the copy; generators among them (of the environment, of its parts,
            of its spaces) stay the same objects, so that whoever refers to one still does.
        seed: of all generators, of which each gets a stream of its own.
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
    if plain._np_random is None:  # a generator that came later would be seeded by the clock
        plain.np_random = np.random.default_rng(seed)
