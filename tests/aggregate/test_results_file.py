"""results.h5: all values of an experiment, each array stored once, without external links."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sad_hpc.aggregate.results_file import (
    RESULTS,
    ExperimentResults,
    RowFacts,
    SeedResult,
    read_results,
    write_results,
)
from sad_hpc.errors import UserError
from sad_hpc.evaluate.result import MODES, Result

from .synthetic import mode_result

MOST_BYTES = 3 * 2**20
"""Largest results.h5 of an experiment with ten rows of four seeds."""


def made(rows: list[str], seeds: range, n_tasks: int = 500, row_noise: bool = True):
    """Return results with as many numbers as Darkroom's main table has, as random as there."""
    found = []
    for number, row in enumerate(rows):
        for seed in seeds:
            own = np.random.default_rng([seed, number if row_noise else 0])
            shared = np.random.default_rng(1000 + seed)
            online = own.binomial(49, 0.7, (n_tasks, 40))
            others = {"Bayes-optimal": shared.binomial(49, 0.9, (n_tasks, 40))}
            others["optimal"] = 44 + 0 * online
            modes = {
                "offline": mode_result(online[:, :1], {}, seen=online[:, :1]),
                "online": mode_result(online, others, seen=online, headline=10),
            }
            counted = others["Bayes-optimal"].astype(np.int32)
            modes["online"].reference_context_rewards["Bayes-optimal"] = counted
            tasks = {"index": np.arange(n_tasks), "parameters": np.zeros((n_tasks, 2), np.int16)}
            names = Path(RESULTS), row, seed, "darkroom", f"{number}-{seed}"
            result = Result(*names, modes, tasks=tasks)
            epochs = np.arange(1, 4, dtype=np.int32)
            curves = {"epochs": epochs, "holdout_loss": np.float32(1 / epochs)}
            found.append(SeedResult(result, "abc", curves))
    facts = {row: RowFacts(row, "SAD", {"data.trust_horizon": 7}, 0.8, 49.0, 139.0) for row in rows}
    texts = ("darkroom", "Darkroom", "Darkroom", "darkroom", 49, True, [], {"name": "darkroom"})
    return ExperimentResults(*texts, missing=[("DPT", 3)], rows=facts, seeds=found)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_results(tmp_path / RESULTS, made(["SAD+", "SAD"], range(2), n_tasks=20))
    return tmp_path / RESULTS


def test_reads_back_what_was_written(path: Path):
    written, found = made(["SAD+", "SAD"], range(2), n_tasks=20), read_results(path)
    assert list(found.rows) == ["SAD+", "SAD"] and found.rows == written.rows
    for name in ("experiment", "title", "task_family", "horizon", "config", "missing", "sweep"):
        assert getattr(found, name) == getattr(written, name)
    for one, other in zip(found.seeds, written.seeds, strict=True):
        assert (one.result.row, one.result.seed) == (other.result.row, other.result.seed)
        assert (one.result.signature, one.commit) == (other.result.signature, "abc")
        assert np.array_equal(one.result.tasks["index"], other.result.tasks["index"])
        assert list(one.training) == ["epochs", "holdout_loss"]
        for name, curve in other.training.items():
            assert np.array_equal(one.training[name], curve)
        for mode in MODES:
            own, wanted = one.result.modes[mode], other.result.modes[mode]
            assert own.measure == wanted.measure and (own.steps == wanted.steps).all()
            assert (own.values == wanted.values).all()
            assert (own.context_rewards == wanted.context_rewards).all()
            assert own.references.keys() == wanted.references.keys()
            for name, values in wanted.references.items():
                assert (own.references[name] == values).all()
            counted = own.reference_context_rewards
            assert counted.keys() == wanted.reference_context_rewards.keys()


def test_plain_h5py_reads_rows_and_references(path: Path):
    with h5py.File(path) as file:
        assert file["rows/sad_plus"].attrs["row"] == "SAD+"
        online = file["rows/sad_plus/seeds/1/online"]
        assert online.attrs["metric"] == "return" and online["values"].shape == (20, 40)
        learner = file["references/Bayes-optimal/seeds/1/online"]
        assert learner["values"] == online["references/Bayes-optimal/values"]


def test_equal_arrays_are_stored_once(tmp_path: Path):
    write_results(tmp_path / "one.h5", made(["SAD"], range(1)))
    write_results(tmp_path / "ten.h5", made([f"SAD, N = {n}" for n in range(10)], range(1),
                                            row_noise=False))  # fmt: skip
    one, ten = ((tmp_path / name).stat().st_size for name in ("one.h5", "ten.h5"))
    assert ten < 2 * one


def test_ten_rows_of_four_seeds_leave_room_for_pictures(tmp_path: Path):
    write_results(tmp_path / RESULTS, made([f"SAD, N = {n}" for n in range(10)], range(4)))
    assert (tmp_path / RESULTS).stat().st_size < 0.8 * MOST_BYTES


def _replaced(name: str, value: object):
    def damage(file: h5py.File) -> None:
        del file[name]
        file[name] = value

    return damage


def _attribute(place: str, name: str, value: object):
    return lambda file: file[place].attrs.__setitem__(name, value)


SEED = "rows/sad/seeds/0"
DAMAGE = [
    _attribute("/", "format_version", 7),
    _attribute("/", "config", "[" * 10**5),
    _attribute("/", "config", "3"),
    _attribute("/", "horizon", "49"),
    _attribute("rows/sad", "label_accuracy", 0.9),
    _attribute("rows/sad", "row", "DPT"),
    _attribute(SEED, "signature", "other"),
    _attribute(f"{SEED}/online", "headline", 99),
    _replaced(f"{SEED}/online/values", np.zeros((20, 40), np.float32)),
    _replaced(f"{SEED}/online/values", np.zeros((3, 40), np.float32)),
    _replaced(f"{SEED}/online/values", h5py.ExternalLink("other.h5", "/x")),
    _replaced(f"{SEED}/online/steps", h5py.SoftLink("/rows")),
    _replaced(f"{SEED}/training/holdout_loss", np.zeros(2, np.float32)),
    _replaced("rows", np.zeros(3)),
    lambda file: file.pop("rows"),
    lambda file: file.pop(f"{SEED}/offline"),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_changed_file_is_one_line_that_names_it(path: Path, damage) -> None:
    with h5py.File(path, "a") as file:
        damage(file)
    with pytest.raises(UserError) as caught:
        read_results(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_changed_bytes_are_refused_or_without_effect(path: Path, data: st.DataObject) -> None:
    before, wanted = path.read_bytes(), read_results(path)
    content = bytearray(before)
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        found = read_results(path)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert replace(found, seeds=[]) == replace(wanted, seeds=[])
        for one, other in zip(found.seeds, wanted.seeds, strict=True):
            assert (one.result.modes["online"].values == other.result.modes["online"].values).all()
    path.write_bytes(before)
