#!/bin/bash
# Run the whole pipeline from one batch job: it submits collect, pretrain, evaluate and aggregate as
# separate jobs with dependencies.  From the repository's root:
#
#   sbatch slurm/full_pipeline.sh                    (configs/quickstart.yaml)
#   sbatch slurm/full_pipeline.sh configs/darkroom.yaml 'seeds=[0,1]' cluster.partition=cpu
#   sbatch --time=1-0 slurm/full_pipeline.sh configs/darkroom.yaml --wait
#
# usage: full_pipeline.sh [CONFIG] [key=value ...] [options of `sad-hpc launch`]
# Without --wait the job ends after the submission.  With --wait it runs as long as the pipeline, ends
# with its exit code, and needs a CPU that the stages cannot use.
# Submitted again, it runs only incomplete stages.
# Set partition, account and the like of the stages by cluster.* (configs/cluster/), and those of this
# job by options of sbatch.
#
#SBATCH --job-name=sad_hpc
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=1G
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail

# A job runs a copy of this file; SLURM_SUBMIT_DIR is the folder of the submission.
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
# The last --cluster counts, so the arguments can name another one.
exec sad-hpc launch "$config" --cluster slurm "$@"
