# `make demo` shows it running, `make test` checks everything; both set up what they need first. `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
JOBS ?= auto
# The PyTorch that PyPI has for Linux brings CUDA with it, several GB: name one for CPUs here if your index has it.
TORCH ?= torch==2.13.0 numpy

.DEFAULT_GOAL := help
.PHONY: help venv demo example-torch test lint types unit e2e chaos soak format docs images audit lock clean

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

venv: $(VENV)/.project ## Make .venv: the locked dependencies and .venv/bin/frameworkcontroller

# Two stamps, so that a change of pyproject.toml does not fetch every dependency anew.
$(VENV)/.locked: requirements-dev.lock
	scripts/make-venv $(PYTHON) $(VENV) requirements-dev.lock
	@touch $@

$(VENV)/.project: $(VENV)/.locked pyproject.toml
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: venv ## Run the example Frameworks on a cluster in one process
	$(BIN)/frameworkcontroller local run examples/batch/batchsucceeded.yaml examples/batch/batchretried.yaml examples/batch/serverworkers.yaml

example-torch: venv ## Elastic training with PyTorch, through rescale and deaths; fetches PyTorch once
	test -x $(VENV)/torch/bin/python || $(PYTHON) -m venv $(VENV)/torch
	$(VENV)/torch/bin/python -m pip --disable-pip-version-check install --quiet $(TORCH)
	$(BIN)/python examples/training/elastic/walkthrough.py $(VENV)/torch/bin/python

test: lint types unit ## Lint, types and every test

lint: venv ## Lint and formatting, of the Dockerfile and of prose too
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/hadolint Dockerfile
	$(BIN)/codespell
	$(BIN)/python scripts/prose.py

types: venv ## Types
	$(BIN)/mypy

# Bytecode is kept even where that is switched off: many tests start the product as a process.
unit: venv ## Every test; PYTEST_ARGS="tests/unit -k plan" picks some, JOBS=0 runs them one by one
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=$(JOBS) $(PYTEST_ARGS)

e2e: venv ## Real containers on real nodes, by the shipped images and manifests; takes root; E2E_ARGS="-k drain" picks some
	$(BIN)/python -m pytest tests/e2e $(E2E_ARGS)

HISTORIES ?= 500
CHAOS_ARGS ?=
E2E_ARGS ?=

chaos: venv ## Random histories under faults: HISTORIES=2000, or CHAOS_ARGS="--minutes 30 --seed 5000 --cluster 1.36"
	$(BIN)/python -m tests.chaos $(or $(CHAOS_ARGS),--histories $(HISTORIES))

soak: venv ## An hour of Frameworks that come and go; SOAK_ARGS="--minutes 10 --rate 5"
	$(BIN)/python -m benchmarks.soak $(SOAK_ARGS)

format: venv ## Format the code and mend what lint can mend
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format .

docs: venv ## Write the generated pages of docs/ anew
	$(BIN)/python scripts/failure_codes.py > docs/failure-codes.md
	$(BIN)/python scripts/states.py > docs/states.md
	$(BIN)/python scripts/reference.py > docs/reference.md
	$(BIN)/python scripts/events.py > docs/events.md
	$(BIN)/python scripts/inline_programs.py
	$(BIN)/python scripts/metrics.py > docs/metrics.md
	$(BIN)/python scripts/dashboard.py > manifests/monitoring/dashboard.json

images: ## Build both images with docker, podman or buildah
	scripts/build-images

audit: venv ## Look the locked dependencies up among the known vulnerabilities
	scripts/audit $(PYTHON) $(VENV)

lock: ## Bring the lock files up to the newest versions that pyproject.toml allows
	scripts/lock $(PYTHON)

clean: ## Remove everything that was made
	rm -rf $(VENV) .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
