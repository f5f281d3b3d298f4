# Each target creates .venv if it is missing.
PYTHON ?= python3
CONFIG ?= configs/quickstart.yaml
SAD_HPC = .venv/bin/sad-hpc
PYTEST = .venv/bin/python -m pytest
# Tests on Slurm run beside these, and have the cores first.
PYTEST_HERE = nice $(PYTEST) --numprocesses $(WORKERS) --dist loadfile
WORKERS ?= 2
INSTALL = .venv/bin/pip install --disable-pip-version-check --constraint constraints.txt

# pip's arguments for torch.  Without a GPU, the CPU wheels save several GB: make TORCH="torch
# --index-url INDEX" with the index of PyTorch's install page.
TORCH ?= torch

# Hundreds of child processes of the tests import the package: Python stores its bytecode.
export PYTHONDONTWRITEBYTECODE =

.PHONY: pipeline test test-here test-cluster test-all stress bench lint docs cluster-up cluster-down
pipeline: .venv/installed
	$(SAD_HPC) launch $(CONFIG) --cluster local --wait

# Quick tests: at most five minutes on two cores.
test: .venv/installed-test
	$(PYTEST_HERE) -m "not slow and not cluster and not stress"
	@echo "Not run: slow tests and tests on Slurm (make test-all), make stress"

# The longest file begins first.
test-here: .venv/installed-test
	$(PYTEST_HERE) -m "not cluster and not stress" --no-loadscope-reorder tests/test_examples.py tests

test-cluster: .venv/installed-test
	$(PYTEST) tests/cluster

# The Slurm tests wait half of their time, so `make --jobs 2 test-all` runs them beside the others.
test-all: test-cluster test-here

# Two workers, each with its own Slurm.
stress: .venv/installed-test
	SAD_HPC_REQUIRE_CLUSTER=1 $(PYTEST) -m "stress or cluster or faults" \
	    --numprocesses 2 --dist loadfile --verbose --durations=20 --figures=results/stress/figures.json

bench: .venv/installed-test
	.venv/bin/python benchmarks/run.py

lint: .venv/installed-test
	.venv/bin/ruff check sad_hpc tests benchmarks docs examples
	.venv/bin/mypy

# Build the site in site/; a broken link or docstring is an error.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet

cluster-up:
	@slurm/dev_cluster.sh up 4

cluster-down:
	@slurm/dev_cluster.sh down

# Install torch first, so that no dependency chooses its build.
.venv/installed: setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "sad_hpc needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv \
	    || { echo "no venv module: apt-get install python3-venv"; exit 1; }
	$(INSTALL) $(TORCH)
	@rm -rf sad_hpc.egg-info  # an older one would hide new entry points
	$(INSTALL) setuptools wheel --editable .
	@touch $@

.venv/installed-test: .venv/installed
	$(INSTALL) --editable '.[test,dev]'
	@touch $@

.venv/installed-docs: .venv/installed
	$(INSTALL) --editable '.[docs]'
	@touch $@
