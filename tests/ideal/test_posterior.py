import numpy as np
import pytest

from sad_hpc.distill.contexts import sample_episodes, sample_transitions
from sad_hpc.evaluate.episode import as_numbers
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.ideal.posterior import Posterior, after_prefixes, consistent
from sad_hpc.kernels.random import stream
from sad_hpc.model.context import Context
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.permuted_darkroom import PermutedDarkroomConfig
from sad_hpc.tasks.tabular import TabularFamily

ROOM = make_family(DarkroomConfig(size=3, horizon=6, train_goals=6))
PERMUTED = make_family(PermutedDarkroomConfig(size=3, horizon=6))


def transitions(family: TabularFamily, mdps: TabularMDPs, tasks: np.ndarray, sample):
    """States by number, of contexts of 6 transitions."""
    table = policy_table("uniform", family.n_actions)
    drawn = sample(family, mdps, tasks, table, stream(0, 1, 0, "transitions"))
    return as_numbers(family, Context.of_group(vars_of(drawn), "c"))


def vars_of(drawn) -> dict[str, np.ndarray]:
    return {f"c/{name}": part for name, part in drawn.parts.items()}


@pytest.mark.parametrize("family", [ROOM, PERMUTED])
@pytest.mark.parametrize("sample", [sample_transitions, sample_episodes])
def test_what_a_task_could_have_shown_is_what_it_would_pay_and_lead_to(family, sample):
    posterior = Posterior.of_family(family)
    mdps = posterior.mdps
    tasks = np.arange(40) % posterior.n_tasks
    seen = transitions(family, mdps, tasks, sample)
    could = consistent(mdps, **seen.parts)
    assert could.shape == (40, 6, posterior.n_tasks)
    for n in range(0, 40, 7):
        for t in range(6):
            here = seen.states[n, t], seen.actions[n, t]
            for g in range(posterior.n_tasks):
                same = mdps.rewards[g][here] == seen.rewards[n, t]
                same &= mdps.next_states[g][here] == seen.next_states[n, t]
                assert could[n, t, g] == same
    left = after_prefixes(could)
    assert left[:, 0].all() and left.shape == (40, 7, posterior.n_tasks)
    for prefix in range(7):
        assert (left[:, prefix] == could[:, :prefix].all(axis=1)).all()
    assert left[np.arange(40), :, tasks].all()  # nothing contradicts what is true


@pytest.mark.parametrize("family", [ROOM, PERMUTED])
def test_answers_are_how_often_labels_occur_beside_the_same_context(family):
    """Bayes by counting: tasks drawn from the prior, of which those with this context are kept."""
    posterior, generator = Posterior.of_family(family), np.random.default_rng(0)
    states, actions = np.array([0, 4, 7]), np.array([0, 2, 1])
    tasks = generator.integers(posterior.n_tasks, size=60_000)
    optimal = family.optimal_actions(np.concatenate(list(family.distinct.values())))
    paid, moved = posterior.mdps.rewards, posterior.mdps.next_states
    shown = [(paid[g, states, actions], moved[g, states, actions]) for g in tasks[:3]]
    for rewards, next_states in shown:
        kept = tasks[
            (paid[tasks][:, states, actions] == rewards).all(axis=1)
            & (moved[tasks][:, states, actions] == next_states).all(axis=1)
        ]
        seen = (states, actions, rewards, next_states)
        alive = consistent(posterior.mdps, *(part[None] for part in seen)).all(axis=1)
        found = posterior.probabilities(alive)[0]
        assert np.allclose(found.sum(axis=1), 1)
        for state in (0, 5):
            # The label of a task: one of its optimal actions, by a draw.
            choices = optimal[kept, state]
            draws = (generator.random(choices.shape) * choices).argmax(axis=1)
            frequency = np.bincount(draws, minlength=family.n_actions) / len(kept)
            assert np.allclose(frequency, found[state], atol=4 / np.sqrt(len(kept)))


def test_equally_good_actions_stay_equally_good():
    """By symmetry, +x and +y on the diagonal, as long as nothing was seen."""
    posterior = Posterior.of_family(make_family(DarkroomConfig(size=7, train_goals=39)))
    found = posterior.probabilities(np.ones((1, posterior.n_tasks), bool))[0]
    for cell in range(7):
        assert found[8 * cell, 0] == found[8 * cell, 2]


def test_a_prior_of_training_tasks_knows_no_others():
    posterior = Posterior.of_family(ROOM, ["train"])
    assert posterior.n_tasks == 6
    goals = ROOM.distinct["train"].tolist()
    found = posterior.probabilities(np.eye(6, dtype=bool))
    for number, goal in enumerate(goals):
        state = ROOM.state_numbers(np.array(goal))
        assert found[number, state, 4] == found[number, state].max()
    with pytest.raises(ValueError, match="contradicts every task"):
        posterior.probabilities(np.zeros((1, 6), bool))


def test_of_too_many_tasks_there_is_no_ideal():
    assert Posterior.of_family(make_family(DarkroomConfig(size=60, train_goals=39))) is None
