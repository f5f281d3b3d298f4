#!/bin/bash
# The whole pipeline from one batch job: submits collect, pretrain, evaluate and aggregate as jobs
# of their own, each after what it reads.  Submit it from the repository's root:
#
#   sbatch slurm/full_pipeline.sh                    (configs/quickstart.yaml)
#   sbatch slurm/full_pipeline.sh configs/darkroom.yaml 'seeds=[0,1]' cluster.partition=cpu
#   sbatch --time=1-0 slurm/full_pipeline.sh configs/darkroom.yaml --wait
#
# usage: full_pipeline.sh [CONFIG] [key=value ...] [options of `sad-hpc launch`]
# With --wait the job lives as long as the pipeline and ends with its exit code, so it needs that
# time and a CPU that the stages cannot use; without, it ends once everything is submitted.
# Submitting it again runs only what is missing.
# Partition, account and the like of the stages are cluster.* settings (configs/cluster/), those of
# this job are sbatch's options.
#
#SBATCH --job-name=sad_hpc
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=1G
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail

# A job runs a copy of this file: only Slurm knows where it was submitted.
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")/..}"
PATH=$PWD/.venv/bin:$PATH
command -v sad-hpc >/dev/null || {
    echo "$PWD has no .venv/bin/sad-hpc: submit from the repository's root after 'make .venv/installed'" >&2
    exit 1
}

config=configs/quickstart.yaml
if [[ $# -gt 0 && $1 != -* && $1 != *=* ]]; then
    config=$1
    shift
fi
# The last --cluster counts, so that the arguments may name another one.
exec sad-hpc launch "$config" --cluster slurm "$@"
