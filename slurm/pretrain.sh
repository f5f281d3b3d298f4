#!/bin/bash
# Trains one (method, seed) with every task of this job as a data-parallel DeepSpeed rank.
# From the repository's root, after collect:
#
#   sbatch slurm/pretrain.sh configs/darkroom.yaml --method SAD --seed 0
#   sbatch --ntasks=4 --gpus-per-task=1 --cpus-per-task=4 slurm/pretrain.sh configs/darkroom.yaml --method SAD --seed 0
#
# usage: pretrain.sh CONFIG [key=value ...] --method METHOD --seed SEED
# It goes on from the last checkpoint: submit it again after a time limit.
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
# Where the ranks meet: the first node, at a port that differs between jobs of one node, below those
# that Linux gives to outgoing connections.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 12768))
export MASTER_ADDR MASTER_PORT OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
# Every rank sees all GPUs of its node and takes the one of its local rank.
gpus=()
if [[ -n ${SLURM_GPUS_PER_TASK:-} ]]; then gpus=(--gpu-bind=none); fi
srun --mpi=none --cpus-per-task="$SLURM_CPUS_PER_TASK" --kill-on-bad-exit=1 "${gpus[@]}" sad-hpc pretrain "$@"
