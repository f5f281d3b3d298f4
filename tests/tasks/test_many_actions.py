"""More than 256 actions and states: no overflow, and small numbers stay bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sad_hpc.cli import main
from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import label_accuracy, verify
from sad_hpc.distill import make_block
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.errors import ConfigError, UserError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.numbers import action_dtype, integer_dtype, labelled, no_labels
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.random import stream
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.environments.family import GymnasiumConfig
from sad_hpc.tasks.environments.tables import GymnasiumTable, GymnasiumTableConfig
from sad_hpc.tasks.mdps import tables_of
from sad_hpc.theory.repeats import repeat_labels

ENV = "tests.tasks.own_environments:Keypad-v0"
DATA = DataConfig(tasks=40, block_tasks=40, trust_horizon=1, queries_per_task=2)


def task(buttons: int, codes: list[int], doors: int = 2, **more: Any) -> dict[str, Any]:
    make = {"buttons": buttons, "doors": doors}
    return {
        "env": ENV, "horizon": 40, "rewards": "sparse", "make": make,
        "vary": {"code": {"choice": codes}}, **more,
    }  # fmt: skip


def table(buttons: int, codes: list[int], doors: int = 2) -> GymnasiumTable:
    family = make_family(GymnasiumTableConfig(**task(buttons, codes, doors), states=[doors]))
    assert isinstance(family, GymnasiumTable)
    return family


@pytest.mark.parametrize("buttons", [255, 256, 257, 300])
def test_labels_of_tables_name_the_last_actions(buttons: int) -> None:
    codes = [buttons - 1, buttons - 3]
    family = table(buttons, codes)
    block = make_block(family, DATA, "train", 0)
    arrays = block.arrays
    assert {array.dtype for name, array in arrays.items() if name.endswith("actions")} == {
        np.dtype(np.uint8 if buttons == 255 else np.int16)
    }
    assert arrays["transitions/actions"].max() > buttons - 20
    for group in ("transitions", "episodes"):
        parts = "states", "actions", "rewards", "next_states", "ends"
        context = {part: arrays[f"{group}/{part}"] for part in parts}
        assert family.dynamics_faults(arrays["tasks/parameters"], group, context) == []
    right = np.array(codes)[arrays["tasks/parameters"]]
    for group in ("sad", "dpt_star"):
        assert (arrays[f"labels/{group}/actions"] == right).all()


def test_the_last_of_256_actions_is_a_known_label() -> None:
    family = table(256, [255, 0])
    repeats = repeat_labels(family, DATA, 50)
    assert repeats.coverage == repeats.consensus == repeats.right(family) == 1
    unrewarded = tables_of([{0: {a: [(1.0, 0, 0.0, False)] for a in range(256)}}], [np.ones(1)])
    rule = LabelRule.of(DATA, sparse_reward=True)
    given = np.zeros(3, np.uint16), np.zeros(3, np.int64)
    policy = np.arange(256, dtype=np.int16)
    made = distill_labels(unrewarded, given[1], policy, rule, stream(0, 0, 0, "sad"), given[0])
    assert not labelled(made.actions).any()


@pytest.mark.parametrize("buttons", [256, 300])
def test_labels_of_simulators_name_the_last_actions(buttons: int) -> None:
    family = make_family(GymnasiumConfig(**task(buttons, [buttons - 1, buttons - 2, 3])))
    data = DATA.model_copy(update={"tasks": 4, "queries_per_task": 1})
    arrays = make_block(family, data, "train", 0).arrays
    assert arrays["labels/sad/actions"].dtype == np.int16
    codes = np.array([buttons - 1, buttons - 2, 3])[arrays["tasks/parameters"].astype(int)]
    assert (arrays["labels/sad/actions"] == codes).all()
    assert buttons > arrays["transitions/actions"].max() > buttons - 20


def test_coordinates_of_more_than_256_values_are_states() -> None:
    family = table(2, [0, 1], doors=500)
    assert family.coordinates.dtype == np.int16
    assert (family.coordinates[:, 0] == np.arange(500)).all()
    assert (family.state_numbers(family.coordinates) == np.arange(500)).all()
    arrays = make_block(family, DATA, "train", 0).arrays
    assert arrays["transitions/states"].max() > 400
    with pytest.raises(KeyError):
        family.state_numbers(np.array([[-1]], np.int16))


def test_a_label_that_is_no_action_is_a_fault() -> None:
    family = table(300, [280, 290])
    good = np.array([[0, 299]], np.int16)
    assert family.has_actions(good)
    for wrong in (-1, 300, np.iinfo(np.int16).min):
        assert not family.has_actions(np.array([[0, wrong]], np.int16))
    assert not family.has_actions(good + 0.5)
    with pytest.raises(IndexError):
        family.are_optimal(np.zeros((1, 1), np.int16), np.zeros((1, 2, 1), np.int16), -good)


def test_what_no_type_holds_is_refused() -> None:
    with pytest.raises(ConfigError, match="40,000 actions: more than 32,767"):
        action_dtype(40_000)
    with pytest.raises(ConfigError, match=r"task\.states: more than 32,767"):
        integer_dtype(40_000, "task.states:")
    with pytest.raises(UserError, match="70,000 states are too many"):
        tables_of([{}], [np.ones(1)], n_states=70_000)
    assert not labelled(no_labels(3, 255)).any() and labelled(np.arange(255, dtype=np.uint8)).all()


CONFIG = f"""
name: keypad
task: {{family: gymnasium_table, env: "{ENV}", states: [2], horizon: 30, rewards: sparse,
  make: {{buttons: 300}}, vary: {{code: {{choice: [270, 280, 290]}}}}}}
data: {{tasks: 48, trust_horizon: 1}}
rows: [AD, SAD]
seeds: [0]
model: {{layers: 1, heads: 1, embedding: 16}}
pretrain: {{epochs: 1, batch_size: 8, holdout_tasks: 8, trackers: []}}
evaluate: {{tasks: 4, online_episodes: 2, headline_episodes: 1, memory: history}}
"""


def test_300_actions_pass_through_every_stage(tmp_path: Path) -> None:
    config = tmp_path / "keypad.yaml"
    config.write_text(CONFIG)
    runs = ["--runs", str(tmp_path / "runs")]
    assert main(["collect", str(config), *runs]) == 0
    for method in ("AD", "SAD"):
        for stage in ("pretrain", "evaluate"):
            assert main([stage, str(config), *runs, "--row", method, "--seed", "0"]) == 0
    run = Run(load_experiment(config), tmp_path / "runs")
    split = run.data().path / "train"
    manifest, family = Manifest.load(split), make_family(run.experiment.task)
    assert verify(split).faults == []
    assert label_accuracy(split, manifest, family, run.experiment.data)["sad"] == 1
    labels = read_columns(split, manifest, ["labels/sad/actions"])["labels/sad/actions"]
    assert labels.min() >= 270
