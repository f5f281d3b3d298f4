import numpy as np

from sad_hpc.distill.block import Transitions
from sad_hpc.evaluate.agent_memory import History, LastEpisode, history_places
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig

FAMILY = make_family(DarkroomConfig(size=4, horizon=10, train_goals=10))


def drawn(keys: list[int], rewarded: list[int], size: int, times: int = 4000) -> np.ndarray:
    """(times, size): keys of what is shown of the same history."""
    rows = np.tile(np.array(keys), (times, 1))
    paid = np.tile(np.isin(np.arange(len(keys)), rewarded), (times, 1))
    places = history_places(rows, paid, size, np.random.default_rng(0))
    return np.take_along_axis(rows, places, axis=1)


def counted(shown: np.ndarray, n_keys: int) -> np.ndarray:
    """(times, n_keys): how often each key is shown."""
    return (shown[:, :, None] == np.arange(n_keys)).sum(axis=1)


def test_distinct_ones_are_a_uniform_draw_after_those_with_a_reward():
    keys = [0, 1, 0, 2, 3, 0, 4, 5, 5, 6, 7, 3]  # 3 and 7 are rewarded
    times = counted(drawn(keys, [4, 10, 11], 4), 8)
    assert times.max() == 1 and (times[:, [3, 7]] == 1).all()
    share = times[:, [0, 1, 2, 4, 5, 6]].mean(axis=0)
    assert np.allclose(share, 2 / 6, atol=0.04)  # whatever how often it happened


def test_of_too_many_with_a_reward_a_uniform_draw_is_shown():
    times = counted(drawn(list(range(9)), [0, 1, 2, 3, 4, 5], 4), 9)
    assert times.max() == 1 and not times[:, 6:].any()
    assert np.allclose(times[:, :6].mean(axis=0), 4 / 6, atol=0.04)


def test_too_few_distinct_ones_are_all_shown_and_repeated_evenly():
    times = counted(drawn([2, 0, 1, 1, 1, 1, 1], [1], 9), 3)
    assert (times >= 1).all() and (times.sum(axis=1) == 9).all()
    assert np.allclose(times.mean(axis=0), 3, atol=0.1)
    assert times.std() > 0.8  # drawn, not dealt


def test_what_is_shown_comes_in_random_order():
    shown = drawn([0, 1, 2, 3, 4, 5], [5], 4)
    place = (shown == 5).argmax(axis=1)
    assert np.allclose(np.bincount(place, minlength=4) / len(shown), 1 / 4, atol=0.04)
    padded = drawn([0, 1], [], 4)
    assert np.allclose((padded == 0).mean(axis=0), 1 / 2, atol=0.04)


def test_of_no_history_nothing_is_shown():
    nothing = np.empty((3, 0), np.int64)
    places = history_places(nothing, nothing > 0, 5, np.random.default_rng(0))
    assert places.shape == (3, 0)


def episode(seed: int, n: int = 5) -> Transitions:
    """Random transitions in n rooms of one goal."""
    generator = np.random.default_rng(seed)
    room = FAMILY.mdps(FAMILY.distinct["test"][:1])
    states = generator.integers(16, size=(n, 10))
    actions = generator.integers(5, size=(n, 10))
    rewards, after = room.rewards[0, states, actions], room.next_states[0, states, actions]
    return Transitions(states.astype(np.uint16), actions.astype(np.uint8), rewards, after)


def rows_of(states, actions, rewards, next_states) -> list[set[tuple]]:
    """The distinct transitions of each room."""
    return [
        {tuple(map(int, (s, a, r, t))) for s, a, r, t in zip(*room, strict=True)}
        for room in zip(states, actions, rewards, next_states, strict=True)
    ]


def test_a_history_is_of_all_episodes_and_the_last_episode_is_not():
    history = History(FAMILY, 5, 10, np.random.default_rng(0))
    last = LastEpisode(FAMILY, 5, 8)
    for memory in (history, last):
        assert memory.context.actions.shape == (5, 0) and not memory.rewards.any()
    past: list[set[tuple]] = [set() for _ in range(5)]
    for number in range(6):
        walked = episode(number)
        history.add(walked)
        last.add(walked)
        past = [old | new for old, new in zip(past, rows_of(*walked.parts.values()), strict=True)]
        context = history.context
        numbers = [FAMILY.state_numbers(part.numpy())
                   for part in (context.states, context.next_states)]  # fmt: skip
        parts = numbers[0], context.actions.numpy(), context.rewards.numpy(), numbers[1]
        assert context.actions.shape == (5, 10)
        for shown, known in zip(rows_of(*parts), past, strict=True):
            assert shown <= known and len(shown) == min(10, len(known))
            rewarded = {row for row in known if row[2]}
            assert len({row for row in shown if row[2]}) == min(10, len(rewarded))
        assert (history.rewards == (parts[2] > 0).sum(axis=1)).all()
        assert (last.context.actions.numpy() == walked.actions[:, 2:]).all()
        assert (last.rewards == (walked.rewards[:, 2:] > 0).sum(axis=1)).all()


def test_a_long_memory_holds_several_episodes_in_time_order():
    memory, walked = LastEpisode(FAMILY, 5, 25), [episode(number) for number in range(4)]
    for number, one in enumerate(walked):
        memory.add(one)
        actions = np.concatenate([each.actions for each in walked[: number + 1]], axis=1)
        assert (memory.context.actions.numpy() == actions[:, -25:]).all()
