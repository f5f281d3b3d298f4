"""Any config survives a round trip to a file, or is refused in one line."""

import re
import shlex
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sad_hpc.errors import ConfigError
from sad_hpc.experiment import plain_yaml
from sad_hpc.experiment.config import read_yaml
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.launch.cluster import (
    ELSEWHERE,
    LEGAL_BEGINNINGS,
    OTHER_MEANING,
    OWNED,
    ClusterConfig,
    load_cluster,
)
from sad_hpc.launch.executor import StageExecutor
from sad_hpc.launch.graph import STAGES
from sad_hpc.storage.run import Run
from tests.conftest import TINY

pytestmark = pytest.mark.faults

TREE = read_yaml(TINY)
SECTIONS = [name for name in TREE if isinstance(TREE[name], dict)]
KEYS = [f"{name}.{key}" for name in SECTIONS for key in TREE[name]] + ["name", "rows", "seeds"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.fixed_dictionaries(
        {
            "data.tasks": st.integers(200, 10**9),
            "data.block_tasks": st.just(2**16),  # few enough files for all of these
            "data.trust_horizon": st.integers(1, 10**6),
            "data.discount": st.floats(0.01, 0.99),
            "model.heads": st.integers(1, 64),
            "model.dropout": st.floats(0, 0.99),
            "pretrain.learning_rate": st.floats(1e-12, 1e3),
            "seeds": st.lists(st.integers(0, 2**31), min_size=1, max_size=5, unique=True),
        }
    )
)
def test_a_config_that_is_written_and_read_is_the_same(values: dict[str, Any]) -> None:
    experiment = load_experiment(TINY, [f"{key}={value!r}" for key, value in values.items()])
    dumped = experiment.model_dump(mode="json")
    again = parse_experiment(plain_yaml.parse(plain_yaml.written(dumped)), "again")
    assert again == experiment
    assert again.evaluate_signature("SAD", 0) == experiment.evaluate_signature("SAD", 0)
    assert dumped["pretrain"]["learning_rate"] == values["pretrain.learning_rate"]
    assert dumped["data"]["discount"] == values["data.discount"]


@given(st.sampled_from(KEYS), VALUES)
def test_any_value_is_taken_as_it_is_or_refused_in_one_line(key: str, value: Any) -> None:
    tree = read_yaml(TINY)
    section, _, name = key.rpartition(".")
    (tree[section] if section else tree)[name] = value
    try:
        experiment = parse_experiment(tree, "made-up.yaml")
    except ConfigError as error:
        assert "\n" not in str(error) and "made-up.yaml" in str(error)
    else:
        dumped = experiment.model_dump(mode="json")
        assert (dumped[section] if section else dumped)[name] == value


@given(st.text(max_size=40))
def test_any_override_is_taken_or_refused_in_one_line(text: str) -> None:
    try:
        load_experiment(TINY, [text])
    except ConfigError as error:
        assert "\n" not in str(error)


FRAGMENTS = st.sampled_from(
    ["[", "{", "- ", "? ", ": ", "&a ", "*a", "!t ", "\n", "'", '"', "\\", "|\n", "#", "]", "}",
     "---\n", '"\\ud800"', ".inf", "1" * 500, "1e999", "<<", "base", "pretrained", "task", "\0"]
)  # fmt: skip
TEXTS = st.lists(FRAGMENTS | st.sampled_from(SECTIONS) | st.text(max_size=4), max_size=30).map(
    "".join
)


@given(st.sampled_from([*KEYS, *SECTIONS, "recipes", "pretrained"]), TEXTS)
def test_any_text_of_a_key_is_taken_or_refused_in_one_line(key: str, text: str) -> None:
    try:
        load_experiment(TINY, [f"{key}={text}"])
    except ConfigError as error:
        assert "\n" not in str(error).replace(text, "")


@given(TEXTS, st.booleans())
def test_any_file_is_taken_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, alone: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.yaml"
    path.write_bytes((text if alone else TINY.read_text() + text).encode())
    try:
        load_experiment(path)
    except ConfigError as error:
        assert "\n" not in str(error)


STRINGS = ["partition", "account", "qos", "mpi", "sbatch.reservation", "sbatch.constraint"]
HOSTILE = st.lists(
    st.sampled_from(
        ["\n", "\r", ";", "$(id)", "`id`", "'", '"', "\\", " ", "#SBATCH --wrap=x", "a"]
    )
    | st.text(string.printable, max_size=3),
    max_size=6,
).map("".join)


def shell_lines(cluster: ClusterConfig, stage: str) -> list[str]:
    """Return the lines of a stage's script without comments."""
    run = Run(load_experiment(TINY), Path("runs"))
    script = StageExecutor(run, cluster, stage, stage, None).script()
    return [line for line in script.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("field", STRINGS)
@given(text=HOSTILE, stage=st.sampled_from(STAGES))
def test_no_string_of_the_cluster_settings_reaches_a_shell(
    field: str, text: str, stage: str
) -> None:
    harmless = load_cluster("slurm", [])
    tree: dict[str, Any] = harmless.model_dump(mode="json")
    section, _, key = field.rpartition(".")
    (tree[section] if section else tree)[key] = text
    try:
        cluster = ClusterConfig.model_validate(tree)
    except ValueError:
        return
    expected = shell_lines(harmless, stage)
    if field == "mpi" and stage == "collect":
        expected = [line.replace("--mpi=pmi2", f"--mpi={text}") for line in expected]
    assert shell_lines(cluster, stage) == expected


LISTS = ["rows", "seeds", "pretrain.trackers", "setup"]


@given(st.sampled_from(LISTS), st.from_regex(r"[A-Za-z0-9*]{1,8}", fullmatch=True))
def test_a_value_without_brackets_is_shown_with_them(key: str, text: str) -> None:
    """The text that the message proposes is a list for that key."""
    load: Any = load_experiment if key != "setup" else load_cluster
    source = TINY if key != "setup" else "slurm"
    prefix = "cluster." if key == "setup" else ""
    with pytest.raises(ConfigError) as caught:
        load(source, [f"{key}={text}"])
    (advice,) = re.findall(r"must be a list: write (.+)", str(caught.value))
    (override,) = shlex.split(advice)
    written, _, value = override.partition("=")
    assert written == prefix + key
    assert isinstance(plain_yaml.parse(value), list)
    try:
        load(source, [override.removeprefix(prefix)])
    except ConfigError as error:
        assert "must be a list" not in str(error)


def test_a_list_below_a_key_with_dots_is_shown_alone() -> None:
    rows = [{"method": "SAD", "grid": {"model.heads": 3}}]
    with pytest.raises(ConfigError, match=r"grid.model.heads: must be a list: write '\[3\]'"):
        parse_experiment({**TREE, "rows": rows}, "test")


@given(
    st.sampled_from([*ELSEWHERE, *OWNED, *OTHER_MEANING]),
    st.integers(1, 30),
    st.sampled_from(["", "pretrain."]),
)
def test_no_beginning_of_an_option_changes_what_a_submission_does(
    option: str, length: int, section: str
) -> None:
    """sbatch takes `--hol` for `--hold`."""
    key = option[:length]
    if key not in LEGAL_BEGINNINGS:
        with pytest.raises(ConfigError, match=f"'{key}' (is not supported|is set by)"):
            load_cluster("slurm", [f"{section}sbatch={{{key}: x}}"])


@given(
    st.sampled_from(
        [
            "constraint",
            "reservation",
            "gres",
            "gpus",
            "nodelist",
            "begin",
            "licenses",
            "nice",
            "wckey",
        ]
    )
)
def test_other_options_of_sbatch_are_free(option: str) -> None:
    assert load_cluster("slurm", [f"sbatch={{{option}: x}}"]).sbatch == {option: "x"}
