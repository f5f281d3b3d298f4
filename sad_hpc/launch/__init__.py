"""The launcher: run the stages of a run as jobs, on this machine or under Slurm, with submitit."""
