"""A change of an environment's code changes the dataset's signature."""

import importlib
import sys
from pathlib import Path

import pytest

from sad_hpc.experiment.load import load_experiment
from sad_hpc.tasks.darkroom import Darkroom
from sad_hpc.tasks.source_code import code_digests

MODULE = """
import gymnasium, numpy
from tests.tasks.own_environments import Walk

class Walk2(Walk):
    noise = 1.0  # edited below

gymnasium.register("Walk2-v0", Walk2)
"""
CONFIG = """
name: walk
task:
  family: gymnasium
  env: own_walk:Walk2-v0
  horizon: 5
  attributes: {noise: {uniform: [0.5, 1.5]}}
data: {tasks: 60, trust_horizon: 2}
rows: [SAD]
pretrain: {epochs: 1, holdout_tasks: 4, batch_size: 8}
evaluate: {tasks: 12}
"""


def signature_with(module: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the dataset, in a process that has just begun."""
    from sad_hpc.tasks.environments.family import _probe

    monkeypatch.syspath_prepend(str(folder))
    (folder / "own_walk.py").write_text(module)
    sys.modules.pop("own_walk", None)
    _probe.cache_clear()
    importlib.invalidate_caches()
    (folder / "walk.yaml").write_text(CONFIG)
    return load_experiment(folder / "walk.yaml").data_signature()


@pytest.mark.filterwarnings("ignore:.*Overriding environment.*")
def test_an_edit_of_the_module_names_another_dataset(tmp_path: Path, monkeypatch):
    folders = [tmp_path / name for name in ("first", "again", "edited")]
    modules = [MODULE, MODULE, MODULE + "\nWalk2.fails_at = 10**6\n"]
    signatures = []
    for folder, module in zip(folders, modules, strict=True):
        folder.mkdir()
        signatures.append(signature_with(module, folder, monkeypatch))
    assert signatures[0] == signatures[1] != signatures[2]


def test_code_of_this_package_and_of_gymnasium_is_left_to_revisions():
    import gymnasium

    cartpole = type(gymnasium.make("CartPole-v1").unwrapped)
    assert code_digests([Darkroom, cartpole, dict]) == ()


def test_bases_and_all_classes_count():
    from tests.tasks.own_environments import Remote, Walk

    both = code_digests([Walk, Remote])
    assert len(both) == 1 and both == code_digests([Remote])


def test_a_class_without_a_source_file_has_no_digest():
    namespace: dict[str, type] = {}
    exec("class Typed: pass", namespace)
    namespace["Typed"].__module__ = "typed_in_a_console"
    assert code_digests([namespace["Typed"]]) == ()
