"""Connections between the ranks of a training: which of them are dead, and what is said of it.

A process that dies closes its connections.  A node that loses its power, or the network between two
nodes, closes nothing: who then waits for a message would wait for ever.  The kernel of the other
node answers probes as long as it lives, also for a rank that is late, or suspended by Slurm.
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
"""Of another rank's node, after which it counts as lost.  What is on the way to it is sent again
for about a quarter of an hour, as the kernel has it (`net.ipv4.tcp_retries2`)."""

PROBES = 5
"""Without an answer, in that time."""

GLOO = re.compile(
    r"gloo/transport/\S+\] (.*?)\.? *(?:This is typically|Check the logs|$)", re.DOTALL
)
"""What gloo says of a connection, between its own source's line and its advice."""


def probe_connections() -> None:
    """From now on the connections that this process has end once the other side is silent."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # no socket, or a connection that has just ended
            connection = socket.socket(fileno=int(name))
            try:
                _probe(connection)
            finally:
                connection.detach()  # it is another's, who closes it


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
    """Within this block the end of a connection is an error in one line.

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
            f"lost another rank ({reason}): its own log says why, or its node or the network "
            "between them is down; launch again, which goes on from the last checkpoint"
        ) from error
