#!/bin/bash
# Collect the datasets of a config; --ntasks sets the number of MPI ranks.
# From the repository's root:
#
#   sbatch --ntasks=16 slurm/collect.sh configs/darkroom.yaml data.trust_horizon=10
#
# usage: collect.sh CONFIG [key=value ...] [options of `sad-hpc collect`]
# SLURM_MPI_TYPE selects the type of MPI (`srun --mpi=list` shows the supported ones).
# Finished shards are kept: after a time limit submit the script again.
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
