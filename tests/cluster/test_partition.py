"""A network failure between Slurm's controller and a busy node."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.conftest import cluster
from tests.cluster.pipeline import LONGER, Pipeline, wait_until
from tests.conftest import ROOT
from tests.network import INTERFACE, LIFETIME, Network, joined

pytestmark = [pytest.mark.cluster, pytest.mark.stress]

FAR = "node3"
"""The last of the cluster's nodes: Slurm sends jobs there first."""


@dataclass(frozen=True)
class FarCluster:
    """A cluster of three nodes on two machines: the last node has one of its own."""

    network: Network
    env: dict[str, str]
    """Environment of a client."""
    enter: list[str]
    """Put before a command, has it run where the cluster is."""


@pytest.fixture(scope="module")
def far_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarCluster]:
    with joined() as network, with_own_names(network, tmp_path_factory.mktemp("names")) as enter:
        far = f"{network.address(0)} {network.address(1)} {network.file(1)}"
        variables = {"SAD_HPC_DEV_FAR": far, "GLOO_SOCKET_IFNAME": INTERFACE}
        with cluster(3, 1, enter, **variables) as env:
            yield FarCluster(network, env, enter)


@contextmanager
def with_own_names(network: Network, folder: Path) -> Iterator[list[str]]:
    """Yield the prefix that runs a command on machine 0, with an /etc/hosts of its own: other
    clusters of this machine have nodes of the same names."""
    hosts = folder / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")
    script = f"mount --bind {hosts} /etc/hosts && echo ready && exec sleep {LIFETIME}"
    command = [*network.inside(0), "unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            if holder.stdout.readline() != "ready\n":
                pytest.skip("this kernel gives no mount namespaces")
            of = f"/proc/{holder.pid}/ns"
            yield ["nsenter", f"--net={of}/net", f"--mount={of}/mnt", f"--wd={ROOT}"]
        finally:
            holder.kill()


@pytest.mark.parametrize("stage", ["pretrain", "evaluate"])
def test_a_job_whose_node_is_cut_off_starts_again_elsewhere(
    far_cluster: FarCluster,
    tmp_path: Path,
    longer_undisturbed: Pipeline,
    figures: dict[str, float],
    stage: str,
) -> None:
    """Jobs on the cut nodes continue for a while, or to their end, on the same files."""
    network = far_cluster.network
    pipeline = Pipeline(far_cluster.env, tmp_path, *LONGER, enter=far_cluster.enter)
    launcher = pipeline.launch("--wait")
    pipeline.wait_until_half_done(stage)
    nodes = {rank.environ()["SLURMD_NODENAME"] for rank in pipeline.ranks(stage)}
    assert FAR in nodes
    network.cut()
    cut = time.monotonic()
    try:
        wait_until(lambda: pipeline.node_state(FAR).startswith("down"), f"Slurm misses {FAR}")
        pipeline.finish(launcher)
        figures[f"seconds from the cut in {stage} to the tables"] = round(time.monotonic() - cut, 1)
    finally:
        network.heal()
    assert "Restarts=0" not in pipeline.shown(stage)
    pipeline.same_as(longer_undisturbed)
    wait_until(lambda: pipeline.node_state(FAR) == "idle", f"{FAR} is back")
