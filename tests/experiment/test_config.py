import dataclasses
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

import pytest

from sad_hpc.errors import ConfigError
from sad_hpc.experiment import installed
from sad_hpc.experiment.config import apply_overrides, differences, read_yaml, signature
from sad_hpc.experiment.families import family_class
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.launch.cluster import load_cluster
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import Darkroom
from tests.conftest import ROOT, TINY, committed

TASKS = installed.GROUPS["task.family"]

CONFIGS = [
    path
    for folder in ("", "paper", "field", "ablations")
    for path in sorted((ROOT / "configs" / folder).glob("*.yaml"))
]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_experiment_config_loads(path: Path):
    assert load_experiment(path).name


PAPER = {
    "gaussian_bandit": (500, 320, 100_000, 100),
    "bernoulli_bandit": (500, 320, 100_000, 100),
    "darkroom": (49, 7, 24_010, 100),
    "darkroom_large": (100, 10, 100_000, 100),
    "miniworld": (50, 3, 40_000, 200),
}
"""Context horizon, trust horizon, tasks and epochs of the paper's table of environments."""


@pytest.mark.parametrize("name", PAPER)
def test_paper_configs_have_the_numbers_of_its_tables(name: str):
    experiment = load_experiment(ROOT / f"configs/paper/{name}.yaml")
    data, pretrain, model = experiment.data, experiment.source.pretrain, experiment.source.model
    found = (experiment.task.horizon, data.trust_horizon, data.tasks, pretrain.epochs)
    assert found == PAPER[name]
    readings = {row for row in experiment.by_row if row.endswith(", uniform contexts")}
    assert set(experiment.by_row) - readings == {"AD", "DPT", "DIT", "DPT*", "SAD"}
    assert bool(readings) == name.endswith("bandit")
    assert (model.layers, model.heads, model.embedding, model.dropout) == (3, 3, 32, 0.1)
    assert (pretrain.learning_rate, experiment.source.dit.weight) == (0.001, 500)
    assert len(experiment.seeds) == 4
    family = make_family(experiment.task)
    assert family.n_actions == (4 if name == "miniworld" else 5)
    shares = [family.n_tasks(split, data.tasks) / data.tasks for split in ("train", "test")]
    assert shares == pytest.approx([0.8, 0.2], abs=0.005)  # 39 of 49 goals in the Darkroom


@pytest.mark.parametrize(
    "override, words",
    [
        ("pretrain.epoch=3", ["pretrain.epoch", "epochs"]),
        ("optimiser.lr=1", ["optimiser", "valid keys", "pretrain"]),
        ("task.goal=1", ["task.goal", "train_goals"]),
        ("rows=[SAD, BC]", ["BC", "SAD", "DPT*"]),
        ("task.family=maze", ["maze", "darkroom"]),
        ("task.horizon=0", ["task.horizon", "1"]),
        ("data.trust_horizon=0", ["data.trust_horizon", "1"]),
        ("data.trust_horizon=[3, 0]", ["data.trust_horizon.1:"]),
        ("data.trust_horizon=[3, 6]", ["2 values", "data.rounds=1"]),
        ("data.discount=[0.9, 1.5]", ["data.discount.1:", "less than 1"]),
        ("data.episodes_per_action=[many]", ["data.episodes_per_action.0:", "integer"]),
        ("data.trust_horizon=[]", ["0 values", "data.rounds=1"]),
        ("data.queries_per_task=0", ["data.queries_per_task", "1"]),
        ("task.train_goals=10", ["train_goals", "9"]),
        ("task.train_goals=9", ["no goal for test"]),
        ("data.behavior_policy=[0.5, 0.5]", ["behavior_policy", "5 actions"]),
        ("data.behavior_policy=[0.5, 0.1, 0.1, 0.1, 0.1]", ["behavior_policy", "add up to 1"]),
        ("task.family=[a]", ["task.family", "darkroom"]),
        ("pretrain.epochs=many", ["pretrain.epochs", "integer"]),
        ("pretrain.epochs=1.5", ["pretrain.epochs", "integer"]),
        ("pretrain.precision=fp8", ["fp32", "bf16"]),
        ("pretrain.batch_size=1000", ["batch_size", "holdout"]),
        ("evaluate.tasks=1000", ["evaluate.tasks", "300"]),
        ("evaluate.headline_episodes=4", ["headline_episodes"]),
        ("pretrain.learning_rate=.inf", ["pretrain.learning_rate", "finite"]),
        ("pretrain.weight_decay=1e400", ["pretrain.weight_decay", "finite"]),
        ("data.return_threshold=.nan", ["data.return_threshold", "finite"]),
        ("data.behavior_policy=[.nan, 0.5, 0.5, 0, 0]", ["data.behavior_policy"]),
        ("data.behavior_policy=[.inf, 0.5, 0.5, 0, 0]", ["data.behavior_policy"]),
        ("task.horizon=1" + 30 * "0", ["task.horizon", "100000"]),
        ("pretrain.epochs=1" + 30 * "0", ["pretrain.epochs", "too large"]),
        ("seeds=[0, 0]", ["seeds", "repeats"]),
        ("seeds=[-1]", ["seeds"]),
        ("name=../evil", ["name"]),
        ("nonsense", ["nonsense", "key.sub=value"]),
        ("seeds.x=1", ["seeds"]),
    ],
)
def test_a_wrong_override_is_named_in_one_line(override: str, words: list[str]):
    with pytest.raises(ConfigError) as caught:
        load_experiment(TINY, [override])
    message = str(caught.value)
    assert "\n" not in message
    assert "tiny.yaml" in message or "override" in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "config, word", [("gaussian_bandit", "first pull"), ("miniworld", "image")]
)
def test_families_without_later_rounds_say_why(config: str, word: str):
    with pytest.raises(ConfigError, match=rf"data.rounds=2: .*{word}.*; set it to 1"):
        load_experiment(ROOT / f"configs/{config}.yaml", ["data.rounds=2"])


def test_where_every_pull_is_rewarded_there_is_no_first_reward():
    bandit, greedy = ROOT / "configs/gaussian_bandit.yaml", "evaluate.greedy_after_reward=true"
    with pytest.raises(
        ConfigError, match=r"greedy_after_reward=true needs sparse rewards.* set it to false"
    ):
        load_experiment(bandit, [greedy])


def test_only_vectors_are_drawn_again():
    with pytest.raises(ConfigError, match=r"data.refinements is for .* use data.refinements=0"):
        load_experiment(TINY, ["data.refinements=1"])


def test_an_empty_split_is_named():
    with pytest.raises(ConfigError, match=r"data\.tasks=2 leaves the train split empty"):
        load_experiment(TINY, ["data.tasks=2", "task.train_goals=1"])


def test_more_files_than_a_view_can_hold_are_refused_and_the_way_out_is_none():
    many = ["data.tasks=1000000000"]
    with pytest.raises(ConfigError, match="10,000,000 files") as error:
        load_experiment(TINY, many)
    remedy = str(error.value).rpartition(" ")[2]
    assert load_experiment(TINY, [*many, remedy]).data.block_tasks == 65536


def test_a_holdout_of_most_training_tasks_is_refused():
    load_experiment(TINY, ["pretrain.holdout_tasks=300"])  # of 600
    with pytest.raises(ConfigError, match=r"more than half of 600 .* at most 300"):
        load_experiment(TINY, ["pretrain.holdout_tasks=301"])


def test_a_block_that_no_memory_holds_is_refused():
    with pytest.raises(ConfigError, match=r"data\.block_tasks=1000000000 .*9,000,000,000 trans"):
        load_experiment(TINY, ["data.tasks=1000000000000", "data.block_tasks=1000000000"])
    words = r"data\.queries_per_task=100000 are 2,000,000,000 query states"
    many = ["data.tasks=20000", "data.block_tasks=20000", "data.queries_per_task=100000"]
    with pytest.raises(ConfigError, match=words):
        load_experiment(TINY, many)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_base_is_the_file_with_what_differs(tmp_path: Path):
    row = "{name: 'SAD, x', method: SAD, set: {model.heads: 1}}"
    own = re.sub("^rows: .*", f"rows: [SAD, DPT, {row}]", TINY.read_text(), flags=re.M)
    written(tmp_path, "tiny.yaml", own)
    written(tmp_path, "inner/more.yaml", "base: ../tiny.yaml\nmodel: {heads: 2}\nseeds: [5]\n")
    path = written(tmp_path, "last.yaml", "base: inner/more.yaml\nname: last\nmodel: {layers: 1}\n")
    given = ["name=last", "model.heads=2", "model.layers=1", "seeds=[5]", f"rows=[SAD, DPT, {row}]"]
    assert load_experiment(path) == load_experiment(TINY, given)
    assert load_experiment(path, ["model.heads=3"]).model.heads == 3
    written(tmp_path, "inner/more.yaml", "base: ../tiny.yaml\nrows: [SAD, DPT]\n")
    assert load_experiment(path, ["name=tiny"]) == load_experiment(TINY, ["model.layers=1"])
    other = "rows: [DPT, {name: 'DPT, y', method: DPT, set: {model.heads: 2}}]"
    written(tmp_path, "inner/more.yaml", f"base: ../tiny.yaml\n{other}\n")
    assert list(load_experiment(path).by_row) == ["DPT", "DPT, y"]


@pytest.mark.parametrize("key", ["base", "pretrained"])
def test_files_that_need_each_other_are_refused(key: str, tmp_path: Path):
    path = written(tmp_path, "one.yaml", f"{key}: two.yaml\n")
    written(tmp_path, "two.yaml", "base: one.yaml\n")
    with pytest.raises(ConfigError, match=r"one\.yaml -> .*two\.yaml -> .*one\.yaml") as error:
        load_experiment(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["base: nowhere.yaml", "base: [1]", "base: {name: x}"])
def test_a_base_that_is_none_is_named(text: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml|x\.yaml: 'base' must be the path"):
        load_experiment(written(tmp_path, "x.yaml", text))


def test_every_family_is_found_by_its_name_and_another_package_may_add_one(
    monkeypatch: pytest.MonkeyPatch,
):
    own = entry_points(group=TASKS)
    for name in own.names:
        assert family_class(name).config_class.model_fields["family"].default == name
    added = [*own, EntryPoint("maze", "tests.nowhere:Maze", TASKS)]
    monkeypatch.setattr(installed, "_points", lambda key: EntryPoints(added))
    with pytest.raises(ConfigError, match=r"valid: bernoulli_bandit, .*, maze, miniworld"):
        family_class("house")
    with pytest.raises(ConfigError, match=r"maze: no object tests\.nowhere:Maze: cannot import"):
        family_class("maze")


def test_the_experiments_room_knows_no_family():
    """Families are found by their entry points, when a config names one."""
    code = "import sys, sad_hpc.experiment.load; print([m for m in sys.modules if '.tasks' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_file_and_a_broken_one_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="nowhere"):
        read_yaml(tmp_path / "nowhere.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1,\nb: }")
    with pytest.raises(ConfigError, match=r"broken.*YAML"):
        read_yaml(broken)
    broken.write_text("- 1\n")
    with pytest.raises(ConfigError, match="mapping"):
        read_yaml(broken)


def test_numbers_and_dates_mean_what_they_look_like(tmp_path: Path):
    path = tmp_path / "x.yaml"
    path.write_text("a: 1e-3\nb: 2024-01-01\nc: -2E+4\nd: 1e\n")
    assert read_yaml(path) == {"a": 1e-3, "b": "2024-01-01", "c": -2e4, "d": "1e"}


def test_yaml_cannot_make_objects(tmp_path: Path):
    evil = tmp_path / "evil.yaml"
    evil.write_text("name: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(ConfigError, match="YAML"):
        read_yaml(evil)


BOMB = "a: &a [1, 1]\nb: &b [*a, *a]\nc: &c [*b, *b]\n"
DEEP = 5000 * "["


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: repeated key 'a'"),
        ("a:\n  b: {c: 1,\n    c: 1}\n", "line 3: repeated key 'c'"),
        (BOMB, "line 2: aliases"),
        ("a: &a\n  b: *a\n", "line 2: aliases"),
        ("a: !!binary aGk=\n", "line 1: tags"),
        ("a: !!set {b, c}\n", "line 1: tags"),
        ("a: !!int x\n", "line 1: tags"),
        ("[a]: 1\n", "line 1: a key must be a word"),
        ("a: 1\n---\na: 2\n", "line 3: a second document"),
        (f"a: {DEEP}", "line 1: deeper than"),
        (f"a: 0x{4000 * 'f'}\n", "digits"),
        (f"a: {4000 * '1'}\n", "digits"),
        (f"a: {10**6 * 'long '}", "characters"),
    ],
    ids=lambda text: text[:20],
)
def test_what_no_config_needs_is_refused_in_a_file_and_in_an_override(
    text: str, said: str, tmp_path: Path
):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"x.yaml is not valid YAML: .*{re.escape(said)}") as one:
        read_yaml(path)
    with pytest.raises(ConfigError, match=re.escape(said)):
        apply_overrides({}, [f"name={text}"])
    assert len(str(one.value)) < 400 and "\n" not in str(one.value)


def test_a_required_key_is_named():
    mapping = read_yaml(TINY)
    del mapping["data"]["trust_horizon"]
    with pytest.raises(ConfigError, match=r"data\.trust_horizon.*missing"):
        parse_experiment(mapping, "x")


def test_overrides_are_read_as_yaml_and_leave_their_input_alone():
    before = {"a": {"b": 1}}
    after = apply_overrides(before, ["a.b=2e-3", "a.c=[1, x]", "d.e=true"])
    assert after == {"a": {"b": 0.002, "c": [1, "x"]}, "d": {"e": True}}
    assert before == {"a": {"b": 1}}


def stage_signatures(*overrides: str) -> tuple[str, str, str]:
    experiment = load_experiment(TINY, overrides)
    return (
        experiment.data_signature(),
        experiment.pretrain_signature("SAD", 0),
        experiment.evaluate_signature("SAD", 0),
    )


@pytest.mark.parametrize(
    "override, changed",
    [
        ("data.seed=1", (True, True, True)),
        ("task.split_seed=1", (True, True, True)),
        ("data.block_tasks=50", (True, True, True)),
        ("pretrain.batch_size=32", (False, True, True)),
        ("model.heads=2", (False, True, True)),
        ("evaluate.tasks=10", (False, False, True)),
        ("data.schedule=static", (False, False, False)),
        ("data.rounds=2", (True, True, True)),
        ("data.continuation=0.5", (True, True, True)),
        ("data.continuation=1.0", (False, False, False)),
        ("data.common_actions=true", (True, True, True)),
        ("data.common_actions=false", (False, False, False)),
        ("data.round_temperature=0.5", (False, False, False)),
        ("pretrain.checkpoint_minutes=1.0", (False, False, False)),
        ("evaluate.batch_size=7", (False, False, False)),
        ("seeds=[0]", (False, False, False)),
        ("rows=[SAD]", (False, False, False)),
    ],
)
def test_a_signature_changes_with_what_changes_the_result(override: str, changed: tuple):
    before, after = stage_signatures(), stage_signatures(override)
    assert tuple(a != b for a, b in zip(before, after, strict=True)) == changed


def test_models_that_saw_rewards_on_another_scale_are_others(monkeypatch: pytest.MonkeyPatch):
    before = stage_signatures("data.return_threshold=1e-6")
    monkeypatch.setattr(Darkroom, "sparse_reward", False)
    after = stage_signatures("data.return_threshold=1e-6")
    assert [a != b for a, b in zip(before, after, strict=True)] == [False, True, True]


def test_a_method_that_asks_something_else_trains_other_models(monkeypatch: pytest.MonkeyPatch):
    before = stage_signatures()
    asks_otherwise = dataclasses.replace(METHODS["SAD"], revision=1)
    monkeypatch.setitem(METHODS, "SAD", asks_otherwise)
    assert [a != b for a, b in zip(before, stage_signatures(), strict=True)] == [False, True, True]


def test_a_signature_is_12_hex_digits_and_ignores_the_order_of_keys():
    one, other = signature("s", {"a": 1, "b": 2}), signature("s", {"b": 2, "a": 1})
    assert one == other
    assert len(one) == 12
    int(one, 16)
    assert signature("t", {"a": 1, "b": 2}) != one
    assert signature("s", {"a": 1, "b": 2}, ["0" * 12]) != one
    assert signature("s", {"a": 1, "b": 2}, revision=1) != one


def test_differences_name_the_key_and_both_values():
    assert differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}) == ["a.b: 1 -> 3"]


STORED = committed("results/**/config.yaml")


@pytest.mark.parametrize(
    "path",
    [
        # Loading this one makes the tables of 2,000 maps.
        pytest.param(path, marks=pytest.mark.slow if path.parent.name == "random_lake" else ())
        for path in STORED
    ],
    ids=[path.parent.name for path in STORED],
)
def test_configs_beside_results_can_be_launched_again(path: Path, monkeypatch):
    known = list(entry_points(group=TASKS))
    for project in ROOT.glob("examples/*/pyproject.toml"):  # some are of environments of one's own
        monkeypatch.syspath_prepend(str(project.parent))
        groups = tomllib.loads(project.read_text())["project"].get("entry-points", {})
        known += [EntryPoint(name, place, TASKS) for name, place in groups.get(TASKS, {}).items()]
    monkeypatch.setattr(installed, "_points", lambda key: EntryPoints(known))
    assert load_experiment(path).name == path.parent.name


def test_a_duration_that_is_no_number_says_its_unit():
    with pytest.raises(
        ConfigError, match=r"pretrain\.minutes: must be a number of minutes.*'10:00"
    ):
        load_cluster("local", ["pretrain.minutes=10:00:00"])
    with pytest.raises(ConfigError, match=r"pretrain\.log_seconds: must be a number of seconds"):
        load_experiment(TINY, ["pretrain.log_seconds=0:10"])


WALK = """
name: walk
task: {family: gymnasium, env: CartPole-v1, horizon: 10, attributes: {gravity: {uniform: [5, 9]}}}
data: {tasks: 20, trust_horizon: 3}
rows: [SAD]
pretrain: {epochs: 1, batch_size: 4, holdout_tasks: 4}
evaluate: {tasks: 2}
"""


@pytest.mark.parametrize("where", ["make", "attributes"])
@pytest.mark.parametrize("number", [".inf", "-.inf", ".nan", str(2**64), r'"\ud800"'])
def test_what_json_does_not_keep_is_refused(where: str, number: str, tmp_path: Path):
    path = written(tmp_path, "walk.yaml", WALK)
    value = f"{{x: [{number}]}}" if where == "make" else f"{{x: {{choice: [1, [{number}]]}}}}"
    with pytest.raises(ConfigError, match=rf"task\.{where}.*(finite|large|Unicode)") as error:
        load_experiment(path, [f"task.{where}={value}"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("task.attributes={x: {uniform: [-1e308, 1e308]}}", "smaller magnitude"),
        ("task.attributes={x: {normal: [0, 1e305]}}", "smaller magnitude"),
        ("task.attributes={x: {integers: [0, 9007199254740993]}}", "smaller magnitude"),
        ("task.attributes={x: {choice: [1, 1.0]}}", "differ from one another"),
        ("task.attributes={x: {choice: [[1, 2], [1.0, 2]]}}", "differ from one another"),
    ],
)
def test_laws_whose_tasks_are_no_numbers_or_the_same_are_refused(
    override: str, said: str, tmp_path: Path
):
    path = written(tmp_path, "walk.yaml", WALK)
    with pytest.raises(ConfigError, match=said):
        load_experiment(path, [override])


@pytest.mark.parametrize("key", ["make={gravity: 1}", "attributes={gravity: {uniform: [0, 1]}}"])
def test_a_parameter_has_one_place(key: str, tmp_path: Path):
    path = written(tmp_path, "walk.yaml", WALK)
    with pytest.raises(
        ConfigError, match=rf"task\.vary and task\.{key.split('=')[0]} both have gra"
    ):
        load_experiment(
            path, ["task.attributes={}", f"task.{key}", "task.vary={gravity: {uniform: [0, 1]}}"]
        )


@pytest.mark.parametrize("temperature", ["1e-40", "1e-4", "1e4", "1e300", "0"])
@pytest.mark.parametrize("config", ["tests/configs/tiny.yaml", "configs/bernoulli_bandit.yaml"])
def test_a_temperature_that_float32_does_not_bear_is_refused(temperature: str, config: str):
    with pytest.raises(
        ConfigError, match=r"temperature: Input should be (greater|less) than or eq"
    ):
        load_experiment(ROOT / config, [f"evaluate.temperature={temperature}"])
    settings = f"{{evaluate.temperature: {temperature}}}"
    key = "pretrained.rows" if "bernoulli" in config else "rows"
    with pytest.raises(
        ConfigError, match=r"temperature: Input should be (greater|less) than or eq"
    ):
        row = f"{{name: 'SAD, other', method: SAD, set: {settings}}}"
        load_experiment(ROOT / config, [f"{key}=[SAD, {row}]"])


def test_names_that_no_file_can_have_are_refused():
    long = 300 * "x"
    with pytest.raises(ConfigError, match=r"name.*at most 100 characters"):
        load_experiment(TINY, [f"name={long}"])
    with pytest.raises(ConfigError, match=r"name of row 'SAD, xx.*has 305 characters.*at most 100"):
        row = f"{{name: 'SAD, {long}', method: SAD, set: {{model.heads: 1}}}}"
        load_experiment(TINY, [f"rows=[SAD, {row}]"])


@pytest.mark.parametrize("kind", ["pipe", "loop", "NUL", "folder", "not text", "long", "chain"])
def test_a_base_that_cannot_be_read_is_one_line(kind: str, tmp_path: Path):
    base, said = tmp_path / "base.yaml", "cannot read config"
    name = {"NUL": '"a\\0b.yaml"', "long": 300 * "x"}.get(kind, base.name)
    if kind == "pipe":
        os.mkfifo(base)
    elif kind == "loop":
        base.symlink_to(base)
    elif kind == "folder":
        base.mkdir()
    elif kind == "not text":
        base.write_bytes(b"\xff\xfe")
    elif kind == "chain":
        said = "more than 32 config files"
        base.write_text("base: 0.yaml\n")
        for number in range(1200):
            written(tmp_path, f"{number}.yaml", f"base: {number + 1}.yaml\n")
    path = written(tmp_path, "x.yaml", f"base: {name}\n")
    with pytest.raises(ConfigError, match=said) as error:
        load_experiment(path)
    assert "\n" not in str(error.value) and "\0" not in str(error.value)
