"""Contexts of bandits by the behavior policy, and action labels by Algorithm 2."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sad_hpc.distill.block import Block, Draw, Given, Transitions
from sad_hpc.distill.contexts import draw_actions
from sad_hpc.distill.labels import Labels, best_action
from sad_hpc.experiment.per_round import first_round
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.interruption import INTERRUPTED, STOP_FLAG, raise_if_interrupted
from sad_hpc.kernels.random import (
    digits_per_word,
    digits_product,
    digits_word,
    high_product,
    rejection_threshold,
    uneven_shares,
)
from sad_hpc.tasks.bandit import BanditFamily

SHAPES = (0.05, 2.0)
"""Range of the Dirichlet parameter of drawn policies."""
DrawPolicies = Callable[[int, int, np.random.Generator], NDArray[np.float64]]
"""A function from a number of tasks, A and a generator to distributions over arms, (count, A)."""


def bandit_block(
    family: BanditFamily, data: DataConfig, split: str, block: int, given: Given | None = None
) -> Block:
    """Make a block of bandit tasks; see `distill.make_block`."""
    purposes = ("tasks", "transitions", "policies", "sad", "dpt", "dpt_star")
    draw = Draw.of(family, data, split, block, purposes)
    policy, streams = draw.policy, draw.streams
    if given is None:
        means = family.draw_means(draw.count, np.random.default_rng(streams["tasks"]))
        context = draw_context(family, data, split, draw, means)
    else:
        means, context = given.parameters, given.context
    means_of_query = np.repeat(means, data.queries_per_task, axis=0)
    sad, pulls = distill_bandit_labels(
        means_of_query,
        family.sigma,
        policy,
        first_round(data.trust_horizon),
        data.tie_break == "random",
        streams["sad"],
    )
    queries = np.zeros((len(sad), 1), np.uint8)
    labels = {
        "sad": Labels(queries, sad, pulls),
        "dpt": Labels(queries, pull_arms(policy, len(queries), streams["dpt"])),
        "dpt_star": Labels(queries, means_of_query.argmax(axis=1).astype(family.action_dtype)),
    }
    return Block.of(draw.first, means, {"transitions": context}, labels)


def draw_context(
    family: BanditFamily, data: DataConfig, split: str, draw: Draw, means: NDArray[np.float32]
) -> Transitions:
    """Draw T pulls in each of the tasks with means (n, A)."""
    shape, streams = (draw.count, family.config.horizon), draw.streams
    if data.draws_policies(split):
        law = POLICY_LAWS[data.context_policy]
        actions = pull_by_drawn_policies(draw.count, family, law, streams["policies"])
    else:
        actions = pull_arms(draw.policy, shape[0] * shape[1], streams["transitions"]).reshape(shape)
    rewards = pay(means, family.sigma, actions, np.random.default_rng(streams["transitions"]))
    states = np.zeros((*shape, 1), np.uint8)
    return Transitions(states, actions, rewards.astype(family.reward_dtype, copy=False), states)


def pull_arms(policy: NDArray[Any], count: int, state: NDArray[np.uint64]) -> NDArray[Any]:
    """Draw arms (count,) by the behavior policy; the stream `state` is advanced."""
    actions = np.empty(count, policy.dtype)
    draw_actions(policy, state, actions)
    return actions


def pull_by_drawn_policies(
    count: int, family: BanditFamily, law: DrawPolicies, state: NDArray[np.uint64]
) -> NDArray[Any]:
    """Draw arms (count, T) by a separate random policy for each task.

    A learning agent concentrates its pulls on few arms.  Unlike contexts of a uniform policy, these
    contexts cover such shares of pulls.  The policies do not depend on rewards.
    """
    generator = np.random.default_rng(state)
    policies = law(count, family.n_actions, generator)
    uniforms = generator.random((count, family.config.horizon))
    arms = np.zeros(uniforms.shape, family.action_dtype)
    for bound in policies.cumsum(axis=1)[:, :-1].T:
        arms += uniforms >= bound[:, None]
    return arms


def draw_policies(count: int, n_arms: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Draw distributions (count, A): mixtures of a symmetric Dirichlet draw and the uniform one.

    The Dirichlet parameter is log-uniform in SHAPES, from nearly deterministic to nearly uniform.
    The share of the uniform distribution is u^2 with u uniform in [0, 1].
    """
    drawn = uneven_shares(count, n_arms, SHAPES, generator)
    uniform_share = generator.random((count, 1)) ** 2
    return (1 - uniform_share) * drawn + uniform_share / n_arms


def draw_policies_of_dpt(
    count: int, n_arms: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Draw distributions (count, A) as the public code of DPT draws those of its bandits' contexts.

    They are mixtures (1 - c) p + c e of a draw p from Dirichlet(1, ..., 1) and one arm e, with c
    uniform in {0, 0.1, ..., 1}.  See jon--lee/decision-pretrained-transformer.
    """
    certain = generator.integers(11, size=(count, 1)) / 10
    arms = np.eye(n_arms)[generator.integers(n_arms, size=count)]
    return (1 - certain) * generator.dirichlet(np.ones(n_arms), size=count) + certain * arms


POLICY_LAWS: dict[str, DrawPolicies] = {"drawn": draw_policies, "dpt": draw_policies_of_dpt}
"""Functions that draw the policies of contexts, by `data.context_policy`."""


def pay(
    means: NDArray[np.float32],
    sigma: float,
    actions: NDArray[Any],
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    """Draw rewards (n, T) of pulls (n, T) of arms with means (n, A)."""
    rewards = np.empty(actions.shape, np.float32)
    _pay(means, np.float32(sigma), actions, generator, rewards)
    return rewards


def distill_bandit_labels(
    means: NDArray[np.float32],
    sigma: float,
    policy: NDArray[Any],
    trust_horizon: int,
    random_ties: bool,
    state: NDArray[np.uint64],
) -> tuple[NDArray[Any], int]:
    """Algorithm 2: play the behavior policy until every arm has N pulls; take the best average.

    Args:
        means: (n, A).
        sigma: standard deviation of Gaussian rewards; 0 for Bernoulli rewards.
        policy: table of the behavior policy (see `policy_table`).
        trust_horizon: N.
        random_ties: break ties at random instead of by the lowest arm.
        state: the random stream; it is advanced.

    Returns:
        labels (n,), and the total number of pulls.

    Raises:
        Interrupted: STOP_FLAG was set.
    """
    labels = np.empty(len(means), policy.dtype)
    # Rewards have a separate generator, which is seeded by the initial state of the stream.
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(state.tolist())))
    pulls = _distill(
        means.astype(np.float64), sigma, policy, digits_per_word(len(policy)), trust_horizon,
        random_ties, state, generator, labels, STOP_FLAG,
    )  # fmt: skip
    return labels, raise_if_interrupted(pulls)


@njit(cache=True, nogil=True)
def _pay(means, sigma, actions, generator, rewards):  # type: ignore[no-untyped-def]
    for task in range(actions.shape[0]):
        if sigma > 0:
            noise = generator.standard_normal(actions.shape[1], np.float32)
            for t in range(actions.shape[1]):
                rewards[task, t] = means[task, actions[task, t]] + sigma * noise[t]
        else:
            drawn = generator.random(actions.shape[1])
            for t in range(actions.shape[1]):
                rewards[task, t] = drawn[t] < means[task, actions[task, t]]


@njit(cache=True, nogil=True)
def _distill(  # type: ignore[no-untyped-def]
    means, sigma, policy, digits, trust_horizon, random_ties, state, generator, labels, stop
):
    policy_range = np.uint64(len(policy))
    product = digits_product(len(policy), digits)
    threshold = rejection_threshold(product)
    word, left = np.uint64(0), 0
    arms = means.shape[1]
    pulls = 0
    for task in range(len(means)):
        counts = np.zeros(arms, np.int64)
        sums = np.zeros(arms, np.float64)
        behind = arms  # arms with fewer than N pulls
        while behind > 0:
            if left == 0:
                if stop[0]:
                    return INTERRUPTED
                word, left = digits_word(state, product, threshold), digits
            arm = policy[high_product(word, policy_range)]
            word *= policy_range
            left -= 1
            if sigma > 0:
                sums[arm] += means[task, arm] + sigma * generator.standard_normal()
            else:
                sums[arm] += generator.random() < means[task, arm]  # no branch to mispredict
            counts[arm] += 1
            pulls += 1
            if counts[arm] == trust_horizon:
                behind -= 1
        labels[task] = best_action(sums / counts, random_ties, state)
    return pulls
