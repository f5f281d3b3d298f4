"""Miniworld's speeds as JSON lines, like those of `run.py`; needs OpenGL."""

import functools
import itertools
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from run import ROOT, compare

from sad_hpc.dataset.writer import write_shard
from sad_hpc.distill import make_block
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.random import stream
from sad_hpc.distill.rollouts import distill_pose_labels, sample_pose_transitions
from sad_hpc.distill.shortest import optimal_pose_actions
from sad_hpc.experiment_file import load_experiment
from sad_hpc.policy import policy_table
from sad_hpc.render.environment import MiniworldEnv
from sad_hpc.render.gl import graphics
from sad_hpc.render.process import shared_process
from sad_hpc.render.renderer import shared_renderer
from sad_hpc.tasks import make_family
from sad_hpc.tasks.room import BOXES, COLORS, ROOM_SIZE

with graphics():
    from miniworld.entity import Box
    from miniworld.miniworld import MiniWorldEnv

FRAMES = 1000
TASKS = 32
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


def render_bare(frames: int = FRAMES) -> None:
    room = bare_room()
    room._render_static()  # rooms of a process share one display list
    for x, z, heading in itertools.islice(itertools.cycle(POSES.tolist()), frames):
        room.agent.pos, room.agent.dir = np.array([x, 0, z]), heading
        room.render_obs()


@functools.cache
def bare_room() -> BareRoom:
    with graphics():
        return BareRoom(obs_width=25, obs_height=25)


def bench_rendering() -> None:
    def bare() -> None:
        render_bare()

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


def collect_block(number: int) -> None:
    """What a rank of `sad-hpc collect` does with one block."""
    experiment = load_experiment(ROOT / "configs/miniworld.yaml", [f"data.block_tasks={TASKS}"])
    block = make_block(make_family(experiment.task), experiment.data, "train", number)
    block = shared_process(25).add_images(block)
    with tempfile.TemporaryDirectory() as folder:
        write_shard(Path(folder), number, block, "0" * 12, experiment.data_config(), "miniworld")


def bench_collection() -> None:
    """On every core at once; a pool's processes keep their renderers from one call to the next."""
    cores = len(os.sched_getaffinity(0))
    horizon = load_experiment(ROOT / "configs/miniworld.yaml").task.horizon
    frames = TASKS * (2 * horizon + 3)  # contexts, episodes, and three query states
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:

        def ours() -> None:
            list(pool.map(collect_block, range(cores)))

        def bare() -> None:
            list(pool.map(render_bare, [frames] * cores))

        for work in (ours, bare):
            work()
        compare(
            f"collect miniworld on {cores} cores: blocks written against MiniWorldEnv.render_obs",
            "frames",
            (ours, cores * frames),
            (bare, cores * frames),
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
    bench_collection()
    bench_kernels()
