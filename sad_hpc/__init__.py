"""In-context reinforcement learning from random policies, on Slurm clusters."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sad_hpc.policies import load_policy

__all__ = ["load_policy"]


def __getattr__(name: str) -> Any:
    """Return `sad_hpc.load_policy`, imported on first access, since it needs torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sad_hpc import policies

    return getattr(policies, name)
