import numpy as np
import pytest

from sad_hpc.errors import ConfigError
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.q_tables import FINE_THRESHOLD, agreement, kappa, optimal_q, policy_q
from sad_hpc.theory.line_worlds import line_world

UNIFORM = np.array([0.5, 0.5])


def exact_q(mdps: TabularMDPs, policy: np.ndarray, discount: float) -> np.ndarray:
    """(S, A) of a single MDP, by solving the linear equations."""
    n_states, n_actions = mdps.rewards[0].shape
    size = n_states * n_actions
    transition = np.zeros((size, size))
    for state in range(n_states):
        for action in range(n_actions):
            after = int(mdps.next_states[0, state, action])
            for chosen in range(n_actions):
                transition[state * n_actions + action, after * n_actions + chosen] = policy[chosen]
    solved = np.linalg.solve(np.eye(size) - discount * transition, mdps.rewards[0].ravel())
    return solved.reshape(n_states, n_actions)


def test_the_random_policys_q_solves_the_linear_equations():
    room = make_family(DarkroomConfig(size=4, train_goals=10))
    mdps = room.mdps(np.array([[1, 2]], np.int16))
    policy = np.array([0.4, 0.1, 0.3, 0.1, 0.1])
    found = policy_q(mdps, policy, 0.9, 1e-10).values[0]
    assert np.abs(found - exact_q(mdps, policy, 0.9)).max() < 1e-8


def test_the_optimal_q_is_that_of_its_own_greedy_policy():
    world = line_world(0.1)
    q = optimal_q(world, 0.9, 1e-10).values[0]
    # Always left: the first reward after as many steps as it takes, and one a step from then on.
    expected = [0.9 ** max(0, state - 1) / (1 - 0.9) for state in range(5)]
    assert q[:, 0] == pytest.approx(expected, abs=1e-8)


def test_the_papers_example_converges_after_the_papers_iteration():
    tables = policy_q(line_world(0.0), UNIFORM)
    assert tables.iterations == 1216
    assert (tables.errors[:-1] > 1e-6).all() and tables.errors[-1] <= 1e-6


def test_proposition_1():
    world = line_world(0.0)
    assert (policy_q(world, UNIFORM).best_actions()[0] == [[True, False]] * 5).all()
    assert (optimal_q(world).best_actions()[0] == [[True, False]] * 5).all()


@pytest.mark.parametrize(
    ("right", "gamma", "random", "optimal"),
    [(0.1, 0.99, "00000", "00000"), (0.9, 0.8, "00011", "00011"), (0.9, 0.97, "00011", "00000")],
    ids=["a", "b", "c"],
)
def test_the_three_cases_of_two_rewards(right: float, gamma: float, random: str, optimal: str):
    world = line_world(right)
    ours, best_of_all = policy_q(world, UNIFORM, gamma), optimal_q(world, gamma)
    for tables, expected in ((ours, random), (best_of_all, optimal)):
        best = tables.best_actions()[0]
        assert (best.sum(axis=1) == 1).all()
        assert "".join(map(str, best.argmax(axis=1))) == expected
    found = agreement(ours, best_of_all)
    assert found.unequal.any() == found.misled.any() == (random != optimal)


def test_in_darkroom_the_random_policys_best_actions_are_optimal_but_not_all_of_them():
    """In a corner several actions are equally good for both; elsewhere one of two ways is."""
    room = make_family(DarkroomConfig(size=4, train_goals=10))
    mdps, uniform = room.mdps(room.coordinates.astype(np.int16)), np.full(5, 0.2)
    ours = policy_q(mdps, uniform, 0.9, FINE_THRESHOLD)
    found = agreement(ours, optimal_q(mdps, 0.9, FINE_THRESHOLD))
    assert not found.misled.any() and found.unequal.any()
    best = ours.best_actions()
    assert best[0, 0].tolist() == [False, True, False, True, True]  # the goal itself, in a corner


@pytest.mark.parametrize("size", [4, 10])
def test_kappa_of_a_room_is_that_of_the_exact_q(size: int):
    room = make_family(DarkroomConfig(size=size, train_goals=10))
    goal = np.array([[size - 2, size - 3]], np.int16)
    mdps, uniform = room.mdps(goal), np.full(5, 0.2)
    q = exact_q(mdps, uniform, 0.9)
    below = np.where(q > q.max(axis=1, keepdims=True) - 1e-12, -np.inf, q).max(axis=1)
    found = kappa(policy_q(mdps, uniform, 0.9, FINE_THRESHOLD))
    assert found[0].min() == pytest.approx((q.max(axis=1) - below).min(), rel=1e-4)


def test_a_gap_that_cannot_be_told_from_a_tie_is_refused():
    nearly_equal = TabularMDPs(
        np.zeros((1, 1, 2), np.uint16), np.array([[[1.0, 1 - 2e-5]]], np.float32)
    )
    with pytest.raises(ConfigError, match="distinguished from a tie"):
        kappa(policy_q(nearly_equal, UNIFORM, 0.9, 1e-6))


def test_kappa_is_the_gap_to_the_best_of_the_others():
    world = line_world(0.0)
    q = exact_q(world, UNIFORM, 0.9)
    assert kappa(policy_q(world, UNIFORM, 0.9))[0] == pytest.approx(q[:, 0] - q[:, 1], abs=1e-4)


@pytest.mark.parametrize("gamma", [0.0, 1.0, -0.1])
def test_impossible_discounts_are_refused(gamma: float):
    with pytest.raises(ConfigError, match="gamma"):
        optimal_q(line_world(0.0), gamma)
