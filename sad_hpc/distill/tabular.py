"""Blocks of tabular tasks: Algorithm 1, rollouts, and Algorithm 3 or 5."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Block, Draw, Given, Transitions
from sad_hpc.distill.contexts import (
    sample_episodes,
    sample_state_actions,
    sample_transitions,
)
from sad_hpc.distill.incumbent import Incumbent, with_own_play
from sad_hpc.distill.labels import LabelRule, Labels, optimal_labels
from sad_hpc.distill.q_learning import sample_histories
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.experiment.per_round import first_round
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.mdps import FiniteMDPs, TabularMDPs
from sad_hpc.tasks.tabular import TABLE_ENTRIES, TabularFamily


@dataclass(frozen=True)
class Tables:
    """M distinct tasks with the tables that kernels read."""

    parameters: NDArray[np.int16]
    """(M, p)"""
    mdps: FiniteMDPs
    optimal: NDArray[np.bool_]
    """(M, S, A): whether an action is optimal in a state."""

    @classmethod
    def of(cls, family: TabularFamily, parameters: NDArray[np.int16]) -> "Tables":
        """Return the tables of tasks with these parameters."""
        return cls(parameters, family.mdps(parameters), family.optimal_actions(parameters))

    @classmethod
    @functools.lru_cache(maxsize=4)
    def of_split(cls, family: TabularFamily, split: str) -> "Tables":
        """Return the tables of all distinct tasks of a split, cached between blocks."""
        return cls.of(family, family.distinct[split])


def block_tables(
    family: TabularFamily, split: str, draw: Draw
) -> tuple[Tables, NDArray[np.int64]]:  # fmt: skip
    """Return a block's tables of distinct tasks, and the number (n,) of each task among them.

    If the tables of the whole split are too large for memory, they have this block's tasks only.
    """
    every = family.distinct[split]
    numbers = family.distinct_numbers(len(every), draw.first, draw.count)
    if len(every) * family.table_entries <= TABLE_ENTRIES:
        return Tables.of_split(family, split), numbers
    distinct, number_of_task = np.unique(numbers, return_inverse=True)
    return Tables.of(family, every[distinct]), number_of_task.reshape(-1)


def given_tables(family: TabularFamily, given: Given) -> tuple[Tables, NDArray[np.int64]]:
    """Return the tables of imported tasks, as `block_tables` does for drawn ones."""
    distinct, number_of_task = np.unique(given.parameters, axis=0, return_inverse=True)
    return Tables.of(family, distinct), number_of_task.reshape(-1)


def drawn_contexts(
    family: TabularFamily,
    data: DataConfig,
    draw: Draw,
    tables: Tables,
    mdp_of_task: NDArray[np.int64],
) -> dict[str, Transitions]:
    """Draw contexts of both kinds, by HDF5 group."""
    tasks = (family, tables.mdps, mdp_of_task, draw.policy)
    context = sample_transitions(*tasks, draw.streams["transitions"])
    if data.q_learning_steps:
        assert isinstance(tables.mdps, TabularMDPs), "Q-learning needs deterministic tables"
        episodes = sample_histories(
            family, tables.mdps, mdp_of_task, draw.policy, data.q_learning_steps,
            data.history_episodes, first_round(data.discount), draw.streams["episodes"],
        )  # fmt: skip
    else:
        episodes = sample_episodes(*tasks, draw.streams["episodes"])
    return {"transitions": context, "episodes": episodes}


def tabular_block(
    family: TabularFamily,
    data: DataConfig,
    split: str,
    block: int,
    incumbent: Incumbent | None = None,
    given: Given | None = None,
) -> Block:
    """Make a block of tabular tasks; see `distill.make_block`.

    `incumbent` replaces the behavior policy after the first action of label rollouts.  Its own play
    replaces a share of the contexts, after the labels are made.
    """
    purposes = ("transitions", "episodes", "sad", "dpt", "dpt_star", "own")
    draw = Draw.of(family, data, split, block, purposes)
    policy, streams = draw.policy, draw.streams
    rule = LabelRule.of(data, family.sparse_reward)
    if given is None:
        tables, mdp_of_task = block_tables(family, split, draw)
        contexts = drawn_contexts(family, data, draw, tables, mdp_of_task)
        spent = {"episodes": draw.count * data.q_learning_steps} if data.q_learning_steps else {}
    else:  # logs have no contexts of Algorithm 1, so both groups have the same transitions
        tables, mdp_of_task = given_tables(family, given)
        contexts, spent = dict.fromkeys(family.context_groups, given.context), {"episodes": 0}
    mdp_of_query = np.repeat(mdp_of_task, data.queries_per_task)
    table = None if incumbent is None else incumbent.follow(contexts["transitions"])
    sad = distill_labels(tables.mdps, mdp_of_query, policy, rule, streams["sad"], incumbent=table)
    drawn = functools.partial(sample_state_actions, tables.mdps, mdp_of_query, policy)
    dpt_states, dpt_actions = drawn(streams["dpt"])
    star_states, _ = drawn(streams["dpt_star"])
    star_actions = optimal_labels(
        tables.optimal[mdp_of_query, star_states],
        data,
        np.random.default_rng(streams["dpt_star"]),
    )

    if incumbent is not None and split == "train":
        contexts["transitions"], spent["own_contexts"] = with_own_play(
            contexts["transitions"],
            data.own_contexts,
            lambda rows, *others: incumbent.play((tables.mdps, mdp_of_task[rows]), *others),
            np.random.default_rng(streams["own"]),
        )

    def cells(states: NDArray[np.uint16]) -> NDArray[Any]:
        return np.take(family.coordinates, states, axis=0)

    return Block.of(
        draw.first,
        np.take(tables.parameters, mdp_of_task, axis=0),
        contexts,
        {
            "sad": Labels(cells(sad.query_states), sad.actions, sad.transitions),
            "dpt": Labels(cells(dpt_states), dpt_actions),
            "dpt_star": Labels(cells(star_states), star_actions),
        },
        spent,
    )
