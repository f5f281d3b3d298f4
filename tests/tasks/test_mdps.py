import gymnasium
import numpy as np
import pytest
from scipy import stats

from sad_hpc.errors import UserError
from sad_hpc.evaluate.episode import begin
from sad_hpc.tasks.mdps import TabularMDPs, bounds, drawn, tables_of
from sad_hpc.tasks.q_tables import optimal_q, policy_q
from tests.tasks.worlds import LAKES, lake, random_tables


@pytest.mark.parametrize("name", ["FrozenLake", "CliffWalking", "Taxi"])
def test_tables_are_those_of_the_environment(name: str):
    env = gymnasium.make(name).unwrapped
    mdps = tables_of([env.P], [np.asarray(env.initial_state_distrib)])
    may = mdps.outcomes
    assert np.allclose(may.chances.sum(axis=-1), 1, rtol=0, atol=1e-12)
    for state, actions in env.P.items():
        for action, outcomes in actions.items():
            wanted: dict = {}
            for chance, after, reward, ends in outcomes:
                wanted[after, reward, ends] = wanted.get((after, reward, ends), 0) + chance
            here = [part[0, state, action] for part in may]
            found = {(s, r, e): p for p, s, r, e in zip(*here, strict=True) if p > 0}
            assert found == pytest.approx(wanted)


def test_an_episode_can_be_where_the_environment_can_bring_it():
    walked = gymnasium.make("CliffWalking").unwrapped
    mdps = tables_of([walked.P], [np.asarray(walked.initial_state_distrib)])
    cliff_and_goal = np.arange(37, 48)
    assert (np.flatnonzero(~mdps.occupied[0]) == cliff_and_goal).all()
    holes_and_goal = [5, 7, 11, 12, 15]
    assert np.flatnonzero(~LAKES.mdps(np.array([[0]])).occupied[0]).tolist() == holes_and_goal
    assert (~random_tables().occupied).sum(axis=1).tolist() == [1, 2]


def test_steps_are_those_of_frozen_lake_in_the_long_run():
    """The environment's own steps and the tables' draws, from the same states and actions."""
    env, mdps = lake(0), LAKES.mdps(np.array([[0]]))
    env.reset(seed=0)
    rng, count = np.random.default_rng(0), 3000
    for state in (0, 6, 14):
        for action in range(4):
            seen: dict = {}
            for _ in range(count):
                env.s = state
                after, reward, ends, _, _ = env.step(action)
                seen[after, reward, ends] = seen.get((after, reward, ends), 0) + 1
            ours = mdps.draw(*(np.full(count, n) for n in (0, state, action)), rng)
            own: dict = {}
            for key in zip(*(part.tolist() for part in ours), strict=True):
                own[key] = own.get(key, 0) + 1
            keys = sorted(seen)
            assert sorted(own) == keys
            if len(keys) > 1:
                table = [[counts[key] for key in keys] for counts in (seen, own)]
                assert stats.chi2_contingency(table).pvalue > 1e-4


def test_draws_have_their_chances_and_never_the_impossible():
    chances = np.tile([0.0, 0.2, 0.0, 0.7, 0.1, 0.0], (200_000, 1))
    counts = np.bincount(drawn(chances, np.random.default_rng(1)), minlength=6)
    assert counts[[0, 2, 5]].sum() == 0
    assert stats.chisquare(counts[[1, 3, 4]], np.array([0.2, 0.7, 0.1]) * 200_000).pvalue > 1e-3
    # Rounded sums may stay below 1, where the largest number of a draw lies.
    thirds = np.array([0.1] * 10 + [0.0])
    assert thirds.cumsum()[9] < 1 and (bounds(thirds)[9:] == 1).all()


def test_where_everything_is_certain_no_number_is_drawn():
    generator = np.random.default_rng(0)
    mdps = random_tables(certain=True)
    mdps.draw(np.zeros(5, int), np.arange(5), np.zeros(5, int), generator)
    assert begin(3, np.arange(4), generator).tolist() == [3] * 4
    assert generator.random() == np.random.default_rng(0).random()


def test_q_of_uncertain_tables_solves_the_bellman_equations():
    mdps, policy = random_tables(), np.array([0.5, 0.3, 0.2])
    may = mdps.outcomes
    for tables, backup in (
        (policy_q(mdps, policy, 0.9, 1e-10), lambda q: q @ policy),
        (optimal_q(mdps, 0.9, 1e-10), lambda q: q.max(axis=-1)),
    ):
        worth = backup(tables.values)
        for m, s, a in np.ndindex(*mdps.sizes):
            p, after, r, ends = (part[m, s, a] for part in may)
            wanted = (p * (r + 0.9 * np.where(ends, 0, worth[m, after]))).sum()
            assert tables.values[m, s, a] == pytest.approx(wanted, abs=1e-8)


def test_certain_tables_are_outcomes_of_chance_one():
    generator = np.random.default_rng(2)
    mdps = TabularMDPs(
        generator.integers(4, size=(2, 4, 3)).astype(np.uint16),
        generator.random((2, 4, 3), np.float32),
    )
    dictionaries = [
        {s: {a: [(1.0, mdps.next_states[m, s, a], float(mdps.rewards[m, s, a]), False)]
             for a in range(3)} for s in range(4)}
        for m in range(2)
    ]  # fmt: skip
    same = tables_of(dictionaries, [np.eye(4)[0]] * 2)
    assert all((a == b).all() for a, b in zip(same.outcomes, mdps.outcomes, strict=True))
    values = generator.random((2, 4))
    assert (mdps.action_values(values, 0.9) == same.action_values(values, 0.9)).all()


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([(0.5, 0, 0.0, False)], "state 0, action 0: .* add up to 0.5"),
        ([(1.0, 2, 0.0, False)], "next state 2"),
        ([(1.0, 0, float("nan"), False)], "reward nan"),
        ([(1.5, 0, 0.0, False), (-0.5, 1, 0.0, True)], "probability -0.5"),
        ([], "add up to 0"),
    ],
)
def test_impossible_outcomes_are_named(outcomes: list, said: str):
    fine = {0: [(1.0, 0, 0.0, False)]}
    with pytest.raises(UserError, match=said):
        tables_of([{0: {0: outcomes}, 1: fine}], [np.array([1.0, 0.0])])
    with pytest.raises(UserError, match="start states"):
        tables_of([{0: fine, 1: fine}], [np.array([0.5, 0.0])])
