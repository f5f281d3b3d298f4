import numpy as np
import pytest

from sad_hpc.errors import ConfigError, UserError
from sad_hpc.tasks.environments.atari import AleState, StickyActions
from sad_hpc.tasks.environments.engine import StatePair
from sad_hpc.tasks.environments.family import GymnasiumConfig
from sad_hpc.tasks.environments.mujoco_state import MujocoState
from sad_hpc.tasks.environments.replayed import Replayed
from sad_hpc.tasks.environments.simulator import DeepCopied
from sad_hpc.tasks.environments.simulators import EnvironmentSimulators
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment
from sad_hpc.tasks.environments.trials import choose_adapter, idle_parameters

OWN = "tests.tasks.own_environments:"

PLAIN = [
    EnvironmentTask("CartPole-v1", attributes={"gravity": 12.5}),
    EnvironmentTask("MountainCar-v0"),
    EnvironmentTask("Pendulum-v1", {"g": 5.0}),
    EnvironmentTask("FrozenLake-v1", {"map_name": "8x8"}),
    EnvironmentTask("Blackjack-v1"),
    EnvironmentTask(f"{OWN}Walk-v0"),
]


def needs(package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")


def cheetah() -> EnvironmentTask:
    needs("mujoco")
    return EnvironmentTask("HalfCheetah-v5")


def pong(**make) -> EnvironmentTask:
    needs("ale_py")
    return EnvironmentTask("ALE/Pong-v5", {"obs_type": "ram", **make})


def room(id: str = "MiniGrid-Dynamic-Obstacles-5x5-v0") -> EnvironmentTask:
    needs("minigrid")
    return EnvironmentTask(id)


def lunar_lander() -> EnvironmentTask:
    needs("Box2D")
    return EnvironmentTask("LunarLander-v3")


def own(name: str, **attributes) -> EnvironmentTask:
    return EnvironmentTask(f"{OWN}{name}-v0", attributes=attributes)


def simulators(task, adapter, n: int = 1, seed: int = 0) -> EnvironmentSimulators:
    return EnvironmentSimulators([task] * n, adapter, np.random.default_rng(seed))


def futures(some: EnvironmentSimulators, steps: int, seed: int = 0) -> np.ndarray:
    """(steps, n, d + 2): observations, rewards and ends, under the same actions in all rows."""
    drawn = some.actions.drawn(steps, np.random.default_rng(seed))
    n, seen = len(some.ended), []
    for action in drawn:
        rewards = some.step(np.repeat(action[None], n, axis=0))
        seen.append(np.column_stack([some.observations, rewards, some.ended]))
    return np.stack(seen)


@pytest.mark.parametrize("task", PLAIN, ids=lambda task: task.id)
def test_plain_environments_are_copied_by_deepcopy(task):
    assert choose_adapter(task) is DeepCopied


@pytest.mark.parametrize("id", ["MiniGrid-DoorKey-5x5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0"])
def test_minigrid_is_copied_by_deepcopy(id):
    assert choose_adapter(room(id)) is DeepCopied


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "Ant-v5", "Humanoid-v5"])
def test_mujoco_is_copied_by_its_state(id):
    # Ant and Humanoid read positions that are one physics step old: the state alone is not enough.
    needs("mujoco")
    assert choose_adapter(EnvironmentTask(id)) is MujocoState


def test_atari_is_copied_by_its_state_with_sticky_actions_and_a_random_frame_skip():
    assert choose_adapter(pong(frameskip=(2, 5))) is AleState


def test_a_pair_of_the_users_own_comes_before_deepcopy():
    assert choose_adapter(own("Remote")) is StatePair


@pytest.mark.parametrize("task", [cheetah, pong])
def test_deepcopy_of_what_is_more_than_its_python_objects_is_found_out(task, monkeypatch):
    monkeypatch.setattr("sad_hpc.tasks.environments.trials.ADAPTERS", (DeepCopied,))
    with pytest.raises(ConfigError, match=r"-v5 .*deepcopy: in a copy, observation\[\d+\] of step"):
        choose_adapter(task())


@pytest.mark.parametrize("task", [lambda: own("Boxed"), lunar_lander], ids=["Boxed", "Box2D"])
def test_what_cannot_be_copied_but_repeats_its_episode_is_copied_by_replay(task):
    assert choose_adapter(task()) is Replayed


def test_wrappers_around_a_shared_environment_have_states_of_their_own():
    assert choose_adapter(own("Paid")) is StatePair
    some = simulators(own("Paid"), StatePair)
    still = np.zeros(1, np.int64)
    first, second = (some.copied(still, np.random.default_rng(0)) for _ in range(2))
    assert [first.step(still).item() for _ in range(3)] == [1, 2, 3]
    assert (second.step(still).item(), some.step(still).item()) == (1, 1)


def test_all_adapters_that_fail_are_listed_with_their_first_difference():
    with pytest.raises(ConfigError) as caught:
        choose_adapter(own("Forgetful"))
    text = str(caught.value)
    assert "Forgetful-v0 cannot be copied" in text and "\n" not in text
    assert "get_state and set_state: in a copy, observation[0] of step 1 is" in text
    assert "deepcopy: TypeError: an engine cannot be copied" in text
    assert "repeating the episode: in a" in text
    assert "MuJoCo" not in text and "add get_state()" in text


def test_what_its_seed_does_not_make_is_refused():
    for name in ("Counting", "Unseeded"):
        with pytest.raises(ConfigError, match=f"{name}-v0 is not reproducible: .*np_random"):
            choose_adapter(own(name))


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (lambda: own("NotANumber", where="reward"), "step 3 .*: its reward is nan"),
        (lambda: own("NotANumber", where="observation"), r"step 3 .*: its observation\[0\] is nan"),
        (lambda: own("Walk", fails_at=2), "step 2 .*seed 0: ZeroDivisionError: the ground is gone"),
    ],
)
def test_what_fails_by_itself_is_told_before_any_copy(task, text):
    with pytest.raises(ConfigError, match=rf"-v0 \(.*\) fails in {text}"):
        choose_adapter(task())


def test_a_hidden_counter_that_reset_sets_back_is_refused():
    with pytest.raises(ConfigError, match=r"deepcopy: in .*the reward of step 1 is"):
        choose_adapter(own("Drifting"))


def test_there_is_no_time_limit():
    some = simulators(own("Walk", noise=0.0), DeepCopied)
    assert not futures(some, 30)[..., -1].any()


@pytest.mark.parametrize(
    ("task", "adapter"),
    [
        (lambda: own("Walk"), DeepCopied),
        (lambda: own("Remote"), StatePair),
        (lambda: EnvironmentTask("FrozenLake-v1", {"map_name": "8x8"}), DeepCopied),
        (room, DeepCopied),
        (pong, AleState),
        (lambda: own("Boxed"), Replayed),
    ],
    ids=["Walk", "Remote", "FrozenLake", "MiniGrid", "Pong", "Boxed"],
)
def test_stochastic_copies_differ_and_leave_their_origins_future_as_it_was(task, adapter):
    some, same = (simulators(task(), adapter, n=2, seed=3) for _ in range(2))
    futures(some, 3), futures(same, 3)
    copies = some.copied(np.array([1, 1, 1, 1, 0]), np.random.default_rng(1))
    assert (copies.observations[:4] == some.observations[1]).all()
    after = futures(copies, 30, seed=7)
    assert len({after[:, row].tobytes() for row in range(4)}) > 1
    # Copies of copies, too.
    futures(copies.copied(np.arange(5), np.random.default_rng(2)), 3)
    np.testing.assert_array_equal(futures(some, 40, seed=5), futures(same, 40, seed=5))


def test_every_pair_of_copies_of_a_walk_has_winds_of_its_own_from_both_generators():
    some = simulators(own("Walk"), DeepCopied)
    copies = some.copied(np.zeros(400, np.int64), np.random.default_rng(0))
    moved = futures(copies, 1)[0, :, 0]
    assert len(np.unique(moved)) == 400
    # The variance of two independent winds of variance 1; of 400, its standard error is 0.14.
    assert abs(np.var(moved, ddof=1) - 2) < 0.5


def test_a_deterministic_copy_repeats_its_origin_exactly():
    some = simulators(cheetah(), MujocoState, n=2)
    futures(some, 5)
    copies = some.copied(np.array([0, 1, 0]), np.random.default_rng(0))
    after = futures(copies, 20, seed=2)
    np.testing.assert_array_equal(after[:, :2], futures(some, 20, seed=2))
    np.testing.assert_array_equal(after[:, 0], after[:, 2])
    assert (after[:, 0] != after[:, 1]).any()


def test_copies_of_a_mujoco_state_share_one_model():
    some = simulators(cheetah(), MujocoState)
    copies = some.copied(np.zeros(3, np.int64), np.random.default_rng(0))
    plain = [one.environment.unwrapped for one in [*some._simulators, *copies._simulators]]
    assert len({id(one.model) for one in plain}) == len({id(one.data) for one in plain}) == 1
    assert len({id(one) for one in plain}) == 4


def test_draws_of_copies_depend_on_their_generator_alone():
    one, other = (
        simulators(own("Walk"), DeepCopied).copied(np.zeros(2, np.int64), np.random.default_rng(4))
        for _ in range(2)
    )
    np.testing.assert_array_equal(futures(one, 10), futures(other, 10))


def test_ended_ones_stay_until_they_are_started_again():
    some = simulators(EnvironmentTask("CartPole-v1"), DeepCopied, n=3)
    right = np.ones(3, np.int64)
    while not some.ended.all():
        some.step(right)
    stayed = some.observations.copy()
    assert (some.step(right) == 0).all() and (some.observations == stayed).all()
    copies = some.copied(np.array([2]), np.random.default_rng(0))
    assert copies.ended.all() and copies.step(right[:1]) == 0
    some.start(np.array([1]), np.random.default_rng(0))
    assert some.ended.tolist() == [True, False, True]
    assert some.step(right).tolist() == [0, 1, 0]
    assert (some.observations[[0, 2]] == stayed[[0, 2]]).all()


def test_tasks_side_by_side_are_those_that_were_asked_for():
    tasks = [own("Walk", noise=0.0), own("Walk", noise=50.0), own("Walk", noise=0.0)]
    some = EnvironmentSimulators(tasks, DeepCopied, np.random.default_rng(0))
    some.step(np.array([0, 1, 2]))
    still, windy, forward = some.observations[:, 0]
    assert (still, forward) == (-1, 1) and windy not in (-1, 0, 1)


@pytest.mark.parametrize("where", ["reward", "observation"])
def test_a_nan_names_environment_parameters_and_step(where):
    some = simulators(own("NotANumber", where=where), DeepCopied)
    with pytest.raises(
        UserError, match=rf"\(where={where}\) fails in step 3 .*its {where}.* is nan"
    ):
        futures(some, 5)


def test_an_exception_of_an_environment_names_all_that_repeats_it():
    some = simulators(own("Walk", fails_at=4), DeepCopied)
    seed = some._seeds[0]
    with pytest.raises(UserError, match=r"Walk-v0 \(fails_at=4\) fails in step 4 ") as caught:
        futures(some, 5)
    assert f"of seed {seed}: ZeroDivisionError: the ground is gone" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_spaces_that_change_with_the_task_are_refused():
    tasks = [EnvironmentTask(f"{OWN}Wide-v0", {"width": width}) for width in (1, 2)]
    with pytest.raises(ConfigError, match=r"observation_space of .*\(width=2\) is .* \(width=1\)"):
        EnvironmentSimulators(tasks, DeepCopied, np.random.default_rng(0))


class Console:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.done: list[int] = []

    def getFloat(self, name):
        return 0.25

    def setFloat(self, name, value):
        self.probability = value

    def act(self, action, strength):
        self.done.append(action)
        return 0


def test_sticky_actions_repeat_the_previous_frames_action_by_their_probability():
    console = Console()
    sticky = StickyActions(console)
    sticky._generator = np.random.default_rng(0)
    for frame in range(4000):
        sticky.act(frame, 1.0)
    repeated = np.mean(np.diff(console.done) == 0)
    assert console.probability == 0 and abs(repeated - 0.25) < 0.03  # standard error 0.007


def test_the_console_itself_has_no_sticky_actions_left():
    environment = make_environment(pong())
    environment.reset(seed=0)
    assert isinstance(environment.unwrapped.ale, StickyActions)
    environment.unwrapped.ale._probability = 0.0
    rams = []
    for seed in (1, 2):
        environment.reset(seed=seed)
        rams.append(np.stack([environment.step(i % 6)[0] for i in range(100)]))
    np.testing.assert_array_equal(*rams)


@pytest.mark.parametrize("drawn", [{"uniform": [2, 5]}, {"choice": [0.5, 2]}, {"integers": [0, 3]}])
def test_only_the_parameter_that_nothing_uses_is_idle(drawn: dict) -> None:
    laws = {"noise": drawn, "luck": {"integers": [1, 5]}}
    config = GymnasiumConfig(
        family="gymnasium", env="tests.tasks.own_environments:Walk-v0", horizon=20, attributes=laws
    )
    assert idle_parameters(config) == ["luck"]
