"""The kernels on tables with several outcomes and ends, against exact laws."""

import itertools
from functools import partial

import numpy as np
import pytest

from sad_hpc.distill import make_block
from sad_hpc.distill.contexts import sample_episodes, sample_state_actions, sample_transitions
from sad_hpc.distill.labels import LabelRule, Labels
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.label_law import algorithm_5_law, label_law
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.mdps import FiniteMDPs, StochasticMDPs
from tests.distill.laws import assert_drawn_from, assert_law
from tests.distill.rules import make_rule
from tests.tasks.worlds import LAKES, random_tables

SHARES = np.array([0.4, 0.1, 0.3, 0.2])
POLICY = policy_table(SHARES.tolist(), 4)
TASKS = np.tile(np.arange(3), 4000)
MDPS = LAKES.mdps(LAKES.distinct["train"])
LABELS = 40_000


rule = partial(make_rule, trust_horizon=3)


def labels_of(mdps: FiniteMDPs, task: int, chosen: LabelRule, shares: np.ndarray) -> Labels:
    tasks, table = np.full(LABELS, task), policy_table(shares.tolist(), len(shares))
    return distill_labels(mdps, tasks, table, chosen, stream(0, 0, 0, "sad"))


def test_contexts_have_the_outcomes_of_the_tables_and_states_of_episodes():
    context = sample_transitions(LAKES, MDPS, TASKS, POLICY, stream(0, 0, 0, "transitions"))
    before, after = map(LAKES.state_numbers, (context.states, context.next_states))
    for task in range(3):
        mine, may = task == TASKS, MDPS.outcomes.at(np.array(task))
        # A law over (state, action, next state, reward, end).
        law = np.zeros((16, 4, 16, 2, 2))
        occupied = MDPS.occupied[task]
        for s, a, j in np.ndindex(*may.chances.shape):
            key = s, a, may.next_states[s, a, j], int(may.rewards[s, a, j]), int(may.ends[s, a, j])
            law[key] += may.chances[s, a, j] * SHARES[a] * occupied[s] / occupied.sum()
        parts = before, context.actions, after, context.rewards, context.ends
        seen = np.ravel_multi_index([part[mine].ravel().astype(int) for part in parts], law.shape)
        assert_drawn_from(seen, law.ravel())


def test_episodes_begin_again_after_an_end_and_have_the_law_of_the_chain():
    mdps, tasks = LAKES.mdps(np.array([[2]])), np.zeros(20_000, np.int64)
    episodes = sample_episodes(LAKES, mdps, tasks, POLICY, stream(0, 0, 0, "episodes"))
    before, after = map(LAKES.state_numbers, (episodes.states, episodes.next_states))
    assert episodes.ends is not None and episodes.ends.any()
    again = np.where(episodes.ends[:, :-1] == 1, mdps.starts[0].argmax(), after[:, :-1])
    assert (before[:, 1:] == again).all()
    may, chain = mdps.outcomes.at(0), np.zeros((16, 16))
    for s, a, j in np.ndindex(*may.chances.shape):
        goes = mdps.starts[0] if may.ends[s, a, j] else np.eye(16)[may.next_states[s, a, j]]
        chain[s] += SHARES[a] * may.chances[s, a, j] * goes
    law = mdps.starts[0]
    for t in range(LAKES.config.horizon):
        if t % 5 == 4:
            assert_drawn_from(before[:, t], law)
        law = law @ chain


class Draws:
    """The part of a family that contexts of the random tables need."""

    n_states, has_ends, reward_dtype = 6, True, np.float32
    action_dtype = np.dtype(np.uint8)
    coordinates = np.arange(6, dtype=np.uint8)[:, None]

    class config:
        horizon = 4

    def starts(self, mdps: StochasticMDPs):
        return mdps.starts


def test_episodes_begin_by_the_law_of_starts():
    shares = policy_table("uniform", 3)
    tasks = np.zeros(40_000, np.int64)
    drawn = sample_episodes(Draws(), random_tables(), tasks, shares, stream(1, 0, 0, "episodes"))
    starts = random_tables().starts[0]
    assert_drawn_from(drawn.states[:, 0, 0].astype(int), starts)
    assert drawn.ends is not None
    ended = drawn.ends[:, :-1] == 1
    assert_drawn_from(drawn.states[:, 1:, 0][ended].astype(int), starts)


def hitting(mdps: FiniteMDPs, task: int, state: int, action: int, steps: int, shares) -> list:
    """Chances of the first reward at step 1..N, and of none, by walking through all outcomes."""
    law, may = [0.0] * (steps + 1), mdps.outcomes.at(task, state, action)
    for chance, after, reward, ends in zip(*may, strict=True):
        if reward > 0:
            law[0] += chance
        elif ends or steps == 1:
            law[-1] += chance
        else:
            for other, share in enumerate(shares):
                rest = hitting(mdps, task, after, other, steps - 1, shares)
                for k, later in enumerate(rest):
                    law[k + 1] += chance * share * later
    return law


@pytest.mark.parametrize("random_ties", [False, True])
@pytest.mark.parametrize("task", [0, 2])
def test_algorithm_5_has_the_exact_law_on_slippery_ice(task: int, random_ties: bool):
    joint = np.zeros((16, 4))
    for state in np.flatnonzero(MDPS.occupied[task]):
        laws = [hitting(MDPS, task, state, action, 3, SHARES) for action in range(4)]
        for steps in itertools.product(range(4), repeat=4):
            chance = np.prod([law[k] for law, k in zip(laws, steps, strict=True)])
            best = np.flatnonzero(np.array(steps) == min(steps))
            if min(steps) < 3:
                for action in best if random_ties else best[:1]:
                    joint[state, action] += chance / (len(best) if random_ties else 1)
    joint /= joint.sum()
    assert np.allclose(joint, algorithm_5_law(MDPS, SHARES, 3, random_ties, task=task))
    assert_law(labels_of(MDPS, task, rule(random_ties=random_ties), SHARES), joint)


def returns(mdps: FiniteMDPs, task: int, state: int, action: int, shares) -> dict[float, float]:
    """Law of an action's discounted return of two steps."""
    law: dict[float, float] = {}
    for chance, after, reward, ends in zip(*mdps.outcomes.at(task, state, action), strict=True):
        if ends:
            law[reward] = law.get(reward, 0) + chance
            continue
        for other, share in enumerate(shares):
            for p, _, later, _ in zip(*mdps.outcomes.at(task, after, other), strict=True):
                total = reward + 0.9 * np.float64(later)
                law[total] = law.get(total, 0) + chance * share * p
    return law


@pytest.mark.parametrize("task", [0, 1])
def test_algorithm_3_has_the_exact_law_with_costs_and_ends(task: int):
    mdps, shares, joint = random_tables(), np.array([0.5, 0.25, 0.25]), np.zeros((6, 3))
    for state in np.flatnonzero(mdps.occupied[task]):
        laws = [returns(mdps, task, state, action, shares).items() for action in range(3)]
        for three in itertools.product(*laws):
            scores = [score for score, _ in three]
            if max(scores) >= 0.6:
                joint[state, int(np.argmax(scores))] += np.prod([chance for _, chance in three])
    chosen = rule(trust_horizon=2, stop_at_reward=False, return_threshold=0.6)
    assert_law(labels_of(mdps, task, chosen, shares), joint / joint.sum())


def test_a_label_counts_the_steps_that_were_taken():
    """If every first step ends the episode, each rollout counts one step."""
    mdps = random_tables()
    mdps.may.ends[:] = True
    chosen = rule(trust_horizon=50, stop_at_reward=False, return_threshold=-9.0)
    labels = labels_of(mdps, 0, chosen, np.full(3, 1 / 3))
    assert labels.transitions == 3 * LABELS


def test_certain_tables_have_the_same_law_of_labels_in_either_form():
    room = make_family(DarkroomConfig(size=4, train_goals=10))
    tables = room.mdps(room.distinct["train"][:1])
    outcomes = type(tables.outcomes)(*(np.ascontiguousarray(part) for part in tables.outcomes))
    same = StochasticMDPs(outcomes, np.full((1, 16), 1 / 16))
    shares = np.array([0.2, 0.3, 0.2, 0.2, 0.1])
    law = algorithm_5_law(tables, shares, 4, False)
    assert (law == algorithm_5_law(same, shares, 4, False)).all()
    first, second = (labels_of(each, 0, rule(trust_horizon=4), shares) for each in (tables, same))
    assert_law(first, law)
    assert (first.query_states == second.query_states).all()  # nothing is drawn for certain steps
    assert (first.actions == second.actions).all()


def test_queries_are_states_in_which_an_episode_can_be():
    states, actions = sample_state_actions(MDPS, TASKS, POLICY, stream(0, 0, 0, "dpt"))
    for task in range(3):
        occupied = MDPS.occupied[task]
        law = (occupied / occupied.sum())[:, None] * SHARES
        mine = task == TASKS
        assert_drawn_from(states[mine].astype(int) * 4 + actions[mine], law.ravel())


def test_a_block_of_lakes_holds_ends_and_can_be_replayed():
    data = DataConfig(tasks=4000, trust_horizon=6, queries_per_task=2, tie_break="random")
    block = make_block(LAKES, data, "train", 0)
    arrays = block.arrays
    parameters = arrays["tasks/parameters"]
    names = ("states", "actions", "rewards", "next_states", "ends")
    for group in ("transitions", "episodes"):
        context = {name: arrays[f"{group}/{name}"] for name in names}
        assert context["ends"].dtype == np.uint8 and context["ends"].mean() > 0.05
        assert LAKES.dynamics_faults(parameters, group, context) == []
        lies = context | {"ends": 1 - context["ends"]}
        assert f"{group} breaks the dynamics of lakes" in LAKES.dynamics_faults(
            parameters, group, lies
        )
    turned = {name: arrays[f"episodes/{name}"][:, ::-1] for name in names}
    assert LAKES.dynamics_faults(parameters, "episodes", turned) == [
        "episodes are not in time order"
    ]
    queries, labels = (arrays[f"labels/dpt_star/{name}"] for name in ("query_states", "actions"))
    assert LAKES.are_optimal(parameters, queries, labels).all()
    for kind in ("sad", "dpt", "dpt_star"):
        law = label_law(LAKES, data, f"labels/{kind}")
        assert law is not None
        for task in range(3):
            mine = parameters[:, 0] == task
            queries, labels = (arrays[f"labels/{kind}/{n}"] for n in ("query_states", "actions"))
            states = LAKES.state_numbers(queries[mine]).ravel()
            assert_law(Labels(states, labels[mine].ravel()), law[task])
