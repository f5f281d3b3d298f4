"""Families of equal configs."""

from sad_hpc.experiment.families import families_made_once, family_of
from sad_hpc.experiment.load import parse_experiment
from sad_hpc.tasks.darkroom import DarkroomConfig


def test_equal_configs_share_a_family_only_within_the_block() -> None:
    config, other = DarkroomConfig(), DarkroomConfig(horizon=7)
    assert family_of(config) is not family_of(config)
    with families_made_once():
        made = family_of(config)
        assert family_of(config.model_copy()) is made
        assert family_of(other).config.horizon == 7
        assert family_of(config) is made
    assert family_of(config) is not made


def test_a_replicate_has_the_split_of_its_own_seed_in_every_row() -> None:
    """The distributions of a task section, once computed, must not reach its copies."""
    values = {
        "name": "lakes",
        "seeds": [1, 2],
        "seeds_vary": ["training", "split"],
        "task": {
            "family": "gymnasium_table",
            "env": "FrozenLake-v1",
            "states": [4, 4],
            "horizon": 5,
            "rewards": "sparse",
            "make": {"map_name": "4x4"},
            "vary": {"success_rate": {"choice": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]}},
            "test_share": 0.5,
        },
        "data": {"tasks": 60, "block_tasks": 10, "trust_horizon": 2},
        "rows": ["SAD", {"name": "SAD, 2", "method": "SAD", "set": {"data.queries_per_task": 2}}],
        "pretrain": {"epochs": 1, "holdout_tasks": 4, "batch_size": 8},
        "evaluate": {"tasks": 4},
    }
    experiment = parse_experiment(values, "test")
    splits = {
        (row, seed): experiment.of_element(row, seed)[0].family.distinct_tasks("test").tolist()
        for row in ("SAD", "SAD, 2")
        for seed in (1, 2)
    }
    for seed in (1, 2):
        assert splits["SAD", seed] == splits["SAD, 2", seed]
    assert splits["SAD", 1] != splits["SAD", 2]
