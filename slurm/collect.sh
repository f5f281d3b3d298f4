#!/bin/bash
# Collects a config's dataset (of a sweep: its datasets); --ntasks says with how many MPI ranks.
# From the repository's root:
#
#   sbatch --ntasks=16 slurm/collect.sh configs/darkroom.yaml data.trust_horizon=10
#
# usage: collect.sh CONFIG [key=value ...] [options of `sad-hpc collect`]
# SLURM_MPI_TYPE says how Slurm starts MPI processes (`srun --mpi=list` shows the choice).
# Shards that exist are kept: submit it again after a time limit.
#
#SBATCH --job-name=collect
#SBATCH --ntasks=2
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --time=01:00:00
#SBATCH --signal=USR2@120
#SBATCH --output=%x-%j.log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}"
PATH=$PWD/.venv/bin:$PATH
exec sad-hpc ranks collect "$@"
