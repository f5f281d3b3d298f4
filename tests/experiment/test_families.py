"""Families of equal configs."""

from sad_hpc.experiment.families import families_made_once, family_of
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
