"""Label rollouts in Gymnasium environments: copies of a state, each stepped a few times."""

import copy
import importlib.util
import sys
from pathlib import Path

import numpy as np
from measure import Work, compare

from sad_hpc.tasks.environments.functional import Functional
from sad_hpc.tasks.environments.functions import FunctionalConfig
from sad_hpc.tasks.environments.laws import Law
from sad_hpc.tasks.environments.simulator import DeepCopied
from sad_hpc.tasks.environments.simulators import EnvironmentSimulators
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment
from sad_hpc.tasks.environments.trials import choose_adapter

sys.path.append(str(Path(__file__).parents[1] / "examples/beacon_pictures"))

TASKS = {
    "CartPole-v1": ("gymnasium", EnvironmentTask("CartPole-v1")),
    "MiniGrid-DoorKey-5x5-v0": ("minigrid", EnvironmentTask("MiniGrid-DoorKey-5x5-v0")),
    "HalfCheetah-v5": ("mujoco", EnvironmentTask("HalfCheetah-v5")),
    "LunarLander-v3": ("Box2D", EnvironmentTask("LunarLander-v3")),
    "Pong, RAM": ("ale_py", EnvironmentTask("ALE/Pong-v5", {"obs_type": "ram"})),
    "images of 25 x 25": ("beacon_pictures", EnvironmentTask("beacon_pictures:BeaconPictures-v0")),
}
"""For every adapter, the package that it needs and an environment."""

ROLLOUTS = 256
STEPS = 8
"""Steps of a rollout: the trust horizon."""


def bench_environments() -> None:
    """Copies with their steps, against steps without a copy; and against deepcopies and steps."""
    for name, (package, task) in TASKS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{name}: {package} is not installed")
            continue
        adapter = choose_adapter(task)
        title, ours = f"rollouts of {STEPS}, {name}, by {adapter.adapter}", rollouts(task, adapter)
        compare(title, "transitions", ours, bare_loop(task), "env.step in a loop, no copies")
        if adapter is DeepCopied:
            limit = "copy.deepcopy and env.step alone"
            compare(title, "transitions", ours, deepcopies(task), limit, 0.5)
    if importlib.util.find_spec("flax") is None or importlib.util.find_spec("jax") is None:
        print("functional environments: jax and flax are not installed")
        return
    reference = bare_loop(EnvironmentTask("phys2d/CartPole-v1"))
    title = f"rollouts of {STEPS}, {ROLLOUTS} at a time, functional CartPole by JAX"
    compare(title, "transitions", functional_rollouts(), reference, "env.step in a loop, no copies")


def functional_rollouts() -> Work:
    """Step copies of one state of a functional environment, as label rollouts do."""
    place = "gymnasium.envs.phys2d.cartpole:CartPoleFunctional"
    law = {"gravity": Law(uniform=[5.0, 20.0])}
    family, generator = (
        Functional(FunctionalConfig(env=place, horizon=100, vary=law)),
        np.random.default_rng(0),
    )
    origin = family.simulators(family.draw_tasks("train", 1, generator), generator)
    return stepped(origin, generator)


def rollouts(task: EnvironmentTask, adapter) -> Work:  # type: ignore[no-untyped-def]
    """Step copies of one state side by side, as label rollouts do."""
    generator = np.random.default_rng(0)
    return stepped(EnvironmentSimulators([task], adapter, generator), generator)


def stepped(origin, generator: np.random.Generator) -> Work:  # type: ignore[no-untyped-def]
    """Copy the first of some simulators, and step the copies."""
    shape = (STEPS, ROLLOUTS)
    drawn = origin.actions.drawn(STEPS * ROLLOUTS, generator)
    actions = drawn.reshape(*shape, *drawn.shape[1:])

    def run() -> None:
        copies = origin.copied(np.zeros(ROLLOUTS, np.int64), generator)
        for step in range(STEPS):
            copies.step(actions[step])

    return Work(run, STEPS * ROLLOUTS)


def bare_loop(task: EnvironmentTask) -> Work:
    """One environment, stepped as often, and started again when it ends."""
    environment = make_environment(task)
    environment.action_space.seed(0)
    actions = [environment.action_space.sample() for _ in range(STEPS * ROLLOUTS)]
    environment.reset(seed=0)

    def run() -> None:
        for action in actions:
            _, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                environment.reset()

    return Work(run, STEPS * ROLLOUTS)


def deepcopies(task: EnvironmentTask) -> Work:
    """Make copies by deepcopy, which share the random numbers of their origin, and step them."""
    environment = make_environment(task)
    environment.reset(seed=0)
    space = environment.action_space
    space.seed(0)
    actions = [space.sample() for _ in range(STEPS)]

    def run() -> None:
        for _ in range(ROLLOUTS):
            twin = copy.deepcopy(environment)
            for action in actions:
                twin.step(action)

    return Work(run, STEPS * ROLLOUTS)


if __name__ == "__main__":
    bench_environments()
