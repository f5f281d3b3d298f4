"""Detection of parameters without effect."""

import pytest

from sad_hpc.tasks.environments.family import GymnasiumConfig
from sad_hpc.tasks.environments.idle import idle_parameters


@pytest.mark.parametrize("drawn", [{"uniform": [2, 5]}, {"choice": [0.5, 2]}, {"integers": [0, 3]}])
def test_only_the_parameter_that_nothing_uses_is_idle(drawn: dict) -> None:
    laws = {"noise": drawn, "luck": {"integers": [1, 5]}}
    config = GymnasiumConfig(
        family="gymnasium", env="tests.tasks.own_environments:Walk-v0", horizon=20, attributes=laws
    )
    assert idle_parameters(config) == ["luck"]
