"""XLand-MiniGrid of examples/: its steps are XLand's."""

import importlib.util

import numpy as np
import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow  # JAX compiles for seconds


def test_a_step_is_that_of_xland_and_the_goal_is_the_first_object_of_the_task() -> None:
    pytest.importorskip("xminigrid", reason="xminigrid depends on a file of 68 MB, for videos")
    import jax
    from xminigrid.envs.xland import XLandMiniGrid

    place = ROOT / "examples/xland_goals/xland_goals.py"
    spec = importlib.util.spec_from_file_location("xland_goals", place)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.RULESETS.shape == (252, 3)
    task, ours, generator = 100, example.XLandGoals(), np.random.default_rng(0)
    params = ours.get_default_params(ruleset=task)
    transition = jax.jit(lambda *given: ours.transition(*given, params))
    observation = jax.jit(lambda state: ours.observation(state, None, params))
    step = jax.jit(lambda *given: XLandMiniGrid().step(params.xland(), *given))
    state, solved = jax.jit(lambda key: ours.initial(key, params))(jax.random.key(0)), 0
    tiles = [tuple(map(int, example.KINDS[kind])) for kind in example.RULESETS[task]]
    for number in range(200):
        action = int(generator.integers(3))
        theirs = step(state, action)
        after = transition(state, action, jax.random.key(number))
        grid, (y, x) = np.asarray(theirs.state.grid), np.asarray(theirs.state.agent.position)
        near = [tuple(grid[y + dy, x + dx]) for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0))]
        reward = bool(ours.reward(state, action, after, None, params))
        assert reward == (theirs.reward > 0) == (action == 0 and tiles[0] in near)
        assert not ours.terminal(after, None, params)
        if not reward:
            np.testing.assert_array_equal(after.state.grid, grid)
            np.testing.assert_array_equal(after.state.agent.position, (y, x))
            seen = np.asarray(theirs.observation).reshape(25, 2)
            numbers = np.asarray(observation(after))
            shapes, colors, walls, direction = np.split(numbers, [75, 150, 175])
            for cell, (shape, color) in enumerate(seen):
                assert (shapes[3 * cell :][:3] == (shape == example.SHAPES)).all()
                assert (colors[3 * cell :][:3] == (color == example.COLORS)).all()
                assert walls[cell] == (shape == 2)
            assert direction.argmax() == theirs.state.agent.direction
        objects = [tuple(tile) for tile in np.asarray(after.state.grid).reshape(-1, 2).tolist()]
        assert all(objects.count(tile) == 1 for tile in tiles)
        state, solved = after, solved + reward
    assert solved
