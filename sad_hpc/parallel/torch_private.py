"""The private parts of torch that this package uses; tests/test_private_apis.py checks them."""

from datetime import timedelta

import torch.distributed as dist

TESTED = "2.13"
"""The version of torch against which these parts were tested."""


def set_group_timeout(timeout: timedelta) -> None:
    """Set the timeout of collectives of the default process group; torch has no public function."""
    dist.distributed_c10d._set_pg_timeout(timeout)
