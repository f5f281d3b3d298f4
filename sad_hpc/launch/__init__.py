"""Arranges the stages of a run as jobs, on this machine or under Slurm, through submitit."""

from sad_hpc.launch.pipeline import launch

__all__ = ["launch"]
