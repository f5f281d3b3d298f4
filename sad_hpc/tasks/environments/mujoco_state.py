"""Copies of MuJoCo environments: Gymnasium's, and others that have `model` and `data`."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.environments.engine import EngineSimulator
from sad_hpc.tasks.environments.simulator import Environment, MakeEnvironment

DERIVED = (
    *("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos"),
    *("site_xmat", "subtree_com", "cinert", "cvel", "cfrc_ext", "qacc", "qfrc_actuator"),
    *("actuator_force", "sensordata"),
)
"""Arrays that MuJoCo derives from the state before the last physics step.  They are saved because
Ant and Humanoid read body positions from them."""


class MujocoState(EngineSimulator):
    """A simulator whose copies share the MuJoCo model and save mjSTATE_INTEGRATION and DERIVED."""

    adapter = "MuJoCo's mj_getState and mj_setState"

    @classmethod
    def fits(cls, environment: Environment) -> bool:
        """Implement `Simulator.fits`."""
        mujoco: Any = sys.modules.get("mujoco")  # any MuJoCo environment has imported it
        if mujoco is None:
            return False
        model = getattr(environment.unwrapped, "model", None)
        data = getattr(environment.unwrapped, "data", None)
        return isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData)

    def __init__(self, environment: Environment, make: MakeEnvironment) -> None:
        import mujoco

        super().__init__(environment, make)
        plain: Any = environment.unwrapped
        self._model, self._data, self._library = plain.model, plain.data, mujoco
        self._kind = mujoco.mjtState.mjSTATE_INTEGRATION
        self._size = mujoco.mj_stateSize(self._model, self._kind)
        views = [getattr(self._data, name).reshape(-1) for name in DERIVED]
        self._derived = [view for view in views if view.size]
        ends = self._size + np.cumsum([array.size for array in self._derived])
        self._columns = [
            slice(end - array.size, end) for array, end in zip(self._derived, ends, strict=True)
        ]
        self._numbers = int(ends[-1])

    def _parts(self) -> list[object]:
        renderer = getattr(self.environment.unwrapped, "mujoco_renderer", None)
        return [self._model, self._data, *([renderer] if renderer else [])]

    def _save(self) -> NDArray[np.float64]:
        state = np.empty(self._numbers)
        self._library.mj_getState(self._model, self._data, state[: self._size], self._kind)
        np.concatenate(self._derived, out=state[self._size :])
        return state

    def _restore(self, state: NDArray[np.float64]) -> None:
        self._library.mj_setState(self._model, self._data, state[: self._size], self._kind)
        for array, columns in zip(self._derived, self._columns, strict=True):
            array[:] = state[columns]
