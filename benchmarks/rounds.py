"""Labels of later rounds on one core: rollouts that follow a model, against random play."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from evaluation import answering_model
from measure import Work, compare, void
from numpy.typing import NDArray

from sad_hpc.distill import make_block
from sad_hpc.distill.action_table import ActionTable
from sad_hpc.distill.block import Draw, Transitions
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.distill.tabular import block_tables
from sad_hpc.evaluate.policy import make_ready
from sad_hpc.evaluate.rollout_policy import simulated_incumbent, tabular_incumbent
from sad_hpc.experiment.load import load_experiment
from sad_hpc.kernels.random import stream
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.simulated import SimulatedFamily
from sad_hpc.tasks.tabular import TabularFamily

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "configs/darkroom.yaml"
SIMULATED = ROOT / "examples/environments/pendulum.yaml"
QUERIES = 49
"""Labels of a task, as in SAD+."""
BATCH = 512
PARTS = ("states", "actions", "rewards", "next_states")


def bench_rounds() -> None:
    """The rollouts alone, then whole blocks."""
    torch.set_num_threads(1)
    experiment = load_experiment(CONFIG, [f"data.queries_per_task={QUERIES}"])
    family, data = make_family(experiment.task), experiment.data
    assert isinstance(family, TabularFamily)
    model = answering_model(family)
    make_ready(model)
    rule = LabelRule.of(data, family.sparse_reward)
    draw = Draw.of(family, data, "train", 0, ("sad",))
    tables, mdps = block_tables(family, "train", draw)
    make = partial(make_block, family, data, "train", 0)
    arrays = make().arrays
    context = Transitions(**{part: arrays[f"transitions/{part}"] for part in PARTS})
    mdp_of_label = np.repeat(mdps, QUERIES)
    random = label_rollouts(tables.mdps, mdp_of_label, draw.policy, rule, None)
    first_round = Work(lambda: void(make()), draw.count)
    for name, temperature in (("likeliest actions", 0.0), ("drawn actions", 1.0)):
        incumbent = tabular_incumbent(model, family, temperature, BATCH)
        table = incumbent.follow(context)
        ours = label_rollouts(tables.mdps, mdp_of_label, draw.policy, rule, table)
        compare(f"label rollouts of a model, {name}", "transitions", ours, random, "random", 0.3)
        block = Work(lambda i=incumbent: void(make(incumbent=i)), draw.count)
        name = f"a block of a second round, {name}, with the forward pass"
        compare(name, "tasks", block, first_round, "a block of the first round")
    simulated()


def simulated() -> None:
    """Whole blocks of an environment, whose rollouts ask the model at every step."""
    experiment = load_experiment(SIMULATED, ["data.block_tasks=10"])
    family, data = make_family(experiment.task), experiment.data
    assert isinstance(family, SimulatedFamily)
    model = Transformer(experiment.model, Inputs.of_family(family))
    make_ready(model)
    incumbent = simulated_incumbent(model, family, 0.0, BATCH)
    make = partial(make_block, family, data, "train", 0)
    first, second = (
        Work(lambda given=given: void(make(incumbent=given)), data.block_tasks)
        for given in (None, incumbent)
    )
    compare(
        "a block of a second round in Pendulum", "tasks", second, first,
        "a block of the first round",
    )  # fmt: skip


def label_rollouts(
    mdps: FiniteMDPs,
    mdp_of_label: NDArray[np.int64],
    policy: NDArray[np.uint8],
    rule: LabelRule,
    table: ActionTable | None,
) -> Work:
    """Labels by rollouts that follow a table; None: the behavior policy."""

    def run() -> int:
        state = stream(0, 0, 0, "sad")
        return distill_labels(mdps, mdp_of_label, policy, rule, state, incumbent=table).transitions

    return Work(lambda: void(run()), run())


if __name__ == "__main__":
    bench_rounds()
