"""Datasets of an untrusted file: numbers that lie in it, or an error."""

import resource
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from sad_hpc.storage.hdf5 import read_numbers


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((4,), "u1")
    layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
    file.create_virtual_dataset("x", layout)


@pytest.mark.parametrize(
    "attack, words",
    [
        (lambda f: f.create_dataset("x", (10**13,), "u1", chunks=(1000,)), "would take"),
        (lambda f: f.create_dataset("x", (10**13,), "u1"), "would take"),
        (
            lambda f: f.create_dataset(
                "x", data=np.zeros(10**8, "u1"), chunks=True, compression="gzip"
            ),
            "would take",
        ),
        (
            lambda f: f.create_dataset(
                "x", (1,), "u1", maxshape=(None,), chunks=(2**30,), compression="gzip"
            ),
            "would take",
        ),
        (lambda f: f.create_dataset("x", (9,), "u1", external=[("other", 0, 9)]), "another file"),
        (virtual, "another file"),
        (lambda f: f.__setitem__("x", h5py.ExternalLink("other.h5", "x")), "another file"),
        (lambda f: f.create_dataset("x", data=["import os"]), "no numbers"),
        (lambda f: f.create_dataset("x", (3,), h5py.ref_dtype), "no numbers"),
        (lambda f: f.create_group("x"), "no numbers"),
    ],
)
def test_what_is_no_array_of_this_file_is_refused(
    tmp_path: Path, attack: Callable[[h5py.File], object], words: str
) -> None:
    (tmp_path / "other").write_bytes(b"a secret.")
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = np.arange(4, dtype="u1")
    with h5py.File(tmp_path / "file.h5", "w") as file:
        attack(file)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with h5py.File(tmp_path / "file.h5", "r") as file, pytest.raises(ValueError, match=words):
        read_numbers(file, "x")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 50_000, f"{grown:,} KiB"


def test_numbers_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("g/x", data=np.zeros(10**6), compression="gzip")
        assert read_numbers(file, "g/x").shape == (10**6,)
        assert read_numbers(file["g"], "x").dtype == np.float64
        with pytest.raises(KeyError):
            read_numbers(file, "g/y")


def test_images_alone_may_be_compressed_to_a_two_hundredth(tmp_path: Path) -> None:
    images = np.zeros((4, 20, 1000, 1000, 1), np.uint8)
    with h5py.File(tmp_path / "file.h5", "w") as file:
        for name, array in {"images": images, "numbers": images.reshape(80, -1)}.items():
            file.create_dataset(name, data=array, compression="gzip", compression_opts=1)
    with h5py.File(tmp_path / "file.h5", "r") as file:
        assert read_numbers(file, "images").shape == images.shape
        with pytest.raises(ValueError, match="numbers would take"):
            read_numbers(file, "numbers")
