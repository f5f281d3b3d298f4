"""A functional environment whose states are nested and whose steps are random."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.experimental.functional import FuncEnv


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class DriftParams:
    """Parameters of `Drift`."""

    wind: float = 0.0
    noise: float = 1.0


class Drift(FuncEnv):
    """A walk on a line with two numbers of an action, until its end at 3."""

    observation_space = spaces.Box(-np.inf, np.inf, (2, 1))
    action_space = spaces.Box(-2.0, 4.0, (2,))

    def get_default_params(self, **options: Any) -> DriftParams:
        return DriftParams()

    def initial(self, rng: Any, params: Any = None) -> Any:
        return {"at": jnp.zeros(()), "steps": (jnp.zeros((), jnp.int32),)}

    def transition(self, state: Any, action: Any, rng: Any, params: Any = None) -> Any:
        moved = state["at"] + action.sum() + params.wind + params.noise * jax.random.normal(rng)
        return {"at": moved, "steps": (state["steps"][0] + 1,)}

    def observation(self, state: Any, rng: Any, params: Any = None) -> Any:
        return jnp.stack([state["at"], state["steps"][0].astype(float)])[:, None]

    def reward(self, state: Any, action: Any, next_state: Any, rng: Any, params: Any = None) -> Any:
        return next_state["at"] - state["at"]

    def terminal(self, state: Any, rng: Any, params: Any = None) -> Any:
        return state["steps"][0] >= 3
