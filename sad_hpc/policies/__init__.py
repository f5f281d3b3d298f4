"""Trained models to share: `sad_hpc.load_policy(folder)`."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sad_hpc.policies.policy import Policy


def load_policy(folder: str | Path) -> "Policy":
    """Load the policy from a folder that `sad-hpc export --weights` has written.

    torch is imported at the first call, which takes seconds.

    Raises:
        UserError: the folder does not hold a policy, or is damaged.
    """
    from sad_hpc.policies.policy import read_policy

    return read_policy(folder)
