"""Miniworld as a Gymnasium environment, with motion, collisions and images of `miniworld`.

Importing this module requires `miniworld` and OpenGL; see `sad_hpc.tasks.miniworld.gl`.
"""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sad_hpc.tasks.miniworld.gl import graphics
from sad_hpc.tasks.miniworld.room import (
    BOX_SIZE,
    BOXES,
    COLORS,
    FORWARD_STEP,
    GEOMETRY,
    ROOM_SIZE,
    TURN_DEGREES,
    check_pose,
    heading_vectors,
)

with graphics():
    from miniworld.entity import Box
    from miniworld.miniworld import MiniWorldEnv
    from miniworld.params import DEFAULT_PARAMS

Observation = dict[str, NDArray[Any]]


class StillBox(Box):
    """A box that is drawn once a reset, with the room, which halves the time of an image."""

    @property
    def is_static(self) -> bool:
        """True, because the box never moves."""
        return True


class MiniworldEnv(MiniWorldEnv):
    """One Miniworld room as a Gymnasium environment; see `sad_hpc.tasks.miniworld.room`.

    Observations are `image` (s, s, 3) uint8 and `heading` (2,) float32; `info["pose"]` is the pose
    (3,) float64, for tests only.  `reset(options={"pose": (x, z, heading)})` starts in that pose
    instead of the middle.  All rooms of a process share one OpenGL display list.  Do not use other
    kinds of `miniworld` rooms in the same process.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        target: int = 0,
        horizon: int = 50,
        image_size: int = 25,
        render_mode: str | None = None,
        view: str = "agent",
    ) -> None:
        """Open a room.

        Args:
            target: corner of the target box, 0..3.
            horizon: T, steps in an episode.
            image_size: pixels along each side of an observation.
            render_mode: None or `rgb_array`, for images of 256 x 256 pixels.
            view: viewpoint of such images, `agent` or `top`.
        """
        if target not in range(len(COLORS)):
            raise ValueError(f"target {target} is not a corner: use 0, 1, 2 or 3")
        self._target_corner = int(target)
        self._start: NDArray[np.float64] | None = None
        params = DEFAULT_PARAMS.no_random()
        params.set("forward_step", FORWARD_STEP)
        params.set("turn_step", TURN_DEGREES)
        with graphics():
            super().__init__(
                max_episode_steps=horizon,
                obs_width=image_size,
                obs_height=image_size,
                window_width=256,
                window_height=256,
                params=params,
                domain_rand=False,
                render_mode=render_mode,
                view=view,
            )
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (image_size, image_size, 3), np.uint8),
                "heading": spaces.Box(-1, 1, (2,), np.float32),
            }
        )
        # miniworld's own action 3 moves back; `done` does not move the agent.
        names = (self.actions.turn_left, self.actions.turn_right, self.actions.move_forward)
        self._actions = (*names, self.actions.done)
        self.action_space = spaces.Discrete(len(self._actions))

    @property
    def pose(self) -> NDArray[np.float64]:
        """Position x, z and heading of the agent, (3,)."""
        return np.array([self.agent.pos[0], self.agent.pos[2], self.agent.dir])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; see gymnasium.Env.reset."""
        start = (options or {}).get("pose")
        self._start = None if start is None else check_pose(start)
        image, _ = super().reset(seed=seed)
        return self._observation(image), {"pose": self.pose}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move the agent; see gymnasium.Env.step."""
        image, _, _, truncated, _ = super().step(self._actions[action])
        return self._observation(image), self._reward(), False, truncated, {"pose": self.pose}

    def _observation(self, image: NDArray[np.uint8]) -> Observation:
        return {"image": image, "heading": heading_vectors(self.pose)}

    def _reward(self) -> float:
        dx, _, dz = self._target.pos - self.agent.pos
        distance = math.sqrt(dx * dx + dz * dz)
        ahead = dx * math.cos(self.agent.dir) - dz * math.sin(self.agent.dir)
        return float(distance < GEOMETRY.near and ahead >= GEOMETRY.cos_facing * distance)

    def _gen_world(self) -> None:
        self.add_rect_room(min_x=0, max_x=ROOM_SIZE, min_z=0, max_z=ROOM_SIZE)
        boxes = [
            self.place_entity(StillBox(color, BOX_SIZE), pos=np.array([x, 0, z]), dir=0)
            for color, (x, z) in zip(COLORS, BOXES, strict=True)
        ]
        self._target = boxes[self._target_corner]
        if self._start is None:
            middle = ROOM_SIZE / 2
            heading = self.np_random.uniform(0, 2 * math.pi)
            self._start = np.array([middle, middle, heading])
        x, z, heading = self._start.tolist()
        self.place_agent(pos=np.array([x, 0, z]), dir=heading)

    def intersect(self, ent: Any, pos: NDArray[np.float64], radius: float) -> Any:
        """Return what an entity at a position touches: True for a wall, the target, or None."""
        touched = super().intersect(ent, pos, radius)
        return touched if touched is True or touched is self._target else None
