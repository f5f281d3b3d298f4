"""A real Slurm for the tests in this folder, started once per session by slurm/dev_cluster.sh."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.pipeline import LAUNCHERS, LONGER, Pipeline

DEV_CLUSTER = Path(__file__).resolve().parents[2] / "slurm" / "dev_cluster.sh"
CANNOT_RUN_HERE = 3  # dev_cluster.sh's exit status when root or a package is missing


@pytest.fixture(scope="session")
def dev_cluster() -> Iterator[dict[str, str]]:
    """The environment of a client of a cluster of four nodes of one CPU."""
    with cluster(nodes=4, cpus=1) as env:
        yield env


@pytest.fixture(scope="module")
def wide_node() -> Iterator[dict[str, str]]:
    """The environment of a client of a cluster of one node of two CPUs."""
    with cluster(nodes=1, cpus=2) as env:
        yield env


@contextmanager
def cluster(
    nodes: int, cpus: int, enter: Sequence[str] = (), **variables: str
) -> Iterator[dict[str, str]]:
    """os.environ with SLURM_CONF, and with what dev_cluster.sh is told by further variables.

    Skips where the machine lacks root or the Slurm packages, unless SAD_HPC_REQUIRE_CLUSTER=1.

    Args:
        nodes: of the cluster.
        cpus: of each.
        enter: put before a command, has it run where the cluster shall be.
        variables: for dev_cluster.sh, and for the cluster's clients.
    """
    # Under /tmp whatever TMPDIR says: unix sockets allow only a short path.
    folder = tempfile.mkdtemp(prefix="sadc", dir="/tmp")
    env = {**os.environ, "SAD_HPC_DEV_CLUSTER": folder, "SAD_HPC_DEV_CPUS": str(cpus), **variables}
    command = [*enter, DEV_CLUSTER, "up", str(nodes)]
    try:
        up = subprocess.run(command, env=env, capture_output=True, text=True)
        if up.returncode == CANNOT_RUN_HERE and os.environ.get("SAD_HPC_REQUIRE_CLUSTER") != "1":
            pytest.skip(up.stderr.strip())
        if up.returncode != 0:
            pytest.fail(f"dev_cluster.sh up {nodes} (status {up.returncode}):\n{up.stderr}")
        yield {**env, "SLURM_CONF": up.stdout.strip().removeprefix("export SLURM_CONF=")}
    finally:
        subprocess.run([*enter, DEV_CLUSTER, "down"], env=env, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_launcher_left() -> Iterator[None]:
    """Ends the launchers of a test that failed while they waited for jobs."""
    yield
    while LAUNCHERS:
        LAUNCHERS.pop().kill()


@pytest.fixture
def pipeline(dev_cluster: dict[str, str], tmp_path: Path) -> Pipeline:
    """One that a test may disturb."""
    return Pipeline(dev_cluster, tmp_path)


@pytest.fixture(scope="session")
def undisturbed(dev_cluster: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A pipeline like `pipeline` that ran to its end without a disturbance."""
    calm = Pipeline(dev_cluster, tmp_path_factory.mktemp("undisturbed"))
    calm.finish()
    return calm


@pytest.fixture(scope="session")
def longer_undisturbed(
    dev_cluster: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """One whose training takes a minute or more."""
    calm = Pipeline(dev_cluster, tmp_path_factory.mktemp("longer"), *LONGER)
    calm.finish()
    return calm
