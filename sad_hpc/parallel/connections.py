"""Connections between the ranks of a training: the first rendezvous, and detection of lost ones.

Collectives have a timeout of days, since a rank may wait for a disk.  A rank that dies before it
connects closes no connection that the others would notice, so the rendezvous has a short timeout.
It also reacts to signals.

A process that dies closes its connections.  A power loss or a network failure closes none, and a
rank that waits for a message would then wait indefinitely.  TCP probes detect such failures.  The
kernel of a live node answers them even for a rank that is late or suspended by Slurm.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist

from sad_hpc.errors import UserError
from sad_hpc.parallel import preemption
from sad_hpc.parallel.ranks import Process

TESTED = "2.13"
"""The version of torch against which `set_group_timeout` was tested."""

MEETING = timedelta(minutes=10)
"""Longest time between the first and the last rank; a slow disk delays the start of Python."""

CONNECTING = timedelta(seconds=20)
"""Timeout of a connection to a store that already answers."""

LOOK_SECONDS = 0.1

SILENCE = timedelta(minutes=10)
"""A rank counts as lost once its node has been silent this long.  The kernel resends unacknowledged
data for about a quarter of an hour (`net.ipv4.tcp_retries2`)."""

PROBES = 5
"""Unanswered probes in that time before the connection ends."""

GLOO = re.compile(
    r"gloo/transport/\S+\] (.*?)\.? *(?:This is typically|Check the logs|$)", re.DOTALL
)
"""Pattern of gloo's messages about a connection, between its source line and its advice."""


def meet(process: Process) -> dist.Store:
    """Wait for all ranks, and return the store that they share.

    Raises:
        UserError: rank 0 cannot open a store at MASTER_ADDR and MASTER_PORT, or a rank does not
            arrive in time.
        Preempted: a signal arrived first.
    """
    if process.world_size == 1:
        return dist.HashStore()
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    where = f"{host}:{port}"
    if not process.is_first:
        _wait(lambda: _answers(host, port), lambda: f"rank 0 does not answer at {where}")
    try:
        store = dist.TCPStore(
            host, port, process.world_size, process.is_first, CONNECTING, wait_for_workers=False
        )
        store.set(_name(process.rank), "here")
        names = [_name(rank) for rank in range(process.world_size)]
        _wait(lambda: store.check(names), lambda: f"{_absent(store, names)} did not reach {where}")
    except dist.DistError as error:
        raise UserError(
            f"the ranks cannot meet at {where} ({' '.join(str(error).split())}): launch again to "
            "use another port, or set MASTER_PORT"
        ) from error
    return store


def _wait(arrived: Callable[[], bool], missing: Callable[[], str]) -> None:
    start = time.monotonic()
    while not arrived():
        preemption.check()
        if time.monotonic() - start > MEETING.total_seconds():
            raise UserError(
                f"{missing()} within {MEETING.total_seconds():.0f} s: look for an error in the "
                "other ranks' logs, and check that the nodes can reach MASTER_ADDR"
            )
        time.sleep(LOOK_SECONDS)


def _answers(host: str, port: int) -> bool:
    """Return whether a server listens there; torch would log a trace for each failed attempt."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _name(rank: int) -> str:
    return f"rank {rank}"


def _absent(store: dist.Store, names: list[str]) -> str:
    return ", ".join(name for name in names if not store.check([name]))


def probe_connections() -> None:
    """Enable TCP probes on this process's connections, which then end if the peer is silent."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or a connection that has just ended
            connection = socket.socket(fileno=int(name))
            try:
                _probe(connection)
            finally:
                connection.detach()  # its owner closes it


def _probe(connection: socket.socket) -> None:
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    seconds = max(1, round(SILENCE.total_seconds() / (PROBES + 1)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


@contextmanager
def lost_ranks_named() -> Iterator[None]:
    """Report a lost connection within this block as an error in one line.

    Raises:
        UserError: a connection to another rank has ended, or is dead.
    """
    try:
        yield
    except RuntimeError as error:
        found = GLOO.search(str(error))
        if found is None and not isinstance(error, dist.DistError):
            raise
        reason = " ".join((found[1] if found else str(error)).split())
        raise UserError(
            f"lost another rank ({reason}): see its log, or check its node and the network. "
            "Launch again to continue from the last checkpoint"
        ) from error


def set_group_timeout(timeout: timedelta) -> None:
    """Set the timeout of collectives of the default process group; torch has no public function."""
    dist.distributed_c10d._set_pg_timeout(timeout)
