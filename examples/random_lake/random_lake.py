"""FrozenLake on a random map: an example of a user's environment.

`env: random_lake:RandomLake-v0` in a config imports this module first.
"""

from typing import Any

import gymnasium
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map


class RandomLake(FrozenLakeEnv):
    """A FrozenLake with a reachable goal; `map_seed` is the seed of the map."""

    def __init__(self, map_seed: int = 0, size: int = 4, frozen: float = 0.8, **others: Any):
        super().__init__(desc=generate_random_map(size, frozen, map_seed), **others)


gymnasium.register("RandomLake-v0", RandomLake)
