"""Functional environments in batches: each row is its own environment, and copies are exact."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.environments.functional import Functional
from sad_hpc.tasks.environments.functions import FunctionalConfig

CARTPOLE = "gymnasium.envs.phys2d.cartpole:CartPoleFunctional"
PENDULUM = "gymnasium.envs.phys2d.pendulum:PendulumFunctional"
DRIFT = "tests.tasks.functional_environments:Drift"


def family_of(env: str, vary: dict[str, Any], **more: Any) -> Functional:
    """A family of functional environments."""
    task = {"family": "functional", "env": env, "horizon": 12, "vary": vary, **more}
    return make_family(FunctionalConfig.model_validate(task))


def drift(**more: Any) -> Functional:
    """Walks with different wind."""
    return family_of(DRIFT, {"wind": {"uniform": [-1.0, 1.0]}}, **more)


def test_each_row_is_the_environment_of_its_task() -> None:
    family = family_of(
        CARTPOLE, {"gravity": {"uniform": [5.0, 20.0]}, "force_mag": {"choice": [-10.0, 10.0]}}
    )
    from gymnasium.envs.phys2d.cartpole import CartPoleFunctional, CartPoleParams

    generator = np.random.default_rng(0)
    tasks = family.draw_tasks("train", 5, generator)
    simulators, single = family.simulators(tasks, generator), CartPoleFunctional()
    values = [CartPoleParams(**family.config.laws.values(row)) for row in tasks]
    states = list(simulators.observations.copy())
    for _ in range(12):
        actions = generator.integers(2, size=5)
        simulators.step(actions)
        for row, (state, action) in enumerate(zip(states, actions, strict=True)):
            if not bool(single.terminal(state, None, values[row])):
                states[row] = np.asarray(single.transition(state, action, None, values[row]))
        np.testing.assert_allclose(simulators.observations, np.stack(states), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "functional, env, vary, make",
    [
        (
            *(CARTPOLE, "CartPole-v1", {"gravity": [5.0, 20.0], "force_mag": [-10.0, 10.0]}),
            {"polemass_length": 0.05},  # Gymnasium adds mass and length instead of multiplying them
        ),
        (PENDULUM, "Pendulum-v1", {"g": [5.0, 15.0], "m": [0.5, 1.5]}, {}),
    ],
)
def test_gymnasiums_functional_environments_are_those_of_its_ids(
    functional: str, env: str, vary: dict[str, Any], make: dict[str, float]
) -> None:
    laws = {name: {"uniform": ends} for name, ends in vary.items()}
    family = family_of(functional, laws, make=make)
    generator, vectors = np.random.default_rng(0), family.components is not None
    tasks, ended = family.draw_tasks("train", 5, generator), 0
    simulators = family.simulators(tasks, generator)
    others: list[Any] = [gymnasium.make(env).unwrapped for _ in tasks]
    for other, row, seen in zip(others, tasks, simulators.observations.copy(), strict=True):
        other.reset()
        other.state = np.array([np.arctan2(seen[1], seen[0]), seen[2]]) if vectors else seen
        for name, value in family.config.laws.values(row).items():
            setattr(other, name, value)
    for _ in range(60):
        actions = generator.uniform(-1, 1, (5, 1)) if vectors else generator.integers(2, size=5)
        running = ~simulators.ended
        rewards = simulators.step(actions.astype(np.float32) if vectors else actions)
        for number in np.flatnonzero(running):
            taken = 2 * actions[number] if vectors else actions[number]
            seen, reward, end, *_ = others[number].step(taken)
            np.testing.assert_allclose(simulators.observations[number], seen, atol=1e-3)
            assert rewards[number] == pytest.approx(reward, abs=1e-3)
            assert simulators.ended[number] == end
            ended += end
    assert ended >= 3 or vectors


def test_a_copy_goes_on_from_its_state_with_its_own_random_numbers() -> None:
    for noise in (0.0, 1.0):
        family, generator = drift(make={"noise": noise}), np.random.default_rng(0)
        origin = family.simulators(family.draw_tasks("train", 3, generator), generator)
        origin.step(np.zeros((3, 2), np.float32))
        before, rows = origin.observations.copy(), np.array([2, 0, 0, 2, 1])
        copies = origin.copied(rows, generator)
        np.testing.assert_array_equal(copies.observations, before[rows])
        rewards = copies.step(np.full((5, 2), 0.5, np.float32))
        np.testing.assert_array_equal(origin.observations, before)
        alike = origin.step(np.full((3, 2), 0.5, np.float32))[rows] == rewards
        assert alike.all() if noise == 0 else not alike.any()
        assert (rewards[1] == rewards[2]) == (noise == 0)


def test_actions_have_the_bounds_of_their_box() -> None:
    family, generator = drift(make={"noise": 0.0}), np.random.default_rng(0)
    simulators = family.simulators(np.array([[0.25]]), generator)
    assert simulators.step(np.array([[-1.0, 0.5]], np.float32)) == pytest.approx(-2 + 2.5 + 0.25)


def test_an_ended_episode_does_not_change_until_it_starts_again() -> None:
    family, generator = drift(), np.random.default_rng(0)
    simulators, still = family.simulators(np.zeros((2, 1)), generator), np.zeros((2, 2), np.float32)
    for _ in range(3):
        simulators.step(still)
    assert simulators.ended.all()
    before = simulators.observations.copy()
    assert (simulators.step(still) == 0).all()
    np.testing.assert_array_equal(simulators.observations, before)
    simulators.start(np.array([1]), generator)
    assert simulators.ended.tolist() == [True, False]
    assert (simulators.observations[1] == 0).all()


def test_a_block_is_a_function_of_its_settings() -> None:
    data = DataConfig(tasks=10, trust_horizon=3, queries_per_task=2, block_tasks=4, candidates=8)
    family = drift()
    one, _, other = (make_block(family, data, "train", block).arrays for block in (0, 1, 0))
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], name)
    assert family.components == 2 and one["labels/sad/actions"].shape == (4, 2, 2)


BAD: dict[str, dict[str, Any]] = {
    "task.vary.rain: .* has the parameters wind, noise": {
        "vary": {"rain": {"uniform": [0.0, 1.0]}}
    },
    "task.make.rain: .* has the parameters wind, noise": {"make": {"rain": 1}},
    "task.vary.wind has values that are not numbers": {"vary": {"wind": {"choice": ["a", "b"]}}},
    "task.attributes is for task.family=gymnasium": {"attributes": {"x": {"uniform": [0.0, 1.0]}}},
    "give module:Class with a subclass of FuncEnv": {"env": "sad_hpc.cli:main"},
    "cannot import nowhere": {"env": "nowhere:Drift"},
}


@pytest.mark.parametrize("words", sorted(BAD))
def test_what_is_wrong_with_a_config_is_named(words: str) -> None:
    settings = {"env": DRIFT, "vary": {"wind": {"uniform": [-1.0, 1.0]}}} | BAD[words]
    with pytest.raises(ConfigError, match=words):
        family_of(**settings)


def test_jax_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    task = {
        "family": "functional",
        "env": DRIFT,
        "horizon": 9,
        "vary": {"x": {"uniform": [0.0, 1.0]}},
    }
    with pytest.raises(ConfigError, match=r"JAX is missing .* pip install 'sad_hpc\[jax\]'"):
        make_family(FunctionalConfig.model_validate(task))
    code = "import sys, sad_hpc.launch.check_config as c; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
