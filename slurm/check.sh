#!/bin/bash
# The first job of a new site: a minute or two on two nodes (where something is broken up to fifteen),
# a line for each thing that only nodes can tell, and what to do where one failed: MPI and DeepSpeed
# across nodes, files that all nodes share and their locks, OpenGL, accounting, and whether a job may
# be queued again.
# From the repository's root, either of
#
#   sad-hpc doctor --cluster slurm --submit            (prints what the job says)
#   sbatch --partition=cpu slurm/check.sh cluster.partition=cpu --runs runs
#
# usage: check.sh [cluster.KEY=VALUE ...] [--cluster NAME] [--runs FOLDER]
# It has its own options of sbatch; give partition, account and the like as options of yours.
#
#SBATCH --job-name=sad_hpc-check
#SBATCH --nodes=2
#SBATCH --ntasks=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=2G
#SBATCH --time=00:15:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:?submit this script with sbatch}"
PATH=$PWD/.venv/bin:$PATH
# The last --cluster counts, so that the arguments may name another one.
exec sad-hpc doctor --cluster slurm --in-job "$@"
