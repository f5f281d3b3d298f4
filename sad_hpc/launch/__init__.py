"""Arranges the stages of a run as jobs, on this machine or under Slurm, through submitit."""
