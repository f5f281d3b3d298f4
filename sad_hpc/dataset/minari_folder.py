"""Checks of a Minari dataset's folder before Minari reads it.

The dataset can be untrusted.  Minari follows links and external storage to any readable file.  If
the metadata have no spaces, Minari makes the environment that they name.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import h5py
from pydantic import Field

from sad_hpc.dataset.interchange import minari_library
from sad_hpc.errors import UserError
from sad_hpc.storage.files import lies_in
from sad_hpc.storage.hdf5 import check_inside
from sad_hpc.storage.json_files import parse_json, typed


@dataclass(frozen=True)
class _Metadata:
    """Required entries of metadata.json."""

    observation_space: str
    action_space: str
    data_format: str
    total_episodes: Annotated[int, Field(ge=0, le=10**7)]


def inside(value: Any, words: list[str]) -> Any:
    """Return the value under nested keys of untrusted mappings, or None."""
    for word in words:
        value = value.get(word) if isinstance(value, dict) else None
    return value


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Convert errors of Minari in this context to an error of one line with the dataset's path.

    Raises:
        UserError: Minari cannot read the dataset.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # Minari and its libraries raise errors of any kind
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"cannot read the Minari dataset at {path}: {reason:.300}") from error


def opened(path: Path) -> Any:
    """Open the Minari dataset in a folder, and check that all its data are in the folder.

    Raises:
        UserError: dataset or Minari are missing, or a file links out of the folder.
        Exception: see `readable`.
    """
    minari, data = minari_library(), path / "data"
    if not data.is_dir():
        raise UserError(
            f"no Minari dataset at {path}: give the folder of one, such as "
            "my-datasets/darkroom-train-v0"
        )
    for folder, folders, files in os.walk(data):
        for name in (*folders, *files):
            _check_file(Path(folder) / name, path)
    if typed(_Metadata, parse_json(data / "metadata.json")) is None:
        raise UserError(f"{data / 'metadata.json'} lacks spaces or the number of episodes")
    return minari.MinariDataset(data)


def _check_file(file: Path, dataset: Path) -> None:
    """Check that a file does not link out of its dataset and is not a pipe or a device."""
    if not (file.is_file() or file.is_dir()) or not lies_in(file, dataset):
        raise UserError(f"{file} is not a file of this dataset but a link or a pipe: remove it")
    if file.suffix == ".hdf5":
        try:
            with h5py.File(file, "r") as content:
                check_inside(content)
        except (OSError, RuntimeError, TypeError, ValueError, KeyError) as error:
            raise UserError(
                f"cannot read the Minari dataset at {dataset}: {file}: "
                f"{' '.join(str(error).split()):.300}"
            ) from None
