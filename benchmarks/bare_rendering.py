"""Miniworld's own renderer, and nothing else: `python bare_rendering.py FRAMES`."""

import itertools
import sys

import numpy as np

from sad_hpc.distill.pose_contexts import sample_pose_transitions
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.miniworld.gl import graphics
from sad_hpc.tasks.miniworld.room import BOXES, COLORS, ROOM_SIZE

with graphics():
    from miniworld.entity import Box
    from miniworld.miniworld import MiniWorldEnv

TARGETS = np.arange(1000) % 4
CONTEXT = sample_pose_transitions(
    TARGETS, policy_table("uniform", 4), 1, stream(0, 0, 0, "transitions")
)
POSES = CONTEXT.states[:, 0]
"""(1000, 3): where images are taken, in turn."""


class BareRoom(MiniWorldEnv):
    """The room of our tasks, written as the examples that come with `miniworld` are."""

    def _gen_world(self) -> None:
        self.add_rect_room(min_x=0, max_x=ROOM_SIZE, min_z=0, max_z=ROOM_SIZE)
        for color, (x, z) in zip(COLORS, BOXES, strict=True):
            self.place_entity(Box(color), pos=np.array([x, 0, z]), dir=0)
        self.place_agent(pos=np.array([3, 0, 3]), dir=0)


def bare_room() -> BareRoom:
    """A room for images of 25 x 25 pixels."""
    with graphics():
        return BareRoom(obs_width=25, obs_height=25)


def render(room: BareRoom, frames: int) -> None:
    """Takes that many images."""
    room._render_static()  # rooms of a process share one display list
    for x, z, heading in itertools.islice(itertools.cycle(POSES.tolist()), frames):
        room.agent.pos, room.agent.dir = np.array([x, 0, z]), heading
        room.render_obs()


if __name__ == "__main__":
    render(bare_room(), int(sys.argv[1]))
