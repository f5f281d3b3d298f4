"""What all tests share: a tiny experiment, and one dataset of it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Two DeepSpeed ranks or several tests at once must not fight for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Results must not depend on the job in which the tests themselves run.
for _name in [name for name in os.environ if name.startswith("SLURM_")]:
    del os.environ[_name]

from sad_hpc.collect import collect  # noqa: E402 (the environment is read at import)
from sad_hpc.experiment_file import load_experiment  # noqa: E402
from sad_hpc.run import Run  # noqa: E402

ROOT = Path(__file__).parent.parent
TINY = ROOT / "tests/configs/tiny.yaml"


@pytest.fixture(autouse=True)
def _no_rendezvous_left() -> Iterator[None]:
    """A test that trains in this process sets torch's variables; later child processes would join
    a rendezvous that is not theirs."""
    yield
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    for name in names:
        os.environ.pop(name, None)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The tiny experiment with its dataset collected; tests must not change it."""
    run = Run(load_experiment(TINY), tmp_path_factory.mktemp("runs"))
    collect(run)
    return run
