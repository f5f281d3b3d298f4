"""Miniworld's speeds as JSON lines, like those of `run.py`; needs OpenGL."""

import itertools
import statistics

import numpy as np
from bare_rendering import POSES, TARGETS, bare_room, render
from measure import REPEATS, Work, compare, report, timed, void

from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout_labels import distill_pose_labels
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.miniworld.environment import MiniworldEnv
from sad_hpc.tasks.miniworld.renderer import shared_renderer
from sad_hpc.tasks.miniworld.shortest import optimal_pose_actions

FRAMES = len(POSES)


def bench_rendering() -> None:
    """Images, label rollouts and optimal actions of Miniworld, on one core."""
    room = bare_room()
    bare = Work(lambda: render(room, FRAMES), FRAMES)
    ours = Work(lambda: void(shared_renderer(25).render(POSES)), FRAMES)
    bare.run()
    ours.run()
    compare("render 25 x 25", "frames", ours, bare, "MiniWorldEnv.render_obs")
    label_rollouts()
    optimal_actions()


def label_rollouts() -> None:
    targets, policy = np.arange(4000) % 4, policy_table("uniform", 4)
    rule = LabelRule(3, 1, 0.9, True, 1e-6, False)

    def label() -> int:
        return distill_pose_labels(targets, policy, rule, stream(0, 0, 0, "sad")).transitions

    work = Work(lambda: void(label()), label())
    compare("label rollouts miniworld, N = 3", "transitions", work, walk(), "MiniworldEnv.step")


def optimal_actions() -> None:
    def search() -> None:
        optimal_pose_actions(POSES, TARGETS)

    search()
    seconds = statistics.median(timed(search)[0] for _ in range(REPEATS))
    report("optimal actions miniworld, by exact search", FRAMES, "poses", seconds)


def walk() -> Work:
    """Steps of the Gymnasium environment, without images."""
    env = MiniworldEnv()

    def run() -> None:
        env.reset(seed=0)
        for action in itertools.islice(itertools.cycle((2, 0, 2, 3, 1)), FRAMES):
            env.step(action)

    return Work(run, FRAMES)


if __name__ == "__main__":
    bench_rendering()
