"""A results folder that several files of tests read."""

from pathlib import Path

import pytest

from sad_hpc.aggregate.stage import aggregate

from .synthetic import fill, make_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder that aggregate made of synthetic evaluations; tests spoil copies of it."""
    folder = tmp_path_factory.mktemp("made")
    run = make_run(folder, rows=["SAD", "DPT"], seeds=[0])
    fill(run)
    return aggregate(run, folder / "results")
