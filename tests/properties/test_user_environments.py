"""Users' environments: names and messages of any text, numbers of any size."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sad_hpc.errors import LONGEST, ConfigError, UserError, described
from sad_hpc.experiment.numbers import LARGEST_NUMBER
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment
from tests.tasks.own_environments import sized

ODD = st.text(".:/-_v0zQ \x00\x1b\n\u202eé", max_size=12)


@example(".zoo:X")
@example(":X")
@example("zoo..quux:X-v0")
@given(ODD)
def test_no_odd_name_of_an_environment_is_more_than_a_line(name: str):
    with pytest.raises(ConfigError) as caught:
        make_environment(EnvironmentTask(name))
    assert str(caught.value).isprintable()


@given(st.text(max_size=2 * LONGEST))
def test_the_message_of_another_package_is_a_printable_line(text: str):
    told = described(ValueError(text))
    assert told.isprintable()
    assert told.startswith("ValueError")
    assert len(told) < 12 * LONGEST


@settings(max_examples=20)
@example(19.0).via("whose square is infinite in float32")
@example(29.0).via("the largest")
@example(39.0).via("finite in float64 alone")
@given(st.floats(-300, 300))
def test_a_scale_is_never_zero_or_infinite(exponent: float):
    size = 10.0**exponent
    for make in ({"size": size}, {"pay": size}):
        try:
            family = sized(make=make)
        except UserError as error:
            assert size > LARGEST_NUMBER / 1000
            assert ("its observation[0] is" if "size" in make else "its reward is") in str(error)
        else:
            assert size < LARGEST_NUMBER
            scales = np.float32([*family.state_scale, family.reward_scale])
            assert np.isfinite(scales).all() and (scales > 0).all()
            if exponent > 0:
                (scale,) = family.state_scale if "size" in make else (family.reward_scale,)
                assert 0.01 < scale * size < 10
