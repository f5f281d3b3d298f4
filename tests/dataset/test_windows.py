"""Logs of tasks without parameters: their windows are the contexts, whatever tells tasks apart."""

from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest
import torch
from gymnasium import spaces

from sad_hpc import api, load_policy
from sad_hpc.cli import main
from sad_hpc.dataset.imported import import_logs
from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.dataset.verify import find_splits, inspect, verify
from sad_hpc.dataset.windows import Windows
from sad_hpc.distill.block import Transitions
from sad_hpc.distill.logged_labels import logged_labels
from sad_hpc.errors import ConfigError, UserError
from sad_hpc.evaluate.exact import plays_randomly
from sad_hpc.experiment import plain_yaml
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.experiment.sections import PretrainConfig
from sad_hpc.launch.graph import graph
from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run
from sad_hpc.tasks.environments.actions import actions_of
from sad_hpc.tasks.logged import LoggedConfig, held_out_rows
from tests.dataset.rooms import Episode, logged

T = 4
SEEN = spaces.Dict({"at": spaces.Box(-9, 9, (2,)), "door": spaces.Discrete(3)})
DONE = spaces.Tuple((spaces.Discrete(2, start=5), spaces.Box(-2, 2, (1,))))


def episodes(tasks: int = 3, rounds: int = 4, seed: int = 0) -> list[Episode]:
    """Episodes of different lengths, of one task after the other, with a task in their infos."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(tasks * rounds):
        steps, task = int(generator.integers(1, 9)), number % tasks
        steps_and_one = {
            "at": generator.uniform(-9, 9, (steps + 1, 2)).astype(np.float32),
            "door": generator.integers(3, size=steps + 1),
        }
        content = {
            "observations": steps_and_one,
            "actions": (
                generator.integers(5, 7, steps),
                generator.uniform(-2, 2, (steps, 1)).astype(np.float32),
            ),
            "rewards": generator.normal(size=steps),
            "terminations": np.arange(steps) == (steps - 1 if number % 2 else -1),
            "truncations": np.arange(steps) == (steps - 1 if number % 4 == 2 else -1),
            "infos": {"hidden": {"task": np.full((steps + 1, 2), 7 * task)}},
        }
        found.append((task, f"t{task}", content))
    return found


def written(folder: Path, some: list[Episode], **changes: Any) -> Path:
    """A Minari dataset of episodes, with names of their tasks."""
    told = {"observation_space": SEEN, "action_space": DONE, "origin": None}
    return logged(folder, some, **told | {"names": ("number", "name")} | changes)


def expected(some: list[Episode], task: int) -> dict[str, np.ndarray]:
    """All transitions of a task, without the code under test."""
    parts: dict[str, list[np.ndarray]] = {}
    for _, _, each in (one for one in some if one[0] == task):
        doors = np.eye(3)[each["observations"]["door"]]
        seen = np.hstack([each["observations"]["at"], doors]).astype(np.float32)
        choice, number = each["actions"]
        columns = {
            "states": seen[:-1],
            "next_states": seen[1:],
            "actions": np.column_stack([choice - 5.5, number[:, 0] / 2]),
            "rewards": each["rewards"].astype(np.float32),
            "ends": each["terminations"] | each["truncations"],
        }
        for name, column in columns.items():
            parts.setdefault(name, []).append(column)
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def windows_of(paths: list[Path], key: str | None) -> dict[str, np.ndarray]:
    """All windows of datasets."""
    found = Windows(paths, key, T, 10)
    given = found.given(range(len(found)))
    return {"tasks": given.parameters, **given.context.parts}


def test_windows_divide_the_transitions_of_each_task(tmp_path: Path) -> None:
    some = episodes()
    path = written(tmp_path / "all", some)
    totals = [len(expected(some, task)["rewards"]) // T for task in range(3)]
    found = Windows([path], "name", T, sum(totals))
    given = found.given(range(len(found)))
    assert given.parameters[:, 0].tolist() == np.repeat(range(3), totals).tolist()
    for task in range(3):
        rows = given.parameters[:, 0] == task
        for name, values in expected(some, task).items():
            here = given.context.parts[name][rows]
            joined = here.reshape(-1, *here.shape[2:])
            np.testing.assert_allclose(joined, values[: len(joined)], atol=1e-6, err_msg=name)


def test_the_ways_to_tell_tasks_apart_agree(tmp_path: Path) -> None:
    some = episodes()
    whole = [written(tmp_path / "all", some)]
    parts = [written(tmp_path / f"t{t}", [e for e in some if e[0] == t]) for t in range(3)]
    wanted = windows_of(parts, None)
    for paths, key in ((whole, "number"), (whole, "infos/hidden/task"), (parts, "name")):
        found = windows_of(paths, key)
        for name, values in wanted.items():
            np.testing.assert_array_equal(found[name], values, f"{key}: {name}")


def test_fewer_windows_are_spread_over_all_tasks(tmp_path: Path) -> None:
    path = written(tmp_path / "all", episodes(tasks=6, rounds=8))
    assert len(set(Windows([path], "name", T, 6).given(range(6)).parameters[:, 0])) >= 5


def test_a_label_is_of_another_context_of_the_same_task() -> None:
    tasks = np.array([4, 4, 4, 1, 9, 9, 4])
    rows, steps = np.meshgrid(np.arange(len(tasks)), np.arange(5), indexing="ij")
    states = np.stack([rows, steps], axis=2).astype(np.float32)
    context = Transitions(states, 10 * rows + steps, np.zeros(rows.shape), states)
    labels = logged_labels(tasks, context, 500, np.random.default_rng(0)).by_task(len(tasks))
    sources = labels.query_states[..., 0].astype(int)
    np.testing.assert_array_equal(labels.actions, 10 * sources + labels.query_states[..., 1])
    for row, task in enumerate(tasks):
        others = set(np.flatnonzero(tasks == task)) - {row} or {row}
        assert set(sources[row]) == others


BAD_WINDOWS: dict[str, dict[str, Any]] = {
    "the metadata of episode 0 has no color, only": {"key": "color"},
    r"episode 0 has no infos/goal; its infos: \['infos/hidden'\]": {"key": "infos/goal"},
    "observations/door changes within episode": {"key": "observations/door"},
    "1 of 1 tasks have task.horizon=4 transitions, but two are needed": {"key": None},
    "the logs have 9 contexts of task.horizon=4 tra": {"count": 99},
}


@pytest.mark.parametrize("words", sorted(BAD_WINDOWS))
def test_what_is_wrong_with_logs_is_named(words: str, tmp_path: Path) -> None:
    settings = {"key": "name", "horizon": T, "count": 4} | BAD_WINDOWS[words]
    with pytest.raises(UserError, match=words):
        Windows([written(tmp_path / "m", episodes(rounds=3))], **settings)


def spoiled(name: str, value: Any) -> list[Episode]:
    """Episodes of which one has another value in its second step."""
    some = episodes()
    number = next(n for n, each in enumerate(some) if len(each[2]["rewards"]) > 3)
    content = some[number][2]
    part = content
    for word in name.split("/")[:-1]:
        part = part[word]
    last = name.split("/")[-1]
    array = part[int(last)] if last.isdigit() else part[last]
    array[1] = value
    return some


BAD_CONTENT = {
    "observation .* is not in Discrete": ("observations/door", 3),
    "observation.0. is nan": ("observations/at", np.nan),
    "its reward is inf": ("rewards", np.inf),
    "action 7 is not in Discrete": ("actions/0", 7),
    "does not have the shape": ("actions/1", np.nan),
}


@pytest.mark.parametrize("words", sorted(BAD_CONTENT))
def test_a_value_that_is_not_valid_is_named(words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "m", spoiled(*BAD_CONTENT[words]))
    with pytest.raises(UserError, match=rf"rooms-v0: episode \d+, step \d: .*{words}") as raised:
        windows_of([path], "name")
    assert "\n" not in str(raised.value)


def test_a_number_of_steps_that_is_not_true_takes_no_memory(tmp_path: Path) -> None:
    path = written(tmp_path / "m", episodes())
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        file["episode_0"].attrs["total_steps"] = 10**15
    with pytest.raises(UserError, match="rooms-v0"):
        windows_of([path], "name")


def test_nothing_outside_of_logs_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "m", episodes())
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        file["episode_0/infos/more"] = h5py.ExternalLink(tmp_path / "secret.h5", "x")
    with pytest.raises(UserError, match="lies in another file"):
        windows_of([path], "infos/more")


def test_datasets_with_different_spaces_are_refused(tmp_path: Path) -> None:
    some = episodes()
    other = spaces.Tuple((spaces.Discrete(2, start=5), spaces.Box(-3, 3, (1,))))
    paths = [written(tmp_path / "a", some), written(tmp_path / "b", some, action_space=other)]
    with pytest.raises(UserError, match="has the spaces"):
        windows_of(paths, None)


def experiment_of(**changes: Any) -> dict[str, Any]:
    """A config of logged tasks."""
    return {
        "name": "logs",
        "task": {"family": "logged", "horizon": T},
        "data": {"tasks": 10, "block_tasks": 4, "trust_horizon": 1, "queries_per_task": 2},
        "rows": ["AD", "DPT", "DIT"],
        "seeds": [0],
        "model": {"layers": 1, "heads": 1, "embedding": 8},
        "pretrain": {"epochs": 1, "holdout_tasks": 2, "batch_size": 4},
    } | changes


POLE = {
    "family": "gymnasium", "env": "CartPole-v1", "horizon": T,
    "attributes": {"gravity": {"uniform": [5.0, 15.0]}},
}  # fmt: skip
BAD_CONFIGS: dict[str, dict[str, Any]] = {
    "rows: SAD needs rollouts, but the logged": {"rows": ["SAD"]},
    "acting=auto plays training tasks": {"evaluate": {"acting": "auto", "tasks": 2}},
    "data.rounds=2 does not apply": {"rows": ["AD"], "rounds": 2},
}


@pytest.mark.parametrize("words", sorted(BAD_CONFIGS))
def test_what_needs_the_parameters_of_tasks_is_refused(words: str) -> None:
    changes = dict(BAD_CONFIGS[words])
    data = experiment_of()["data"] | {"imported_contexts": "logs-0123456789ab"}
    data["rounds"] = changes.pop("rounds", 1)
    evaluate = {"evaluate": {"tasks": 2}}
    with pytest.raises(ConfigError, match=words):
        parse_experiment(experiment_of(task=POLE, data=data, **evaluate | changes), "test")


def test_an_acting_rule_has_no_effect_without_an_environment() -> None:
    data = experiment_of()["data"] | {"imported_contexts": "logs-0123456789ab"}
    assert parse_experiment(experiment_of(data=data, evaluate={"acting": "auto"}), "test")


def test_a_family_that_checks_each_task_takes_no_logs(tmp_path: Path) -> None:
    room = {"family": "darkroom", "size": 3, "horizon": T, "train_goals": 6}
    experiment = parse_experiment(experiment_of(task=room, evaluate={"tasks": 2}), "test")
    with pytest.raises(ConfigError, match="needs the parameters of every task"):
        import_logs([tmp_path], "name", experiment, tmp_path)


def test_logs_of_another_environment_are_refused(tmp_path: Path) -> None:
    experiment = parse_experiment(experiment_of(task=POLE, evaluate={"tasks": 2}), "test")
    with pytest.raises(UserError, match="set task to the environment that was logged"):
        import_logs([written(tmp_path / "m", episodes())], "name", experiment, tmp_path)


def poles(folder: Path) -> list[Path]:
    """Random numbers with the spaces of CartPole, one dataset a task."""
    pole = gymnasium.make("CartPole-v1")
    own = {"observation_space": pole.observation_space, "action_space": pole.action_space}
    generator, paths = np.random.default_rng(0), []
    for task in range(3):
        some = []
        for _ in range(3):
            content = {
                "observations": generator.uniform(-1, 1, (6, 4)).astype(np.float32),
                "actions": generator.integers(2, size=5),
                "rewards": np.ones(5),
                "terminations": np.arange(5) == 4,
                "truncations": np.zeros(5, bool),
            }
            some.append((task, "x", content))
        paths.append(written(folder / f"pole{task}", some, **own))
    return paths


def test_logs_of_an_environment_are_contexts_of_its_family(tmp_path: Path) -> None:
    config = experiment_of(task=POLE, evaluate={"tasks": 2})
    config["data"]["tasks"] = 10
    plain = parse_experiment(config, "test")
    logs = import_logs(poles(tmp_path), None, plain, tmp_path / "logs/contexts")
    assert str(logs) == "8 contexts of 3 tasks; held-out tasks: 1, with 2 contexts"
    config["data"]["imported_contexts"] = logs.name
    run = Run(parse_experiment(config, "test"), tmp_path)
    api.collect(run)
    assert [fault for split in find_splits(run.path) for fault in verify(split).faults] == []
    manifest = Manifest.load(run.data().path / "train")
    names = ["transitions/states", "labels/dpt/actions", "tasks/parameters"]
    found = read_columns(run.data().path / "train", manifest, names)
    given = logs.windows.given(range(8))
    np.testing.assert_array_equal(found["transitions/states"], given.context.states)
    np.testing.assert_array_equal(found["tasks/parameters"], given.parameters)
    test = inspect(run.data().path / "test")["datasets"]
    assert [name for name in test if name.startswith("labels")] == [
        "labels/dpt/actions",
        "labels/dpt/query_states",
    ]
    assert {step.stage for step in graph(run)} == {"collect", "pretrain", "evaluate", "aggregate"}
    assert not plays_randomly(run.experiment, "DPT")


def test_settings_may_follow_the_datasets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "poles.yaml"
    config.write_text(plain_yaml.written(experiment_of(task=POLE, evaluate={"tasks": 1})))
    words = [word for path in poles(tmp_path) for word in ("--minari", str(path))]
    assert main(["import", str(config), *words, "data.tasks=9", "--runs", str(tmp_path)]) == 0
    assert "7 contexts of 3 tasks" in capsys.readouterr().out


def imported(tmp_path: Path, *changes: str) -> tuple[Path, list[str]]:
    """The config that an import writes, and the options of a run's folders."""
    config, runs = tmp_path / "logs.yaml", ["--runs", str(tmp_path / "runs")]
    config.write_text(plain_yaml.written(experiment_of()))
    source = written(tmp_path / "m", episodes(tasks=4, rounds=6))
    words = [str(config), *changes, *runs, "--minari", str(source), "--task-key", "name"]
    assert main(["import", *words]) == 0
    return next((tmp_path / "runs/logs/contexts").glob("*.yaml")), runs


def test_an_import_writes_no_more_actions_than_a_config_can_have() -> None:
    with pytest.raises(ConfigError, match="actions: Input should be less than or equal to 32767"):
        LoggedConfig(horizon=T).fitted(
            actions_of(spaces.Discrete(40_000)), np.eye(2, dtype=np.float32), np.ones(2, np.float32)
        )


def test_tasks_without_an_environment_have_a_training_split_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, runs = imported(tmp_path)
    told = "10 contexts of 4 tasks; held-out tasks: 1, with 3 contexts"
    assert capsys.readouterr().out == f"{told}\nsad-hpc launch {config}\n"
    launch = ["launch", str(tmp_path / "logs.yaml"), *runs, "--results", str(tmp_path)]
    assert main(launch) == 1
    assert "has no environment that makes contexts: `sad-hpc import" in capsys.readouterr().err
    run = Run(load_experiment(config), tmp_path / "runs")
    assert (run.experiment.family.components, run.experiment.family.n_actions) == (2, 12)
    api.collect(run)
    assert find_splits(run.path) == [run.data().path / "train"]
    assert verify(run.data().path / "train").faults == []
    assert {step.stage for step in graph(run)} == {"collect", "pretrain"}
    assert main(["evaluate", str(config), *runs]) == 1
    assert "logged has no environment for an evaluation" in capsys.readouterr().err


def test_another_import_keeps_the_config_that_was_launched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, runs = imported(tmp_path)
    before = config.read_text()
    again = ["--minari", str(tmp_path / "m/rooms-v0"), "--task-key", "name", *runs]
    for change, kept in (("pretrain.epochs=1", False), ("pretrain.epochs=2", True)):
        capsys.readouterr()
        assert main(["import", str(tmp_path / "logs.yaml"), change, *again]) == 0
        assert config.read_text() == before
        assert (f"{config} has other settings and is kept" in capsys.readouterr().out) == kept


def test_held_out_contexts_are_all_contexts_of_the_last_tasks() -> None:
    tasks = np.repeat([0, 2, 3, 7], [3, 1, 4, 2])
    settings = PretrainConfig(epochs=1, batch_size=4)

    def held_out(wanted: int) -> int:
        return held_out_rows(tasks, settings.model_copy(update={"holdout_tasks": wanted}))

    assert [held_out(wanted) for wanted in range(1, 7)] == [2, 2, 6, 6, 6, 6]
    for wanted, left in ((7, 3), (8, 0), (99, 0)):
        with pytest.raises(UserError, match=f"leaves {left} of 10 contexts") as raised:
            held_out(wanted)
        assert "\n" not in str(raised.value)


def test_no_task_is_both_trained_and_held_out(tmp_path: Path) -> None:
    config, _ = imported(tmp_path, "data.block_tasks=20")  # labels could be of all contexts
    run = Run(load_experiment(config), tmp_path / "runs")
    api.collect(run)
    manifest = Manifest.load(run.data().path / "train")
    names = ["tasks/parameters", "transitions/states"]
    tasks, states = read_columns(run.data().path / "train", manifest, names).values()
    found = Examples.load(TrainingColumns(run, "DPT"), torch.device("cpu"))
    trained, held_out = tasks[: found.n_train], tasks[found.n_train :]
    assert found.n_holdout == len(held_out) > run.experiment.pretrain.holdout_tasks
    assert not set(trained.ravel()) & set(held_out.ravel())
    for rows in (range(found.n_train), range(found.n_train, len(tasks))):
        chosen = torch.tensor(list(rows))
        asked = found.batch(chosen, found.draws(0, 0, len(rows))).queries.states.numpy()
        own = states[rows].reshape(-1, states.shape[2])
        assert (asked.reshape(-1, 1, own.shape[1]) == own).all(axis=2).any(axis=1).all()


def test_a_holdout_that_leaves_no_task_for_training_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, runs = imported(tmp_path)
    again = ["--minari", str(tmp_path / "m/rooms-v0"), "--task-key", "name", *runs]
    capsys.readouterr()
    changes = ["pretrain.holdout_tasks=4", "pretrain.batch_size=6"]
    words = [str(tmp_path / "logs.yaml"), *changes, *again]
    assert main(["import", *words]) == 1
    assert "do not fill one batch of pretrain.batch_size=6" in capsys.readouterr().err
    run = Run(load_experiment(config, changes), tmp_path / "runs")
    api.collect(run)
    with pytest.raises(UserError, match="do not fill one batch"):
        Examples.load(TrainingColumns(run, "AD"), torch.device("cpu"))


@pytest.mark.slow
def test_logged_tasks_are_trained_and_exported(tmp_path: Path) -> None:
    config, _ = imported(tmp_path)
    run, folder = Run(load_experiment(config), tmp_path / "runs"), str(tmp_path / "policy")
    api.collect(run)
    api.train(run)
    assert main(["export", str(run.path), "--row", "DPT", "--seed", "0", "--weights", folder]) == 0
    assert load_policy(folder).act(None, np.zeros(5)).shape == (2,)
