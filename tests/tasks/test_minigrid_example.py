"""The MiniGrid room of examples/: its table is what its simulator does."""

import gymnasium
import numpy as np
import pytest

from tests.conftest import ROOT


def test_play_follows_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("minigrid")
    monkeypatch.syspath_prepend(ROOT / "examples/dark_minigrid")
    room = gymnasium.make("dark_minigrid:DarkMiniGrid-v0", goal_x=2, goal_y=6).unwrapped
    table, starts = room.P, room.initial_state_distrib
    coordinates = list(np.ndindex(7, 7, 4))
    generator, rewards = np.random.default_rng(0), 0
    for seed in range(30):
        room.reset(seed=seed)
        state = coordinates.index((room.agent_pos[0] - 1, room.agent_pos[1] - 1, room.agent_dir))
        assert starts[state] == 0.25
        for _ in range(60):
            action = int(generator.integers(3))
            _, reward, ended, _, _ = room.step(action)
            ((chance, state, *others),) = table[state][action]
            place = (room.agent_pos[0] - 1, room.agent_pos[1] - 1, room.agent_dir)
            assert (chance, coordinates[state], *others) == (1, place, reward, ended)
            rewards += reward
            if ended:
                break
    assert rewards > 3
