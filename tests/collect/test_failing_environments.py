"""Environments of users that fail in some of their steps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from sad_hpc.collect.shards import MOST_FAILURES, TRIES
from sad_hpc.collect.stage import collect
from sad_hpc.dataset.schema import Manifest
from sad_hpc.errors import UserError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from tests.tasks.own_environments import Walk

CONFIG = """
name: walk
task:
  family: gymnasium
  env: tests.tasks.own_environments:Walk-v0
  horizon: 5
  attributes: {luck: {integers: [0, 199]}}
data:
  tasks: 60
  block_tasks: 10
  trust_horizon: 2
rows: [SAD]
pretrain: {epochs: 1, holdout_tasks: 4, batch_size: 8}
evaluate: {tasks: 12}
"""

Step = Callable[[Walk, Any], Any]


@pytest.fixture
def experiment(tmp_path: Path):
    path = tmp_path / "walk.yaml"
    path.write_text(CONFIG)
    return load_experiment(path)


def fail_if(happens: Callable[[Walk], bool], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets steps fail from now on; the list has an entry for each."""
    failed, step = [], Walk.step

    def failing(self: Walk, action: Any) -> Any:
        if happens(self):
            failed.append(self.steps)
            raise ConnectionError("the licence server\nis busy")
        return step(self, action)

    monkeypatch.setattr(Walk, "step", failing)
    return failed


def manifest(run: Run, split: str = "train") -> Manifest:
    return Manifest.load(run.data().path / split)


def digests(run: Run) -> list[str]:
    return [manifest(run, split).digest for split in ("train", "test")]


def test_a_failure_that_passes_changes_no_bit(experiment, tmp_path: Path, monkeypatch, capsys):
    calm = Run(experiment, tmp_path / "calm")
    collect(calm)
    failed = fail_if(lambda walk: walk.steps == 3 and len(failed) < TRIES - 1, monkeypatch)
    run = Run(experiment, tmp_path / "busy")
    collect(run)
    assert len(failed) == TRIES - 1
    assert digests(run) == digests(calm)
    said = capsys.readouterr().err
    assert f"block 0, try 1 of {TRIES}: " in said
    assert "fails in step 4 of the episode of seed" in said
    assert "ConnectionError: the licence server is busy" in said
    assert "transitions/s" in said


def test_a_task_that_always_fails_costs_its_block_alone(experiment, tmp_path: Path, monkeypatch):
    calm = Run(experiment, tmp_path / "calm")
    collect(calm)
    lucks = _lucks(calm, block=2)
    run = Run(experiment, tmp_path / "unlucky")
    with monkeypatch.context() as unlucky:
        # Only tasks of this block have one of these.
        others = {luck for block in (0, 1, 3, 4) for luck in _lucks(calm, block)}
        bad = sorted(lucks - others)[0]
        failed = fail_if(lambda walk: walk.luck == bad, unlucky)
        with pytest.raises(UserError) as caught:
            collect(run)
    assert str(caught.value).startswith(
        f"1 of 5 blocks of train failed, each {TRIES} times; block 2: "
    )
    assert f"luck={bad}" in str(caught.value)
    assert len(failed) == TRIES
    assert sorted(manifest(run).shards) == [0, 1, 3, 4]
    collect(run)
    assert digests(run) == digests(calm)


def test_an_environment_that_fails_everywhere_is_given_up(experiment, tmp_path: Path, monkeypatch):
    failed = fail_if(lambda walk: walk.steps == 3, monkeypatch)
    with pytest.raises(UserError, match=f"^{MOST_FAILURES} of 5 blocks of train failed"):
        collect(Run(experiment, tmp_path))
    assert len(failed) == MOST_FAILURES * TRIES


def _lucks(run: Run, block: int) -> set[int]:
    shard = manifest(run).shards[block]
    with h5py.File(run.data().path / "train" / shard.name) as file:
        return set(map(int, file["tasks/parameters"][:, 0]))
