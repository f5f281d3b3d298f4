"""The expected weights of DIT's pairs, compared with simulated episodes."""

import numpy as np
import pytest

from sad_hpc.evaluate.episode import play_episode
from sad_hpc.experiment.sections import DataConfig, DITConfig
from sad_hpc.ideal.return_law import return_law
from sad_hpc.pretrain.importance import return_to_go
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.tabular import TabularFamily
from tests.tasks.worlds import LAKES

ROOM = make_family(DarkroomConfig(size=3, horizon=6, train_goals=7))
DATA = DataConfig(tasks=10, trust_horizon=3)
N = 60_000


@pytest.mark.parametrize("family", [LAKES, ROOM], ids=["ends", "no ends"])
@pytest.mark.parametrize("floor", [None, 0.1])
def test_weights_are_those_of_simulated_episodes(family: TabularFamily, floor: float | None):
    parameters = family.distinct["train"][:2]
    law = return_law(family, DATA, DITConfig(discount=0.98, floor=floor), family.mdps(parameters))
    assert law is not None
    generator = np.random.default_rng(0)
    mdps = family.mdps(parameters.repeat(N // 2, axis=0))
    played = play_episode(
        family, mdps, lambda states, _: generator.integers(0, family.n_actions, N), generator
    )
    weights = np.maximum(return_to_go(played.rewards, 0.98, played.ends), floor or 0)
    for task in range(2):
        own = slice(task * N // 2, (task + 1) * N // 2)
        place = np.ravel_multi_index((played.states[own], played.actions[own]), law.shape[1:])
        sums = np.bincount(place.ravel(), weights[own].ravel().astype(float), law[task].size)
        assert sums / place.size == pytest.approx(law[task].ravel(), abs=0.004, rel=0.05)


def test_weights_that_it_cannot_know_are_none():
    mdps = ROOM.mdps(ROOM.distinct["train"])
    learning = DATA.model_copy(update={"q_learning_steps": 100})
    assert return_law(ROOM, learning, DITConfig(), mdps) is None
    assert return_law(ROOM, DATA, DITConfig(discount=0.9, floor=0.9**5 + 0.01), mdps) is None
    assert return_law(ROOM, DATA, DITConfig(discount=0.9, floor=0.9**5 - 0.01), mdps) is not None
