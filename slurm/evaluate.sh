#!/bin/bash
# Evaluates the trained models as a job array: element K is the K-th (method, seed) of the config,
# the seeds of the first method first.  From the repository's root, after pretrain:
#
#   sbatch slurm/evaluate.sh configs/darkroom.yaml                  5 methods x 4 seeds, 4 at a time
#   sbatch --array=0-2%2 slurm/evaluate.sh configs/quickstart.yaml  3 methods x 1 seed, 2 at a time
#
# usage: evaluate.sh CONFIG [key=value ...]
# Elements that are complete end at once.
#
#SBATCH --job-name=evaluate
#SBATCH --array=0-19%4
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --time=02:00:00
#SBATCH --signal=B:USR2@120
#SBATCH --output=%x-%A_%a.log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}"
PATH=$PWD/.venv/bin:$PATH
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK LP_NUM_THREADS=1
exec sad-hpc evaluate "$@" --element "$SLURM_ARRAY_TASK_ID"
