"""Miniworld's speeds as JSON lines, like those of `run.py`; needs OpenGL."""

import itertools

import numpy as np
from run import compare

from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.random import stream
from sad_hpc.distill.rollouts import distill_pose_labels, sample_pose_transitions
from sad_hpc.distill.shortest import optimal_pose_actions
from sad_hpc.policy import policy_table
from sad_hpc.render.environment import MiniworldEnv
from sad_hpc.render.gl import graphics
from sad_hpc.render.renderer import shared_renderer
from sad_hpc.tasks.room import BOXES, COLORS, ROOM_SIZE

with graphics():
    from miniworld.entity import Box
    from miniworld.miniworld import MiniWorldEnv

FRAMES = 1000
POLICY = policy_table("uniform", 4)
CONTEXT = sample_pose_transitions(np.arange(FRAMES) % 4, POLICY, 1, stream(0, 0, 0, "context"))
POSES = CONTEXT.poses[:, 0]


class BareRoom(MiniWorldEnv):
    """The same room, written as the examples that come with `miniworld` are."""

    def _gen_world(self) -> None:
        self.add_rect_room(min_x=0, max_x=ROOM_SIZE, min_z=0, max_z=ROOM_SIZE)
        for color, (x, z) in zip(COLORS, BOXES, strict=True):
            self.place_entity(Box(color), pos=np.array([x, 0, z]), dir=0)
        self.place_agent(pos=np.array([3, 0, 3]), dir=0)


def bench_rendering() -> None:
    with graphics():
        room = BareRoom(obs_width=25, obs_height=25)

    def bare() -> None:
        room._render_static()  # rooms of a process share one display list
        for x, z, heading in POSES.tolist():
            room.agent.pos, room.agent.dir = np.array([x, 0, z]), heading
            room.render_obs()

    def ours() -> None:
        shared_renderer(25).render(POSES)

    bare()
    ours()
    compare(
        "render 25 x 25: Renderer against MiniWorldEnv.render_obs",
        "frames",
        (ours, FRAMES),
        (bare, FRAMES),
    )


def bench_kernels() -> None:
    env = MiniworldEnv()
    targets = np.arange(4000) % 4
    rule = LabelRule(3, 1, 0.9, True, 1e-6, False)

    def label() -> int:
        return distill_pose_labels(targets, POLICY, rule, stream(0, 0, 0, "sad")).transitions

    def ours() -> None:
        label()

    def walk() -> None:
        env.reset(seed=0)
        for action in itertools.islice(itertools.cycle((2, 0, 2, 3, 1)), FRAMES):
            env.step(action)

    steps = label()
    compare(
        "label roll-outs, N = 3: kernel against steps of the environment",
        "transitions",
        (ours, steps),
        (walk, FRAMES),
    )
    corners = CONTEXT.actions[:, 0] % 4

    def search() -> None:
        optimal_pose_actions(POSES, corners)

    search()
    compare(
        "optimal actions by exact search against steps of the environment",
        "poses",
        (search, FRAMES),
        (walk, FRAMES),
    )


if __name__ == "__main__":
    bench_rendering()
    bench_kernels()
