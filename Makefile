# Each target creates .venv when it is missing, so any of them can be the first.
PYTHON ?= python3
CONFIG ?= configs/quickstart.yaml
SAD_HPC = .venv/bin/sad-hpc

.PHONY: pipeline test test-suite test-cluster stress bench lint cluster-up cluster-down
pipeline: .venv/installed
	$(SAD_HPC) launch $(CONFIG) --cluster local --wait

# Slurm's tests mostly wait: `make -j2 test` runs them beside the others.
test: test-suite test-cluster

test-suite: .venv/installed-test
	.venv/bin/python -m pytest --ignore tests/cluster

test-cluster: .venv/installed-test
	.venv/bin/python -m pytest tests/cluster

# Two workers, each with a Slurm of its own.
stress: .venv/installed-test
	SAD_HPC_REQUIRE_CLUSTER=1 .venv/bin/python -m pytest -m "stress or cluster or faults" \
	    --numprocesses 2 --dist loadfile --verbose --durations=20 --figures=results/stress/figures.json

bench: .venv/installed-test
	.venv/bin/python benchmarks/run.py

lint: .venv/installed-test
	.venv/bin/ruff check sad_hpc tests benchmarks
	.venv/bin/mypy

cluster-up:
	@slurm/dev_cluster.sh up 4

cluster-down:
	@slurm/dev_cluster.sh down

# torch first and pinned: a plain `torch` may fetch several GB of CUDA packages.
.venv/installed: setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "sad_hpc needs Python 3.11 or newer: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv \
	    || { echo "no venv module: apt-get install python3-venv"; exit 1; }
	.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch setuptools wheel
	@rm -rf sad_hpc.egg-info  # an older one would hide entry points that have come since
	.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/installed-test: .venv/installed
	.venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,dev]'
	@touch $@
