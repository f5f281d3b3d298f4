import numpy as np
from scipy import stats

from sad_hpc.distill.contexts import sample_episodes, sample_transitions
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig

FAMILY = make_family(DarkroomConfig(size=4, horizon=16, train_goals=10))
GOALS = FAMILY.parameters("train", 0, 10)
MDPS = FAMILY.mdps(GOALS)
POLICY = policy_table([0.4, 0.1, 0.3, 0.1, 0.1], 5)
numbers = FAMILY.state_numbers
TASKS = np.tile(np.arange(10), 2000)


def test_algorithm_1_draws_states_uniformly_and_actions_by_the_policy():
    context = sample_transitions(FAMILY, MDPS, TASKS, POLICY, stream(0, 0, 0, "transitions"))
    counts = np.bincount(numbers(context.states).ravel() * 5 + context.actions.ravel())
    expected = np.tile([0.4, 0.1, 0.3, 0.1, 0.1], 16) / 16 * counts.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_transitions_follow_the_mdp_of_their_task():
    context = sample_transitions(FAMILY, MDPS, TASKS, POLICY, stream(0, 0, 0, "transitions"))
    goals = FAMILY.state_numbers(GOALS)[TASKS]
    key = (TASKS[:, None], numbers(context.states), context.actions)
    assert (numbers(context.next_states) == MDPS.next_states[key]).all()
    assert (context.rewards == (numbers(context.next_states) == goals[:, None])).all()


def test_episodes_start_at_the_start_and_go_on_from_where_they_are():
    episodes = sample_episodes(FAMILY, MDPS, TASKS, POLICY, stream(0, 0, 0, "episodes"))
    assert (numbers(episodes.states)[:, 0] == 0).all()
    assert (numbers(episodes.states)[:, 1:] == numbers(episodes.next_states)[:, :-1]).all()
    key = (TASKS[:, None], numbers(episodes.states), episodes.actions)
    assert (numbers(episodes.next_states) == MDPS.next_states[key]).all()
    assert (episodes.rewards == MDPS.rewards[key]).all()


def test_episodes_have_the_state_distribution_of_the_markov_chain_at_every_step():
    episodes = sample_episodes(FAMILY, MDPS, TASKS, POLICY, stream(0, 0, 0, "episodes"))
    chain = np.zeros((16, 16))
    for action, probability in enumerate([0.4, 0.1, 0.3, 0.1, 0.1]):
        np.add.at(chain, (np.arange(16), MDPS.next_states[0, :, action]), probability)
    law = np.eye(16)[0]
    for t in range(16):
        counts = np.bincount(numbers(episodes.states)[:, t], minlength=16)
        assert counts[law == 0].sum() == 0
        if t > 0:
            possible = law > 0
            chi = stats.chisquare(counts[possible], law[possible] * len(TASKS))
            assert chi.pvalue > 1e-4, t
        law = law @ chain
