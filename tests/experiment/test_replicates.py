"""Replicates: what a seed draws anew (`seeds_vary`)."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.load import load_experiment
from sad_hpc.launch.graph import graph
from sad_hpc.storage.run import Run
from sad_hpc.tasks.darkroom import Darkroom
from tests.conftest import ROOT, TINY

EVERYTHING = "seeds_vary=[training,data,split]"


def tiny(*overrides: str) -> Experiment:
    return load_experiment(TINY, ["seeds=[0,3]", *overrides])


def test_by_default_seeds_share_data_and_split():
    experiment = tiny()
    first, second = (experiment.of_element("SAD", seed)[0] for seed in experiment.seeds)
    assert first.data_signature() == second.data_signature() == experiment.data_signature()


@pytest.mark.parametrize("vary", ["[training,data]", "[training,split]", "[training,data,split]"])
def test_every_replicate_has_its_own_dataset(vary: str):
    experiment = tiny(f"seeds_vary={vary}")
    signatures = {experiment.of_element("SAD", seed)[0].data_signature() for seed in (0, 3)}
    assert len(signatures) == 2 and not experiment.seeds_share_data
    own, _ = experiment.of_element("SAD", 3)
    assert own.data.seed == (3 if "data" in vary else experiment.data.seed)
    assert own.task.split_seed == (3 if "split" in vary else experiment.task.split_seed)
    assert own.replicate(3) == own


def test_models_of_several_components_have_other_signatures(monkeypatch: pytest.MonkeyPatch):
    """They hold the components before a question's since a time when the others had results."""

    def signatures(components: int | None) -> tuple[str, str]:
        monkeypatch.setattr(Darkroom, "components", components)
        return tiny().data_signature(), tiny().pretrain_signature("SAD", 0)

    data, trained = signatures(None)
    assert signatures(1) == (data, trained)
    assert signatures(2)[0] == data and signatures(2)[1] != trained


def test_splits_of_replicates_differ():
    experiment = tiny(EVERYTHING)
    goals = [
        experiment.of_element("SAD", seed)[0].family.distinct["test"].tolist() for seed in (0, 3)
    ]
    assert goals[0] != goals[1]
    assert np.shape(goals[0]) == np.shape(goals[1])


def test_rows_of_a_replicate_share_its_dataset_and_steps_require_their_own(tmp_path: Path):
    run = Run(tiny(EVERYTHING, "rows=[SAD,DPT]"), tmp_path)
    steps = graph(run)
    kinds = {
        stage: [step for step in steps if step.stage == stage]
        for stage in ("collect", "pretrain", "evaluate")
    }
    assert [len(each) for each in kinds.values()] == [2, 4, 4]
    for step in itertools.chain(kinds["pretrain"], kinds["evaluate"]):
        _, seed = step.element
        data = next(each for each in step.requires if each.stage == "collect")
        assert data.run.experiment.data.seed == seed
        assert (
            step.folder.path
            == (
                run.checkpoint(*step.element)
                if step.stage == "pretrain"
                else run.evaluation(*step.element)
            ).path
        )


def test_rounds_of_a_replicate_follow_a_model_of_its_own_data(tmp_path: Path):
    run = Run(tiny(EVERYTHING, "rows=[SAD]", "data.rounds=2"), tmp_path)
    for step in graph(run):
        if step.stage == "collect" and step.requires:
            (trained,) = step.requires
            (before,) = (each for each in trained.requires if each.stage == "collect")
            assert trained.element == ("SAD", step.run.experiment.data.seed)
            assert before.run.experiment.data.seed == step.run.experiment.data.seed
            assert before.run.experiment.task == step.run.experiment.task


@pytest.mark.parametrize(
    "config, vary, words",
    [
        (TINY, "[data]", "must contain training"),
        (TINY, "[training,training]", "repeats an entry"),
        (ROOT / "configs/gaussian_bandit.yaml", "[training,split]", "has no task.split_seed"),
    ],
)
def test_what_cannot_vary_is_refused(config: Path, vary: str, words: str):
    with pytest.raises(ConfigError, match=words):
        load_experiment(config, [f"seeds_vary={vary}"])
