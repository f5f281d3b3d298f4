#!/bin/bash
# Check a new cluster with a job on two nodes: MPI and DeepSpeed across nodes, shared files and their
# locks, OpenGL, accounting and requeue.  Each check prints a line, with a fix if it fails.  The job
# takes one to two minutes, and up to fifteen if a check fails.
# From the repository's root, either of
#
#   sad-hpc doctor --cluster slurm --submit            (prints the job's log)
#   sbatch --partition=cpu slurm/check.sh cluster.partition=cpu --runs runs
#
# usage: check.sh [cluster.KEY=VALUE ...] [--cluster NAME] [--runs FOLDER]
# Give this job's partition, account and the like as options of sbatch.
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
# The last --cluster counts, so the arguments can name another one.
exec sad-hpc doctor --cluster slurm --in-job "$@"
