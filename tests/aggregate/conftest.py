"""Results folders that several files of tests read."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from sad_hpc.aggregate.stage import aggregate

from .synthetic import fill, make_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three methods and seeds with `results`; tests must not change it."""
    folder = tmp_path_factory.mktemp("finished")
    run = make_run(folder)
    fill(run)
    aggregate(run, folder / "results")
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of two methods and one seed; tests spoil copies of it."""
    folder = tmp_path_factory.mktemp("made")
    run = make_run(folder, rows=["SAD", "DPT"], seeds=[0])
    fill(run)
    return aggregate(run, folder / "results")


@pytest.fixture
def unrendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are saved as one pixel: rendering takes half of the time of a page."""

    def one_pixel(figure: Figure, file: Any, **options: Any) -> None:
        Image.new("RGB", (1, 1)).save(file, format="png")

    monkeypatch.setattr(Figure, "savefig", one_pixel)
