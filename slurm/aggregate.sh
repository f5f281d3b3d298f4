#!/bin/bash
# Make the tables and figures in results/ from all evaluations.  From the repository's root:
#
#   sbatch slurm/aggregate.sh configs/darkroom.yaml
#   sbatch slurm/aggregate.sh configs/darkroom.yaml --allow-missing   lists missing evaluations
#
# usage: aggregate.sh CONFIG [key=value ...] [options of `sad-hpc aggregate`]
#
#SBATCH --job-name=aggregate
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --time=00:20:00
#SBATCH --output=%x-%j.log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}"
PATH=$PWD/.venv/bin:$PATH
exec sad-hpc ranks aggregate "$@"
