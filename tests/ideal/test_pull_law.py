import numpy as np
import pytest

from sad_hpc.distill.bandits import draw_policies_of_dpt
from sad_hpc.ideal.pull_law import next_pull_chances


@pytest.mark.parametrize("counts", [[0, 0, 0], [3, 0, 0], [2, 1, 0], [5, 4, 1], [0, 7, 2]])
def test_the_next_pull_has_the_chances_that_weighted_policies_have(counts: list[int]):
    policies = draw_policies_of_dpt(1_000_000, 3, np.random.default_rng(0))
    weights = (policies ** np.array(counts)).prod(axis=1)
    wanted = weights @ policies / weights.sum()
    found = next_pull_chances(np.array([counts], np.float64), horizon=20)[0]
    assert found.sum() == pytest.approx(1)
    error = 5 * policies.std() * np.sqrt((weights**2).sum()) / weights.sum()
    assert found == pytest.approx(wanted, abs=error)


def test_long_runs_of_pulls_keep_their_digits():
    even, one = next_pull_chances(np.array([[100.0] * 5, [500.0, 0, 0, 0, 0]]), horizon=500)
    assert even == pytest.approx(np.full(5, 0.2))
    assert one[0] > 1 - 1e-6 and (one[1:] > 0).all() and one.sum() == pytest.approx(1)
