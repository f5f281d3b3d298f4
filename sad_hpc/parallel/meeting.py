"""The first rendezvous of the ranks of a training, with a timeout of minutes.

Collectives have a timeout of days, since a rank may wait for a disk.  A rank that dies before it
connects closes no connection that the others would notice, so the rendezvous has a short timeout.
It also reacts to signals.
"""

import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from sad_hpc.errors import UserError
from sad_hpc.parallel import preemption
from sad_hpc.parallel.ranks import Process

MEETING = timedelta(minutes=10)
"""Longest time between the first and the last rank; a slow disk delays the start of Python."""

CONNECTING = timedelta(seconds=20)
"""Timeout of a connection to a store that already answers."""

LOOK_SECONDS = 0.1


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
