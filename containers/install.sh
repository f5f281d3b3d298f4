#!/bin/sh
# Install sad_hpc into an image of Debian from /opt/sad_hpc: the system's packages, then the steps of `make`.
# containers/sad_hpc.def (Apptainer) and containers/Dockerfile run this script.
set -eu
export DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1
apt-get update
apt-get install -y --no-install-recommends make python3-venv g++ python3-dev \
    libegl1 libgl1 libglu1-mesa libgl1-mesa-dri
rm -rf /var/lib/apt/lists/*
make -C /opt/sad_hpc .venv/installed
# The nodes compile kernels for their CPUs, into each user's cache.
chmod -R go-w /opt
