#!/bin/bash
# Evaluate the trained models as a job array 0-M, whose jobs share all (row, seed)s of the config.
# From the repository's root, after pretrain:
#
#   sbatch slurm/evaluate.sh configs/darkroom.yaml                  20 jobs, 4 at a time
#   sbatch --array=0-1 slurm/evaluate.sh configs/quickstart.yaml    2 jobs
#
# usage: evaluate.sh CONFIG [key=value ...]
# Complete evaluations are skipped: after a failure submit the same array again.
#
#SBATCH --job-name=evaluate
#SBATCH --array=0-19%4
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --time=02:00:00
#SBATCH --signal=USR2@120
#SBATCH --output=%x-%A_%a.log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}"
PATH=$PWD/.venv/bin:$PATH
jobs=$SLURM_ARRAY_TASK_COUNT
if ((SLURM_ARRAY_TASK_MAX != jobs - 1)); then
    echo "sad-hpc: error: --array must be 0-M without gaps, since its jobs share the work" >&2
    exit 1
fi
exec sad-hpc ranks evaluate "$@" --element "$SLURM_ARRAY_TASK_ID" --of "$jobs"
