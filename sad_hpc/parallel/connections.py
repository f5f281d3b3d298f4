"""Detection of lost connections between the ranks of a training.

A process that dies closes its connections.  A power loss or a network failure closes none, and a
rank that waits for a message would then wait indefinitely.  TCP probes detect such failures.  The
kernel of a live node answers them even for a rank that is late or suspended by Slurm.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch.distributed as dist

from sad_hpc.errors import UserError

SILENCE = timedelta(minutes=10)
"""A rank counts as lost once its node has been silent this long.  The kernel resends unacknowledged
data for about a quarter of an hour (`net.ipv4.tcp_retries2`)."""

PROBES = 5
"""Unanswered probes in that time before the connection ends."""

GLOO = re.compile(
    r"gloo/transport/\S+\] (.*?)\.? *(?:This is typically|Check the logs|$)", re.DOTALL
)
"""Pattern of gloo's messages about a connection, between its source line and its advice."""


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
