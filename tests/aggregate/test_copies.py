"""Result files in a results folder: all values, and room for a table of many rows."""

from dataclasses import replace

import h5py
import numpy as np

from sad_hpc.aggregate.copies import copy_results
from sad_hpc.evaluate.result_file import read_result

from .synthetic import make_run, write_result

MOST_BYTES = 3 * 2**20
"""What a results folder may have in git."""


def results_of(folder, methods, seeds, n_tasks=500):
    """As many numbers as Darkroom's main table has, and as random."""
    run = make_run(folder, methods=methods, seeds=seeds)
    read = []
    for method, seed in run.experiment.elements:
        generator, shared = np.random.default_rng(len(read)), np.random.default_rng(1000 + seed)
        online = generator.binomial(49, 0.7, (n_tasks, 40))
        modes = [{"values": each, "seen": each} for each in (online[:, :1], online)]
        other = {"ideal": shared.binomial(49, 0.9, online.shape), "optimal": 44 + 0 * online}
        references = {name: {"online": values} for name, values in other.items()}
        path = write_result(run, method, seed, *modes, references=references)
        read.append(read_result(path))
    return read


def test_a_copy_has_all_values_and_the_first_of_a_seed_the_references(tmp_path):
    read = results_of(tmp_path, ["SAD", "DPT"], [0, 1], n_tasks=20)
    order = [(result.method, result.seed) for result in read]
    read[0] = replace(read[0], method="SAD+, history")
    copy_results(read, tmp_path / "copies")
    found = []
    for result, (method, seed) in zip(read, order, strict=True):
        name = "sad_plus_history" if result is read[0] else method.lower()
        copy = read_result(tmp_path / f"copies/{name}-seed{seed}.h5")
        assert (copy.method, copy.seed, copy.signature) == (result.method, seed, result.signature)
        for mode in ("offline", "online"):
            assert np.array_equal(copy.modes[mode].values, result.modes[mode].values)
            assert np.array_equal(copy.modes[mode].context_rewards,
                                  result.modes[mode].context_rewards)  # fmt: skip
        for values in copy.modes["online"].references.items():
            found.append((seed, values[0]))
            assert np.array_equal(values[1], result.modes["online"].references[values[0]])
        with h5py.File(tmp_path / f"copies/{name}-seed{seed}.h5") as file:
            assert file.attrs["config"] == "{}" and list(file["tasks"]) == ["index", "parameters"]
    assert sorted(found) == [(seed, name) for seed in (0, 1) for name in ("ideal", "optimal")]


def test_other_values_of_a_reference_are_kept(tmp_path):
    read = results_of(tmp_path, ["SAD", "DPT"], [0], n_tasks=20)
    read[1].modes["online"].references["ideal"][0, 0] += 1
    copy_results(read, tmp_path / "copies")
    copies = [read_result(tmp_path / f"copies/{name}-seed0.h5") for name in ("sad", "dpt")]
    assert [list(copy.modes["online"].references) for copy in copies] == [
        ["ideal", "optimal"], ["ideal"],
    ]  # fmt: skip


def test_ten_rows_of_four_seeds_leave_room_for_pictures(tmp_path):
    read = results_of(tmp_path, ["SAD"], range(4))
    many = [replace(each, method=f"SAD, {row}") for row in range(10) for each in read]
    copy_results(many, tmp_path / "copies")
    total = sum(path.stat().st_size for path in (tmp_path / "copies").iterdir())
    assert len(list((tmp_path / "copies").iterdir())) == 40
    assert total < 0.7 * MOST_BYTES
