#!/bin/bash
# Train one (row, seed); --ntasks sets the number of data-parallel DeepSpeed ranks.
# From the repository's root, after collect:
#
#   sbatch slurm/pretrain.sh configs/darkroom.yaml --row SAD --seed 0
#   sbatch --ntasks=4 --gpus-per-task=1 --cpus-per-task=4 slurm/pretrain.sh configs/darkroom.yaml \
#       --row SAD --seed 0
#
# usage: pretrain.sh CONFIG [key=value ...] --row ROW --seed SEED
# It resumes from the last checkpoint: after a time limit submit the script again.
#
#SBATCH --job-name=pretrain
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=3G
#SBATCH --time=04:00:00
#SBATCH --signal=USR2@120
#SBATCH --output=%x-%j.log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}"
PATH=$PWD/.venv/bin:$PATH
exec sad-hpc ranks pretrain "$@"
