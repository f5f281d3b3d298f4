"""Environments that differ between two processes although their signature is the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.experiment.load import parse_experiment
from sad_hpc.tasks.environments import family as gymnasium_family
from sad_hpc.tasks.fingerprint import are_alike, fingerprint
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
