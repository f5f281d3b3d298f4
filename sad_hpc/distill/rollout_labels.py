"""Algorithms 3 and 5 on tables and poses: the label is the action whose rollouts score best."""

import dataclasses
from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from sad_hpc.distill.action_table import ActionTable, LikeliestActions, next_action
from sad_hpc.distill.labels import (
    MAX_CANDIDATES,
    LabelRule,
    Labels,
    best_action,
    drawn_horizon,
    hopeless,
)
from sad_hpc.distill.steps import (
    Certain,
    Rooms,
    Uncertain,
    draw_state,
    find_task,
    step_tables,
    take,
)
from sad_hpc.experiment.numbers import no_labels
from sad_hpc.kernels.interruption import INTERRUPTED, STOP_FLAG, raise_if_interrupted
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
)
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.miniworld.room import BOXES, GEOMETRY

POSE_ACTIONS = 4


def distill_labels(
    mdps: FiniteMDPs,
    mdp_of_task: NDArray[np.int64],
    policy: NDArray[Any],
    rule: LabelRule,
    stream: NDArray[np.uint64],
    given: NDArray[np.uint16] | None = None,
    incumbent: ActionTable | None = None,
) -> Labels:
    """Label query states by Algorithm 5 (`stop_at_reward`) or 3, with N_ep rollouts per action.

    A rollout ends with its episode.  With an incumbent, the label is its likeliest action in the
    query state if no other action has a better score.  If its actions and all steps are certain,
    the rollouts of an action are equal, and one is made.

    Args:
        mdps: M MDPs.
        mdp_of_task: (n,) in 0..M-1.
        policy: table of the behavior policy (see `policy_table`).
        rule: trust horizon, N_ep and thresholds.
        stream: state of the random stream; it is advanced.
        given: (n,) query states, which get no label (see `labelled`) where their best score is
            below the threshold; None: states are drawn until one reaches it.
        incumbent: actions after the first one; None: those of `policy`.  Its tasks are n / K
            tasks with K adjacent labels each.

    Raises:
        UserError: a million query states of one task were below the threshold.
        Interrupted: STOP_FLAG was set.
    """
    tables = step_tables(mdps)
    queries = np.empty(len(mdp_of_task), np.uint16) if given is None else given
    if isinstance(tables, Certain) and isinstance(incumbent, LikeliestActions):
        rule = dataclasses.replace(rule, episodes_per_action=1)
    return _labels(tables, mdp_of_task, policy, rule, stream, queries, given is not None, incumbent)


def distill_pose_labels(
    targets: NDArray[np.int64],
    policy: NDArray[Any],
    rule: LabelRule,
    stream: NDArray[np.uint64],
    given: NDArray[np.float64] | None = None,
) -> Labels:
    """Label query poses of Miniworld, as `distill_labels` labels states.

    Args:
        targets: (n,) corners of the targets, 0..3.
        policy: table of the behavior policy (see `policy_table`).
        rule: trust horizon, N_ep and thresholds.
        stream: state of the random stream; it is advanced.
        given: (n, 3) query poses; None: they are drawn.

    Raises:
        UserError: a million query poses of one task were below the threshold.
        Interrupted: STOP_FLAG was set.
    """
    if rule.common_actions:
        raise ValueError("rollouts of poses do not share actions")
    queries = np.empty((len(targets), 3), np.float64) if given is None else given
    return _labels(
        Rooms(GEOMETRY, BOXES), targets, policy, rule, stream, queries, given is not None
    )


def _labels(
    world: Certain | Uncertain | Rooms,
    task_of_label: NDArray[np.int64],
    policy: NDArray[Any],
    rule: LabelRule,
    stream: NDArray[np.uint64],
    queries: NDArray[Any],
    given: bool,
    incumbent: ActionTable | None = None,
) -> Labels:
    n_actions = POSE_ACTIONS if isinstance(world, Rooms) else world.paid.shape[2]
    labels = no_labels(len(task_of_label), n_actions)
    per_task = 1 if incumbent is None else len(labels) // len(incumbent.likeliest)
    shares = rule.common_actions and incumbent is None
    shared = np.empty(rule.trust_horizon, np.uint64) if shares else None
    spent = _distill(
        world, task_of_label, policy, digits_per_word(len(policy)), rule.discounts,
        rule.continuation, rule.episodes_per_action, rule.stop_at_reward, rule.best_episode,
        rule.least_score, rule.random_ties, stream, shared, given, incumbent, per_task, queries,
        labels, STOP_FLAG,
    )  # fmt: skip
    if raise_if_interrupted(spent) < 0:
        raise hopeless(rule, "pose" if isinstance(world, Rooms) else "state")
    return Labels(queries, labels, spent)


def rollout_order(world, episodes):  # type: ignore[no-untyped-def]
    """In a kernel: return sizes of the outer and inner loop, and whether the outer is over actions.

    The order of the loops changes the random numbers, and hence labels if N_ep > 1.
    """
    raise NotImplementedError("kernels only")


def query_at(queries, label):  # type: ignore[no-untyped-def]
    """In a kernel: return the query state of a label, from numbers (n,) or poses (n, 3)."""
    raise NotImplementedError("kernels only")


def keep_query(queries, label, query):  # type: ignore[no-untyped-def]
    """In a kernel: write the query state of a label."""
    raise NotImplementedError("kernels only")


@overload(rollout_order)
def _rollout_order(world, episodes):  # type: ignore[no-untyped-def]
    def tables(world, episodes):  # type: ignore[no-untyped-def]
        return episodes, world.paid.shape[2], False

    def rooms(world, episodes):  # type: ignore[no-untyped-def]
        return POSE_ACTIONS, episodes, True

    return rooms if world.instance_class is Rooms else tables


@overload(query_at)
def _query_at(queries, label):  # type: ignore[no-untyped-def]
    def number(queries, label):  # type: ignore[no-untyped-def]
        return np.uint64(queries[label])

    def pose(queries, label):  # type: ignore[no-untyped-def]
        return queries[label, 0], queries[label, 1], queries[label, 2]

    return number if queries.ndim == 1 else pose


@overload(keep_query)
def _keep_query(queries, label, query):  # type: ignore[no-untyped-def]
    def number(queries, label, query):  # type: ignore[no-untyped-def]
        queries[label] = query

    def pose(queries, label, query):  # type: ignore[no-untyped-def]
        queries[label, 0], queries[label, 1], queries[label, 2] = query

    return number if queries.ndim == 1 else pose


@njit(cache=True, nogil=True)
def _distill(  # type: ignore[no-untyped-def]
    world, task_of_label, policy, digits, discounts, continuation, episodes, stop_at_reward,
    best_episode, least_score, random_ties, stream, shared, given, incumbent, per_task, queries,
    labels, stop,
):  # fmt: skip
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    rounds, per_round, by_action = rollout_order(world, episodes)
    scores = np.empty(rounds if by_action else per_round, np.float64)
    transitions = 0
    for label in range(len(task_of_label)):
        task, context = find_task(world, task_of_label[label]), label // per_task
        accepted = False
        for _ in range(1 if given else MAX_CANDIDATES):
            query = query_at(queries, label) if given else draw_state(world, task, stream)
            limit = len(discounts)
            if not given:
                limit = drawn_horizon(continuation, limit, stream)
            for i in range(len(scores)):  # faster than an array assignment
                scores[i] = 0
            for outer in range(rounds):
                last_drawn = 0  # last step whose shared action is drawn
                for inner in range(per_round):
                    if stop[0]:
                        return INTERRUPTED
                    first_action = outer if by_action else inner
                    state, action = query, np.uint64(first_action)
                    for t in range(limit):
                        if t > 0:
                            if incumbent is not None:
                                action = next_action(incumbent, context, state, stream)
                            elif shared is not None and t <= last_drawn:
                                action = shared[t]
                            else:
                                if left == 0:
                                    word, left = digits_word(stream, product, threshold), digits
                                action = np.uint64(policy[high_product(word, policy_range)])
                                word *= policy_range
                                left -= 1
                                if shared is not None:
                                    shared[t], last_drawn = action, t
                        state, reward, end = take(world, task, state, action, stream)
                        transitions += 1
                        if reward != 0:
                            if not best_episode:
                                scores[first_action] += discounts[t] * reward
                            elif reward > 0:
                                # Later rollouts stop once they are slower than this one.
                                scores[first_action], limit = discounts[t], t + 1
                            end = end or (stop_at_reward and reward > 0)
                        if end:
                            break
            if not best_episode:
                for i in range(len(scores)):
                    scores[i] /= episodes
            best = best_action(scores, random_ties, stream)
            if incumbent is not None:
                kept = np.int64(incumbent.likeliest[context, query])
                if scores[kept] == scores[best]:
                    best = kept
            if scores[best] >= least_score:
                keep_query(queries, label, query)
                labels[label] = best
                accepted = True
                break
        if not (accepted or given):
            return -1
    return transitions
