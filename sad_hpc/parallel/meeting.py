"""Where the ranks of a training meet before anything else: each is there within minutes, or never.

Collectives have the patience of days, since a rank may wait for a disk.  A rank that dies before it
has met the others closes no connection that they would notice: hence a first meeting of its own,
which also listens to signals.
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
"""Between the first rank and the last one: programs may be read from a slow disk."""

CONNECTING = timedelta(seconds=20)
"""To a store that is known to answer."""

LOOK_SECONDS = 0.1


def meet(process: Process) -> dist.Store:
    """The store that all ranks share; they are all there when this returns.

    Raises:
        UserError: rank 0 cannot open a store at MASTER_ADDR and MASTER_PORT, or some rank does not
            come.
        Preempted: a signal came first.
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
        _wait(lambda: store.check(names), lambda: f"no {_absent(store, names)} came to {where}")
    except dist.DistError as error:
        raise UserError(
            f"the ranks cannot meet at {where} ({' '.join(str(error).split())}): launch again, "
            "which takes another port, or set MASTER_PORT"
        ) from error
    return store


def _wait(arrived: Callable[[], bool], missing: Callable[[], str]) -> None:
    start = time.monotonic()
    while not arrived():
        preemption.check()
        if time.monotonic() - start > MEETING.total_seconds():
            raise UserError(
                f"{missing()} within {MEETING.total_seconds():.0f} s: look for its error in the "
                "other ranks' logs; nodes must reach each other at MASTER_ADDR"
            )
        time.sleep(LOOK_SECONDS)


def _answers(host: str, port: int) -> bool:
    """Whether anybody listens there; torch itself would fill the log with traces until then."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _name(rank: int) -> str:
    return f"rank {rank}"


def _absent(store: dist.Store, names: list[str]) -> str:
    return ", ".join(name for name in names if not store.check([name]))
