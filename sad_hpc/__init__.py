"""In-context reinforcement learning from random policies, on Slurm clusters."""

from sad_hpc.policies import load_policy

__all__ = ["load_policy"]
