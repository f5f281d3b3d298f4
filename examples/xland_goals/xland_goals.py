"""XLand-MiniGrid with a hidden goal, as a functional environment.

`env: xland_goals:XLandGoals` in a config of the family `functional` names its class.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.experimental.functional import FuncEnv
from xminigrid.core.constants import Colors, Tiles
from xminigrid.core.goals import AgentNearGoal
from xminigrid.core.rules import EmptyRule
from xminigrid.envs.xland import XLandEnvParams, XLandMiniGrid
from xminigrid.types import RuleSet, TimeStep
from xminigrid.wrappers import DirectionObservationWrapper, GymAutoResetWrapper

SHAPES = np.array([Tiles.BALL, Tiles.SQUARE, Tiles.STAR])
COLORS = np.array([Colors.RED, Colors.GREEN, Colors.BLUE])
KINDS = np.array(list(itertools.product(SHAPES, COLORS)), np.uint8)
"""Kinds of objects, (9, 2): shape and color."""
RULESETS = np.array(
    [(a, b, c) for a, b, c in itertools.product(range(len(KINDS)), repeat=3) if a != b < c != a]
)
"""All tasks, (252, 3): kinds of the objects in the room, the first of which is the goal."""
VIEW = 5
"""Cells of a side of the agent's view."""
NUMBERS = VIEW**2 * (len(SHAPES) + len(COLORS) + 1) + 4
"""Size of an observation."""


@dataclass(frozen=True)
class XLandGoalsParams:
    """The parameters of a task."""

    ruleset: int = 0
    """Index in `RULESETS`."""
    size: int = 6
    """Cells of a side of the room, with its walls."""

    def xland(self) -> XLandEnvParams:
        """Return XLand's parameters of the task."""
        tiles = jnp.asarray(KINDS)[jnp.asarray(RULESETS)[self.ruleset]]
        return XLandEnvParams(
            ruleset=RuleSet(AgentNearGoal(tiles[0]).encode(), EmptyRule().encode()[None], tiles),
            height=self.size,
            width=self.size,
            view_size=VIEW,
            grid_type="R1",
            max_steps=2**30,  # task.horizon is the limit
        )


class XLandGoals(FuncEnv):
    """A room with three objects, one of which is the goal.

    Actions are XLand's first three: forward, turn right, turn left.  The reward is 1 if the agent
    is next to the goal after `forward`.  Then the objects and the agent are moved to other places,
    and the episode continues.  Observations are XLand's view, as ones for the shapes, the colors
    and the walls in its cells, and the agent's direction.  They do not tell which object is the
    goal.
    """

    action_space = spaces.Discrete(3)
    observation_space = spaces.Box(0, 1, (NUMBERS,), np.float32)

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        super().__init__(options)
        self.xland = GymAutoResetWrapper(DirectionObservationWrapper(XLandMiniGrid()))

    def get_default_params(self, **fields: Any) -> XLandGoalsParams:
        """Return the parameters of a task with some fields."""
        return XLandGoalsParams(**fields)

    def initial(self, rng: Any, params: Any = None) -> TimeStep:
        """Return a room with the objects and the agent in random places."""
        return self.xland.reset(params.xland(), rng)

    def transition(self, state: TimeStep, action: Any, rng: Any, params: Any = None) -> TimeStep:
        """Return XLand's next state; `rng` draws the places after a reward."""
        seeded = state.replace(state=state.state.replace(key=rng))
        return self.xland.step(params.xland(), seeded, action)

    def observation(self, state: TimeStep, rng: Any, params: Any = None) -> jax.Array:
        """Return the observation, (NUMBERS,)."""
        shapes, colors = jnp.moveaxis(state.observation["img"], -1, 0)[..., None]
        ones = [shapes == SHAPES, colors == COLORS, shapes == Tiles.WALL]
        flat = [part.ravel() for part in ones] + [state.observation["direction"]]
        return jnp.concatenate(flat, dtype=jnp.float32)

    def reward(
        self, state: TimeStep, action: Any, next_state: TimeStep, rng: Any, params: Any = None
    ) -> jax.Array:
        """Return 1 at the goal; XLand's reward falls with time."""
        return next_state.reward > 0

    def terminal(self, state: TimeStep, rng: Any, params: Any = None) -> jax.Array:
        """Return False."""
        return jnp.zeros((), jnp.bool_)
