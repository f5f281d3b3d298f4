"""A network failure between two ranks of a training on two machines."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sad_hpc.experiment.load import load_experiment
from sad_hpc.storage.run import Run
from tests.conftest import TINY, clockless_metrics, with_data_of
from tests.network import INTERFACE, Network, joined
from tests.patience import HUNG, SOON

pytestmark = [pytest.mark.faults, pytest.mark.stress]  # minutes, on clocks

OVERRIDES = [
    *("rows=[SAD]", "seeds=[0]", "pretrain.batch_size=8", "pretrain.epochs=10"),
    *("pretrain.checkpoint_minutes=0.005", "pretrain.log_seconds=0.1"),
]
SILENCE, RESENDS = 6, 4
"""Seconds of silence, and how often the kernel sends again before it gives up (6.2 s in all)."""
BIN = Path(sys.executable).parent

RANK = f"""
import sys
from datetime import timedelta
from sad_hpc.parallel import connections
connections.SILENCE = timedelta(seconds={SILENCE})
from sad_hpc.cli import run
sys.exit(run())
"""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with joined() as network:
        network.set("ipv4/tcp_retries2", RESENDS)
        yield network


Ranks = list["subprocess.Popen[str]"]


@pytest.fixture
def start(network: Network) -> Iterator[Callable[[Run], Ranks]]:
    """Starts the two ranks of a training, one on each machine."""
    started: Ranks = []

    def start(run: Run) -> Ranks:
        network.heal()
        command = [sys.executable, "-c", RANK, "pretrain", str(TINY), *OVERRIDES]
        port = str(20_000 + len(started))
        for rank in (0, 1):
            variables = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
            variables |= {"MASTER_ADDR": network.address(0), "MASTER_PORT": port}
            started.append(
                subprocess.Popen(
                    [*network.inside(rank), *command, "--runs", str(run.runs)],
                    env={**os.environ, **variables, "GLOO_SOCKET_IFNAME": INTERFACE},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started[-2:]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(tiny_run: Run, tmp_path: Path) -> Run:
    return prepared(tiny_run, tmp_path / "runs")


def prepared(tiny_run: Run, runs: Path) -> Run:
    return with_data_of(tiny_run, Run(load_experiment(TINY, OVERRIDES), runs))


@pytest.fixture(scope="module")
def undisturbed(tiny_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with the training of two ranks on this machine, without a disturbance."""
    run = prepared(tiny_run, tmp_path_factory.mktemp("undisturbed"))
    command = [BIN / "mpiexec", "-n", "2", BIN / "sad-hpc", "pretrain", TINY, *OVERRIDES]
    command += ["--runs", run.runs]
    subprocess.run(command, check=True, capture_output=True, timeout=HUNG)
    return run


def wait_until_it_trains(run: Run, ranks: Ranks) -> None:
    folder = run.checkpoint("SAD", 0)
    while (folder.progress or {"done": 0})["done"] < 100:
        assert all(rank.poll() is None for rank in ranks)
        time.sleep(0.02)


def end_of(ranks: Ranks, code: int, seconds: float = SOON) -> list[str]:
    """Wait until the ranks have ended, and return what each wrote to stderr."""
    said = [rank.communicate(timeout=seconds)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [code] * len(ranks), said
    return said


def assert_same(run: Run, other: Run) -> None:
    folders = [each.checkpoint("SAD", 0).path for each in (run, other)]
    weights = [torch.load(f / "weights.pt", weights_only=True)["state"] for f in folders]
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name
    for line, expected in zip(*map(clockless_metrics, folders), strict=True):
        assert line == pytest.approx(expected, rel=1e-9)


def test_a_network_that_comes_back_in_time_and_a_late_rank_change_nothing(
    run: Run, undisturbed: Run, network: Network, start: Callable[[Run], Ranks]
) -> None:
    ranks = start(run)
    wait_until_it_trains(run, ranks)
    network.cut()
    time.sleep(SILENCE / 3)
    network.heal()
    ranks[0].send_signal(signal.SIGSTOP)
    time.sleep(SILENCE + 2)
    ranks[0].send_signal(signal.SIGCONT)
    assert run.checkpoint("SAD", 0).done is None
    end_of(ranks, 0, seconds=HUNG)
    assert_same(run, undisturbed)


@pytest.mark.parametrize("in_flight", [False, True])
def test_ranks_that_are_cut_off_end_and_the_next_launch_goes_on(
    run: Run,
    undisturbed: Run,
    network: Network,
    start: Callable[[Run], Ranks],
    figures: dict[str, Any],
    in_flight: bool,
) -> None:
    """If nothing is in flight to a silent node, no kernel misses an answer."""
    ranks = start(run)
    wait_until_it_trains(run, ranks)
    if not in_flight:
        ranks[0].send_signal(signal.SIGSTOP)
        time.sleep(1)  # rank 1 has nothing more to say
    network.cut()
    cut = time.monotonic()
    if not in_flight:
        said = end_of(ranks[1:], 1)
        figures["seconds until the rank that waits has ended"] = round(time.monotonic() - cut, 1)
        ranks[0].send_signal(signal.SIGCONT)
        said += end_of(ranks[:1], 1)
    else:
        said = end_of(ranks, 1)
        figures["seconds until both ranks have ended"] = round(time.monotonic() - cut, 1)
    for each in said:
        last = each.splitlines()[-1]
        assert last.startswith("sad-hpc: error: lost another rank (") and "Launch again" in last
        assert "Connection timed out" in last and "Traceback" not in each
    assert run.checkpoint("SAD", 0).done is None
    end_of(start(run), 0, seconds=HUNG)
    assert_same(run, undisturbed)
