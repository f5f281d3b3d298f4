import os
import signal

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sad_hpc.errors import UserError
from sad_hpc.evaluate import result_file
from sad_hpc.evaluate.result_file import read_result
from tests.aggregate.synthetic import make_run, write_result
from tests.patience import HUNG

ONE = {"values": np.ones((4, 1))}
MANY = {"values": np.ones((4, 6)), "headline": 2}


@pytest.fixture
def path(tmp_path):
    references = {"optimal": {"offline": 2 * np.ones((4, 1))}}
    return write_result(make_run(tmp_path), "DPT*", 1, ONE, MANY, references=references)


def test_reads_back_what_was_written(path):
    result = read_result(path)
    assert (result.row, result.seed, result.task_family) == ("DPT*", 1, "darkroom")
    assert result.modes["online"].measure.headline == 2
    assert result.modes["online"].values.shape == (4, 6)
    assert result.modes["offline"].references["optimal"].tolist() == [[2.0]] * 4
    assert result.modes["online"].references == {}


def test_steps_and_contexts_of_references_are_read_back(tmp_path):
    many = {**MANY, "steps": [1, 2, 5, 10, 20, 50], "seen": np.ones((4, 6))}
    references = {"ideal": {"online": 3 * np.ones((4, 6))}, "random": {"online": np.ones((4, 6))}}
    run = make_run(tmp_path)
    path = write_result(run, "SAD", 0, ONE, many, references=references)
    first = read_result(path)
    counted = np.arange(24, dtype=np.int32).reshape(4, 6)
    ideal = first.modes["online"].with_reference("ideal", 2 * np.ones((4, 6), np.float32), counted)
    tasks = {"index": np.arange(4)}
    attributes = {"signature": "s", "config": {}, "method": "SAD", "seed": 0, "task_family": "d"}
    modes = first.modes | {"online": ideal}
    result_file.write_result(path, attributes, tasks, modes)
    found = read_result(path).modes
    assert found["online"].steps.tolist() == [1, 2, 5, 10, 20, 50]
    assert (found["online"].references["ideal"] == 2).all()
    assert (found["online"].reference_context_rewards["ideal"] == counted).all()
    assert set(found["online"].reference_context_rewards) == {"ideal"}
    assert (found["online"].mask("reward_seen", "ideal") == (counted > 0)).all()
    assert found["online"].mask("reward_seen", "random").all()
    with h5py.File(path, "a") as file:
        file["references/ideal/online_context_rewards"][0, 0] = 1
    with pytest.raises(UserError, match="was altered"):
        read_result(path)


def test_modes_are_read_back_whatever_their_order(path):
    first = read_result(path).modes
    tasks = {"index": np.arange(4)}
    attributes = {"signature": "s", "config": {}, "method": "SAD", "seed": 0, "task_family": "d"}
    modes = {"online": first["online"], "lengths": first["offline"], "offline": first["offline"]}
    result_file.write_result(path, attributes, tasks, modes)
    assert list(read_result(path).modes) == ["offline", "online", "lengths"]


def test_subset_needs_counted_rewards(tmp_path):
    seen = [[0], [1], [7], [0]]
    path = write_result(make_run(tmp_path), "SAD", 0, {**ONE, "seen": seen}, MANY)
    modes = read_result(path).modes
    assert modes["offline"].mask("reward_seen").ravel().tolist() == [False, True, True, False]
    assert modes["offline"].mask("all").all()
    assert modes["online"].subsets == ("all",)


def _set(name, value, group="/"):
    def damage(file):
        file[group].attrs[name] = value

    return damage


def _replace(name, value):
    def damage(file):
        del file[name]
        file[name] = value

    return damage


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_set("format_version", 2), "format 2"),
        (lambda file: file.attrs.pop("format_version"), "no format_version"),
        (lambda file: file.attrs.pop("method"), "incomplete"),
        (lambda file: file.pop("online"), "incomplete"),
        (lambda file: file.pop("offline/values"), "incomplete"),
        (_set("metric", "score", "online"), "unknown online metric 'score'"),
        (_set("higher_is_better", False, "online"), "higher_is_better=False"),
        (_set("headline", 7, "online"), "headline=7"),
        (_set("headline", 0, "online"), "headline=0"),
        (_replace("offline/values", np.array([[1.0], [np.nan]])), "not finite"),
        (_replace("offline/values", np.ones(4)), "shape"),
        (_replace("references/optimal/offline", np.ones((3, 1))), "shape"),
        (lambda file: file.pop("online/steps"), "incomplete"),
        (_replace("online/steps", np.arange(1, 6)), "shape"),
        (_replace("online/steps", np.array([1, 2, 2, 4, 5, 6])), "steps that do not ascend"),
        (_replace("online/steps", np.arange(6)), "steps that do not ascend"),
        (_replace("online/steps", np.arange(2, 8)), "was altered"),
    ],
)
def test_unusable_file_is_named_with_reason_and_way_out(path, damage, reason):
    with h5py.File(path, "a") as file:
        damage(file)
    with pytest.raises(UserError, match=reason) as caught:
        read_result(path)
    assert str(path) in str(caught.value)
    assert "sad-hpc evaluate" in str(caught.value)
    assert "\n" not in str(caught.value)


ATTRIBUTES = [
    *(("/", n) for n in ("format_version", "method", "seed", "task_family", "signature", "digest")),
    *(("online", name) for name in ("metric", "axis", "headline", "higher_is_better")),
]
VALUES = st.one_of(
    st.floats(),
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=9),
    st.lists(st.floats(), max_size=3).map(np.array),
    st.lists(st.sampled_from(["darkroom", "SAD"]), max_size=2),
    st.sampled_from([h5py.Empty("f"), h5py.Empty("S5"), np.bytes_(b"DPT*"), np.bool_([True] * 2)]),
)


@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sampled_from(ATTRIBUTES), VALUES)
def test_any_attribute_is_read_as_one_value_or_refused(path, place, value):
    group, name = place
    with h5py.File(path, "a") as file:
        before = file[group].attrs.get(name)
        file[group].attrs[name] = value
    try:
        result = read_result(path)
    except UserError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert np.isscalar(value)
        for read in (result.row, result.task_family, result.signature):
            assert type(read) is str
        assert (type(result.seed), type(result.modes["online"].measure.headline)) == (int, int)
    with h5py.File(path, "a") as file:
        del file[group].attrs[name]
        if before is not None:
            file[group].attrs[name] = before


PLACES = ["offline", "offline/steps", "offline/values", "offline/context_rewards", "references",
          "references/optimal", "references/optimal/offline"]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["external", "soft", "pipe", "null", "scalar", "text", "type"])
def test_nothing_leads_out_of_the_file(path, tmp_path, place, kind):
    other = tmp_path / "other.h5"
    seen = {**ONE, "seen": np.ones((4, 1))}
    references = {"optimal": {"offline": 2 * np.ones((4, 1))}}
    run = make_run(tmp_path)
    path = write_result(run, "DPT*", 1, seen, MANY, references=references)
    read_result(path)
    path.rename(other)
    path = write_result(run, "DPT*", 1, seen, MANY, references=references)
    os.mkfifo(tmp_path / "pipe.h5")
    instead = {
        "external": h5py.ExternalLink(other, place),
        "soft": h5py.SoftLink("/there"),
        "pipe": h5py.ExternalLink(tmp_path / "pipe.h5", place),
        "null": h5py.Empty("f4"),
        "scalar": 3.0,
        "text": np.bytes_(b"text"),
        "type": np.dtype("f4"),
    }
    with h5py.File(path, "a") as file:
        file["there"] = h5py.ExternalLink(other, place)
        del file[place]
        file[place] = instead[kind]
    signal.alarm(int(HUNG))  # ends the tests where one waits for the pipe
    with pytest.raises(UserError) as caught:
        read_result(path)
    signal.alarm(0)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"no HDF5", b""])
def test_file_that_is_not_hdf5(tmp_path, content):
    path = tmp_path / "result.h5"
    path.write_bytes(content)
    with pytest.raises(UserError, match="cannot be read as HDF5"):
        read_result(path)
