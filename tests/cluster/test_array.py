"""A large array of small evaluations, some of which fail the first time."""

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sad_hpc import results
from sad_hpc.aggregate.results_file import RESULTS, read_results
from sad_hpc.collect.stage import collect
from sad_hpc.evaluate.result_file import read_result
from sad_hpc.evaluate.stage import evaluate
from sad_hpc.launch.graph import graph
from sad_hpc.launch.records import load_records
from sad_hpc.launch.status import MOST_LOGS
from sad_hpc.model.transformer import Inputs, Transformer
from sad_hpc.model.weights import WEIGHTS, save_weights
from sad_hpc.storage.run import Run
from sad_hpc.tasks.base import make_family
from tests.cluster.pipeline import Pipeline

pytestmark = pytest.mark.cluster


def untrained_models(run: Run) -> None:
    """Save a model without training for every seed, so that evaluations can begin at once."""
    experiment = run.experiment
    for method, seed in experiment.elements:
        folder = run.checkpoint(method, seed)
        folder.prepare(experiment.pretrain_config(method, seed))
        model = Transformer(experiment.model, Inputs.of_family(make_family(experiment.task)))
        signature = experiment.pretrain_signature(method, seed)
        checksum = save_weights(folder.path / WEIGHTS, model.state_dict(), signature)
        folder.complete(outputs=[WEIGHTS], checksum=checksum)


@pytest.mark.parametrize(
    "elements, failing", [(4, 1), pytest.param(500, 10, marks=pytest.mark.stress)]
)
def test_an_array_loses_only_its_failing_elements_and_the_next_launch_makes_them(
    dev_cluster: dict[str, str],
    tmp_path: Path,
    figures: dict[str, Any],
    elements: int,
    failing: int,
) -> None:
    small = ["evaluate.tasks=2", "evaluate.online_episodes=1", "evaluate.headline_episodes=1"]
    small += [f"seeds={list(range(elements))}", "cluster.array_parallelism=4"]
    pipeline = Pipeline(dev_cluster, tmp_path, "data.tasks=200", "data.block_tasks=100", *small)
    collect(pipeline.run)
    untrained_models(pipeline.run)
    evaluations = [step for step in graph(pipeline.run) if step.stage == "evaluate"]
    # Somebody else's results lie where these elements' should go.
    in_the_way = [step.folder.path for step in evaluations[:: elements // failing][:failing]]
    for folder in in_the_way:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"name": "another"}')

    started = time.monotonic()
    log = pipeline.finish(pipeline.launch("--wait"), code=1)
    assert log.count("holds the output of another config") >= min(failing, MOST_LOGS)
    assert log.count(": failed (FAILED)") >= failing
    assert sum(step.complete for step in evaluations) == elements - failing
    first = load_records(pipeline.run)
    for folder in in_the_way:
        shutil.rmtree(folder)
    pipeline.finish()
    seconds = time.monotonic() - started

    second = load_records(pipeline.run)
    again = [step for step in evaluations if first[step.title].id != second[step.title].id]
    assert [step.folder.path for step in again] == in_the_way, "others were submitted again"
    table = results.load(pipeline.results / "tiny")
    counts = table[table["row"] == "SAD"].groupby(["seed", "mode", "task", "step"]).size()
    assert (counts == 1).all()
    assert sorted(table[table["row"] == "SAD"]["seed"].unique()) == list(range(elements))
    summary = pd.read_csv(pipeline.results / "tiny/summary.csv")
    of_all = summary[(summary["row"] == "SAD") & (summary["subset"] == "all")]
    assert set(of_all["n_seeds"]) == {elements}
    calm = Run(pipeline.run.experiment, tmp_path / "calm")
    calm.path.mkdir(parents=True)
    for part in ("data", "checkpoints"):
        (calm.path / part).symlink_to(pipeline.run.path / part)
    for method, seed in [again[0].element, evaluations[1].element]:
        evaluate(calm, method, seed)
        expected = read_result(calm.evaluation(method, seed).path / "result.h5")
        found = read_results(pipeline.results / "tiny" / RESULTS).results
        (own,) = [one for one in found if (one.row, one.seed) == (method, seed)]
        for mode, part in expected.modes.items():
            copy = own.modes[mode]
            assert copy.measure == part.measure
            for name in ("steps", "values", "context_rewards"):
                np.testing.assert_array_equal(getattr(copy, name), getattr(part, name))
    figures |= {"elements": elements, "failed once": failing, "seconds": round(seconds)}
