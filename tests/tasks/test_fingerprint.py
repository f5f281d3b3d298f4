"""Digests of code and fingerprints of environments: another environment gets other data."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.tasks.darkroom import Darkroom
from sad_hpc.tasks.environments import family as gymnasium_family
from sad_hpc.tasks.fingerprint import are_alike, fingerprint
from sad_hpc.user_code import code_digests
from tests.tasks import own_environments

CONFIG = {
    "name": "walk",
    "task": {
        "family": "gymnasium",
        "env": "tests.tasks.own_environments:Walk-v0",
        "horizon": 5,
        "attributes": {"luck": {"integers": [0, 199]}},
    },
    "data": {"tasks": 60, "block_tasks": 10, "trust_horizon": 2, "return_threshold": None},
    "rows": ["SAD"],
    "pretrain": {"epochs": 1, "holdout_tasks": 4, "batch_size": 8},
    "evaluate": {"tasks": 12},
}
TABLE = CONFIG | {
    "task": {
        "family": "gymnasium_table",
        "env": "FrozenLake-v1",
        "states": [2, 2],
        "horizon": 5,
        "rewards": "sparse",
        "vary": {"desc": {"choice": [["SF", "FG"], ["SH", "FG"], ["SF", "HG"]]}},
    }
}


def anew(config=CONFIG):
    """The fingerprint that another process would find."""
    gymnasium_family._probe.cache_clear()
    return parse_experiment(dict(config), "x").family.fingerprint


def test_another_environment_under_one_signature_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = anew()
    assert before is not None and are_alike(before, anew())
    monkeypatch.setattr(own_environments.Walk, "noise", 1.01)
    assert not are_alike(before, anew())


def test_other_tables_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    before = anew(TABLE)
    assert before is not None and are_alike(before, anew(TABLE))
    from gymnasium.envs.toy_text import frozen_lake

    class Paid(frozen_lake.FrozenLakeEnv):
        def __init__(self, **options):
            super().__init__(**options)
            self.P[0][0] = [(p, s, 1.0, end) for p, s, _, end in self.P[0][0]]

    monkeypatch.setattr(frozen_lake, "FrozenLakeEnv", Paid)
    assert not are_alike(before, anew(TABLE))


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 1e6))
def test_last_bits_are_no_difference_and_all_else_is(seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    seen = scale * generator.normal(size=(50, 4, 3))
    own = fingerprint(seen)
    assert len(own) == 4 and are_alike(own, fingerprint(seen * (1 + 1e-12)))
    assert not are_alike(own, fingerprint(scale * generator.normal(size=seen.shape)))
    assert not are_alike(own, fingerprint(seen[..., ::-1]))
    assert not are_alike(own, own[:3])
    assert are_alike(own, None) and are_alike(None, own)


MODULE = """
import gymnasium, numpy
from tests.tasks.own_environments import Walk

class Walk2(Walk):
    noise = 1.0  # edited below

gymnasium.register("Walk2-v0", Walk2)
"""
WALK2 = """
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
    """Return the signature of the dataset, as a process that has just begun computes it."""
    from sad_hpc.tasks.environments.family import _probe

    monkeypatch.syspath_prepend(str(folder))
    (folder / "own_walk.py").write_text(module)
    sys.modules.pop("own_walk", None)
    _probe.cache_clear()
    importlib.invalidate_caches()
    (folder / "walk.yaml").write_text(WALK2)
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


PAID = """
import gymnasium
from tests.tasks.own_environments import Walk

class Paid(Walk):
    def step(self, action):
        seen, reward, *rest = super().step(action)
        return seen, FACTOR * reward, *rest

gymnasium.register("Paid-v0", Paid)
"""
PAID_DRIFT = """
from tests.tasks.functional_environments import Drift

class Paid(Drift):
    def reward(self, *arguments, **named):
        return FACTOR * super().reward(*arguments, **named)
"""
BY_FUNCTIONS = {"family": "functional", "env": "paid:Paid", "horizon": 5}


@pytest.mark.filterwarnings("ignore:.*Overriding environment.*")
@pytest.mark.parametrize(
    ("module", "task"),
    [
        (PAID, CONFIG["task"] | {"env": "paid:Paid-v0"}),
        (PAID_DRIFT, BY_FUNCTIONS | {"vary": {"wind": {"uniform": [-1, 1]}}}),
    ],
)
def test_a_family_follows_code_that_an_interactive_session_edits(
    tmp_path, monkeypatch, module, task
):
    source = tmp_path / "paid.py"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "paid", raising=False)
    made = []
    for factor in ("1", "10"):
        source.write_text(module.replace("FACTOR", factor))
        importlib.invalidate_caches()
        if made:
            importlib.reload(sys.modules["paid"])
        made.append(parse_experiment(CONFIG | {"task": task}, "test").family)
    assert made[0].code != made[1].code
    assert made[0].dense_reward_scale > 5 * made[1].dense_reward_scale
