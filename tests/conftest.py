"""Fixtures for all tests: a tiny experiment and its dataset."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Two DeepSpeed ranks or several tests at once must not fight for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Results must not depend on the job in which the tests themselves run.
for _name in [name for name in os.environ if name.startswith("SLURM_")]:
    del os.environ[_name]

from sad_hpc.collect.stage import collect  # noqa: E402 (the environment is read at import)
from sad_hpc.experiment.load import load_experiment  # noqa: E402
from sad_hpc.storage.json_files import write_json  # noqa: E402
from sad_hpc.storage.provenance import portable, provenance  # noqa: E402
from sad_hpc.storage.run import Run  # noqa: E402

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tests/configs/tiny.yaml"
settings.register_profile("seeded", derandomize=True, deadline=None, database=None, max_examples=50)
settings.load_profile("seeded")
FIGURES = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--figures FILE`, for results/."""
    parser.addoption("--figures", metavar="FILE", help="write what the tests measured to FILE")


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's
def pytest_testnodedown(node: Any) -> None:
    """Takes the figures of a worker that ends; one that crashed has none."""
    all_figures = node.config.stash.setdefault(FIGURES, {})
    all_figures.update(getattr(node, "workeroutput", {}).get("figures", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the figures, where they are wanted; a worker hands them on."""
    path = session.config.getoption("--figures")
    figures = session.config.stash.get(FIGURES, {})
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["figures"] = figures
    elif path and not session.config.option.collectonly:
        counts = {"tests": session.testscollected, "failed": session.testsfailed}
        origin = portable(provenance())
        write_json(Path(path), {**counts, "figures": figures, "provenance": origin})


def committed(pattern: str) -> list[Path]:
    """The files of the repository that match a pattern, such as `results/*/summary.csv`.

    Results of `make pipeline` lie beside them, and are the user's.
    """
    listing = subprocess.run(
        ["git", "ls-files", "-z", f":(glob){pattern}"], cwd=ROOT, capture_output=True, text=True
    )
    if listing.returncode:  # no checkout, such as an unpacked sdist
        return sorted(ROOT.glob(pattern))
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def clockless_metrics(folder: Path) -> list[dict[str, float]]:
    """Every epoch's metrics of a model's folder, less those that depend on the clock."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    clock = {"seconds", "tokens_per_second"}
    return [{k: v for k, v in json.loads(line).items() if k not in clock} for line in lines]


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Figures that a test measured, for the report of the session."""
    all_figures = request.config.stash.setdefault(FIGURES, {})
    return all_figures.setdefault(request.node.name, {})


@pytest.fixture(autouse=True)
def _no_rendezvous_left() -> Iterator[None]:
    """A test that trains in this process leaves no trace for later child processes."""
    yield
    forget_rendezvous()


def forget_rendezvous() -> None:
    """Remove torch's variables: child processes would join a rendezvous that is not theirs."""
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    for name in names:
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The tiny experiment with its dataset collected; tests must not change it."""
    run = Run(load_experiment(TINY), tmp_path_factory.mktemp("runs"))
    collect(run)
    return run


def with_data_of(other: Run, own: Run) -> Run:
    """`own` with a folder that has the dataset of `other`, which it must not change."""
    own.path.mkdir(parents=True)
    (own.path / "data").symlink_to(other.path / "data")
    return own


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[str], None]]]:
    """A file system of 256 KiB, and a function that gives it another size."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a small tmpfs needs root")

    mount("size=256k")
    yield folder, lambda size: mount(f"remount,size={size}")
    # Lazy: a stage that failed may still have files open.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
