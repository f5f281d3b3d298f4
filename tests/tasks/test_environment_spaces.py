import sys

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import flatten

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.environments.actions import actions_of
from sad_hpc.tasks.environments.observations import Observations
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment


def written(space, value):
    codec = Observations(space)
    assert codec.dtype == np.float32
    row = np.full(codec.shape, np.nan, np.float32)
    codec.write(value, row)
    return row


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3), np.float64),
        spaces.Box(-1, 1, (), np.float32),
        spaces.Discrete(5, start=-2),
        spaces.MultiDiscrete([3, 2, 4]),
        spaces.MultiDiscrete([[3, 2], [4, 2]], start=[[1, -1], [0, 5]]),
        spaces.MultiBinary([2, 2]),
        spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,)), spaces.MultiBinary(2)]),
        spaces.Dict(b=spaces.Discrete(2), a=spaces.Dict(x=spaces.Box(0, 9, (2, 2), np.uint8))),
    ],
    ids=str,
)
def test_rows_are_those_of_gymnasiums_flatten(space):
    space.seed(0)
    for _ in range(20):
        value = space.sample()
        np.testing.assert_array_equal(
            written(space, value), np.asarray(flatten(space, value), np.float32).reshape(-1)
        )


def test_texts_are_left_out():
    space = spaces.Dict(a=spaces.Box(0, 1, (2,)), mission=spaces.Text(10), z=spaces.Discrete(2))
    value = {"a": np.array([0.5, 1]), "mission": "go", "z": 1}
    assert written(space, value).tolist() == [0.5, 1, 0, 1]


def test_what_is_not_in_the_space_is_an_error_and_not_another_value():
    for space, value in [
        (spaces.Discrete(3), -1),
        (spaces.Discrete(3), 3),
        (spaces.Box(0, 1, (2,)), np.zeros(1)),
        (spaces.MultiDiscrete([2, 2]), [0, 2]),
    ]:
        with pytest.raises(ValueError, match="is not in"):
            written(space, value)


def test_images_texts_alone_and_other_spaces_are_refused_with_a_way_out():
    for space, text in [
        (spaces.Box(0, 255, (84, 84), np.uint8), "7,056 numbers.*wrapper"),
        (spaces.Text(5), "0 numbers"),
        (spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))), "Sequence.*wrapper"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph.*wrapper"),
        (spaces.Box(0, 255, (97, 84, 3), np.uint8), "97 x 84 pixels.*ResizeObservation"),
        (spaces.Box(0, 255, (84, 84, 2), np.uint8), "14,112 numbers.*wrapper"),
        (spaces.Dict(a=spaces.Box(0, 255, (84, 84, 3), np.uint8)), "FilterObservation"),
    ]:
        with pytest.raises(ConfigError, match=text):
            Observations(space)


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (spaces.Box(0, 255, (13, 96, 1), np.uint8), True),
        (spaces.Box(0, 255, (96, 13, 4), np.uint8), True),
        (spaces.Box(0, 255, (12, 12, 3), np.uint8), False),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), False),  # MiniGrid's numbers of objects
        (spaces.Box(0, 9, (16, 16, 3), np.uint8), False),
        (spaces.Box(0, 255, (16, 16, 3), np.float32), False),
        (spaces.Box(0, 255, (16, 16), np.uint8), False),
        (spaces.Dict(a=spaces.Box(0, 255, (16, 16, 3), np.uint8)), False),
    ],
    ids=str,
)
def test_what_is_an_image_and_what_is_flattened(space, image):
    codec = Observations(space)
    assert codec.frame_shape == (space.shape if image else None)
    assert codec.shape == (space.shape if image else (spaces.flatdim(space),))
    if image:
        value, row = space.sample(), np.empty(codec.shape, codec.dtype)
        codec.write(value, row)
        np.testing.assert_array_equal(row, value)
        for wrong in (value[1:], value.astype(np.float32)):
            with pytest.raises(ValueError, match="is not in"):
                codec.write(wrong, row)


def test_choices_begin_where_the_space_begins():
    actions = actions_of(spaces.Discrete(3, start=-1))
    drawn = actions.drawn(1000, np.random.default_rng(0))
    assert sorted({int(actions.taken(action)) for action in drawn}) == [-1, 0, 1]


def test_vectors_reach_from_bound_to_bound():
    space = spaces.Box(np.float32([[-2, 0]]), np.float32([[4, 0.1]]))
    actions = actions_of(space)
    np.testing.assert_array_equal(actions.taken(np.float32([-1, -1])), space.low)
    np.testing.assert_array_equal(actions.taken(np.float32([1, 1])), space.high)
    np.testing.assert_allclose(actions.taken(np.float32([0, 0.5])), [[1, 0.075]], rtol=1e-6)
    np.testing.assert_array_equal(actions.taken(np.float32([-9, 9])), [[-2, np.float32(0.1)]])
    drawn = actions.drawn(500, np.random.default_rng(0))
    assert drawn.shape == (500, 2) and drawn.dtype == np.float32
    assert all(actions.taken(action) in space for action in drawn)
    assert abs(drawn.mean(axis=0)).max() < 0.1 and abs(drawn).max() <= 1


NESTED = spaces.Dict(
    move=spaces.Box(np.float32([-2, 0]), np.float32([4, 1])),
    rest=spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
)


@pytest.mark.parametrize(
    ("space", "size", "bins"),
    [
        (spaces.MultiDiscrete([2, 3]), 2, 6),
        (spaces.MultiDiscrete([[3, 3], [3, 3]], start=[[1, 2], [3, 4]]), 4, 3),
        (spaces.MultiBinary([2, 3]), 6, 2),
        (spaces.Tuple([spaces.Discrete(4), spaces.Discrete(2)]), 2, 4),
        (NESTED, 5, 12),
    ],
)
def test_each_bin_of_a_composite_action_is_one_choice_and_all_choices_have_as_many(
    space, size, bins
):
    actions = actions_of(space)
    assert (actions.size, actions.bins(11)) == (size, bins)
    drawn = actions.drawn(200, np.random.default_rng(0))
    assert drawn.shape == (200, size) and all(actions.taken(action) in space for action in drawn)
    inside = np.array([0.001, 0.5, 0.999])
    for component in range(size):
        found = []
        for number in range(bins):
            numbers = 2 * (number + inside) / bins - 1
            rows = np.tile(drawn[0], (3, 1))
            rows[:, component] = numbers
            flat = [spaces.flatten(space, actions.taken(row)).tolist() for row in rows]
            if space is not NESTED or component > 1:
                assert flat[0] == flat[1] == flat[2], "one choice for a whole bin"
                found.append(tuple(flat[0]))
        counts = {found.count(one) for one in found}
        assert len(counts) <= 1, "a uniform bin is a uniform choice"


def test_nested_actions_have_their_parts_in_the_order_of_the_space():
    taken = actions_of(NESTED).taken(np.float32([-1, 1, 1, -1, 1]))
    assert list(taken) == ["move", "rest"]
    np.testing.assert_array_equal(taken["move"], [-2, 1])
    assert taken["rest"][0] == 7 and taken["rest"][1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("space", "text"),
    [
        (spaces.Box(-np.inf, np.inf, (2,)), "without bounds.*RescaleAction"),
        (spaces.Box(0, 9, (2,), np.int64), "only Discrete, Box"),
        (spaces.Box(-1, 1, (0,)), "without a component"),
        (spaces.Tuple([spaces.Discrete(2), spaces.Text(3)]), "only Discrete, Box.*wrapper"),
        (spaces.Dict(a=spaces.Box(-1, np.inf, (2,))), "without bounds"),
        (spaces.Tuple([]), "only Discrete, Box"),
        (spaces.MultiDiscrete([7, 11, 13]), "need 1,001 bins, above 256"),
    ],
)
def test_other_actions_are_refused_with_a_way_out(space, text):
    with pytest.raises(ConfigError, match=text):
        actions_of(space)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("CartPol-v1",), "no environment CartPol-v1; the nearest: CartPole-v1"),
        (("Quux-v0",), 'no environment Quux-v0: write "module:Id"'),
        (("no_such_module:Own-v0",), "cannot import no_such_module"),
        ((".zoo:X",), r"task\.env=\.zoo:X: \.zoo is a relative import"),
        (("tests.tasks.own_environments:Wak-v0",), "the nearest: Walk-v0"),
        (("CartPole-v1", {"speed": 1}), "CartPole-v1 takes no argument speed$"),
        (("CartPole-v1", {"suton_reward": True}), "suton_reward; the nearest: sutton_barto_reward"),
        (("tests.tasks.own_environments:Walk-v0", {"nose": 1}), "takes no argument nose$"),
        (("CartPole", {"speed": 1}), "CartPole.*fails: .*'speed'"),
        (("CartPole-v1", {"render_mode": 1}), "CartPole-v1.*fails: "),
        (("CartPole-v1", {}, {"gravty": 1}), "no attribute gravty; the nearest: gravity"),
        (("CartPole-v1", {}, {"unwrapped": 1}), "unwrapped of CartPole-v1 cannot be set to 1"),
    ],
)
def test_environments_that_cannot_be_made_are_one_line_with_a_way_out(arguments, text):
    with pytest.raises(ConfigError, match=text) as caught:
        make_environment(EnvironmentTask(*arguments))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("id", "module", "remedy"),
    [
        ("MiniGrid-Empty-5x5-v0", "minigrid", "pip install minigrid"),
        ("ALE/Pong-v5", "ale_py", "pip install ale-py"),
        ("HalfCheetah-v5", "mujoco", r"pip install .gymnasium\[mujoco\]"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch, id, module, remedy
):
    for name in [n for n in sys.modules if n.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=remedy):
        make_environment(EnvironmentTask(id))


def test_attributes_are_set_on_the_environment_inside_its_wrappers():
    environment = make_environment(EnvironmentTask("CartPole-v1", attributes={"gravity": 3.5}))
    assert environment is not environment.unwrapped and environment.unwrapped.gravity == 3.5
