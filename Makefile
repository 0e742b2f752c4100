# `make demo` runs the examples, `make test` checks everything; both install their dependencies. `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RELEASE := .tools/release
PYTEST_ARGS ?=
JOBS ?= auto
# PyPI's PyTorch for Linux includes several GB of CUDA. A CPU build has 200 MB: name one here, with pip's options for the
# index that has it.
TORCH ?= torch==2.13.0 numpy
export TORCH

.DEFAULT_GOAL := help
.PHONY: help venv demo demo-queue demo-training test lint types unit e2e chaos soak format docs site pictures images audit lock clean release-files release-dry-run

help: ## Show this list
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'

venv: $(VENV)/.project ## Create .venv with the locked dependencies and .venv/bin/frameworkcontroller

INSTALL = $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .

# Two stamps: a change of pyproject.toml must not fetch every dependency again.
$(VENV)/.locked: requirements-dev.lock
	scripts/make-venv $(PYTHON) $(VENV) requirements-dev.lock
	@touch $@

$(VENV)/.project: $(VENV)/.locked pyproject.toml
	$(INSTALL)
	@touch $@

# The product alone, unless the developers' packages are there.
$(VENV)/.product: requirements.lock requirements-build.lock pyproject.toml
	scripts/make-venv $(PYTHON) $(VENV) requirements.lock requirements-build.lock
	$(INSTALL)
	@touch $@

PRODUCT := $(if $(wildcard $(VENV)/.project),venv,$(VENV)/.product)

demo: $(PRODUCT) ## Run the example Frameworks on a cluster in one process
	$(BIN)/frameworkcontroller local run examples/batch/batchsucceeded.yaml examples/batch/batchretried.yaml examples/batch/serverworkers.yaml

demo-queue: $(PRODUCT) ## Let two Frameworks compete for quota on such a cluster; needs kubectl
	$(BIN)/python scripts/demo_queue.py

demo-training: $(PRODUCT) ## Let a training hang, fail on a node and be preempted, and show its cost
	$(BIN)/python scripts/demo_training.py

# Examples with libraries, for the list; the rest is in scripts/run_example.py. They must not be .PHONY.
example-torch: ## Run elastic PyTorch training through rescales and failures; downloads PyTorch once
example-ddp: ## Run PyTorch's DistributedDataParallel; downloads PyTorch once
example-torchrun: ## Run PyTorch's elastic launcher, torchrun; downloads PyTorch once
example-torchx: ## Run PyTorch through TorchX; downloads PyTorch once
example-transformers: ## Train with Transformers, which reports its progress; downloads PyTorch once
example-jax: ## Run JAX on two workers; downloads 140 MB once
example-tensorflow: ## Run TensorFlow with a parameter server; downloads TensorFlow once
example-mpi: ## Run MPI over ssh; needs sshd, and downloads Open MPI once
example-ray: ## Run a Ray cluster; downloads Ray once
example-spark: ## Run a Spark cluster; needs Java, and downloads Spark once

example-%: venv
	$(BIN)/python scripts/run_example.py $*

test: lint types unit ## Run lint, types and every test

lint: venv ## Check code, formatting, the Dockerfile, prose, the site's links and GitHub's files
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/hadolint Dockerfile
	$(BIN)/codespell
	$(BIN)/python scripts/prose.py
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	! git grep -nE '^(<<<<<<<|>>>>>>>) '
	$(BIN)/python scripts/site.py

types: venv ## Check types
	$(BIN)/mypy

# Bytecode is kept even where it is disabled: many tests start the product as a process.
unit: venv ## Run every test; PYTEST_ARGS="tests/unit -k plan" selects some, JOBS=0 uses one process
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=$(JOBS) $(PYTEST_ARGS)

e2e: venv ## Test images and manifests on real nodes; needs root; E2E_ARGS="-k drain" selects some, --training adds PyTorch
	$(BIN)/python -m pytest tests/e2e $(E2E_ARGS)

HISTORIES ?= 500
CHAOS_ARGS ?=
E2E_ARGS ?=

chaos: venv ## Play random histories under faults: HISTORIES=2000, or CHAOS_ARGS="--minutes 30 --seed 5000 --cluster 1.36"
	$(BIN)/python -m tests.chaos $(or $(CHAOS_ARGS),--histories $(HISTORIES))

soak: venv ## Create and delete Frameworks for an hour; SOAK_ARGS="--minutes 10 --rate 5"
	$(BIN)/python -m benchmarks.soak $(SOAK_ARGS)

format: venv ## Format the code and apply lint's fixes
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format .

docs: venv ## Regenerate the generated pages of docs/, lint's table of fields and the Helm chart
	$(BIN)/python scripts/failure_codes.py > docs/failure-codes.md
	$(BIN)/python scripts/states.py > docs/states.md
	$(BIN)/python scripts/reference.py > docs/reference.md
	$(BIN)/python scripts/events.py > docs/events.md
	$(BIN)/python scripts/commands.py > docs/commands.md
	$(BIN)/python scripts/inline_programs.py
	$(BIN)/python scripts/metrics.py > docs/metrics.md
	$(BIN)/python scripts/pod_fields.py > frameworkcontroller/commands/lint/podfields.json
	$(BIN)/python scripts/dashboard.py > manifests/monitoring/dashboard.json
	$(BIN)/python scripts/chart.py

site: venv ## Build the site of the documentation into build/site; fails on broken links
	$(BIN)/python scripts/site.py

pictures: venv ## Draw the pictures of docs/pages.md; needs Debian's chromium
	$(BIN)/python scripts/pictures.py

images: ## Build both images with docker, podman or buildah
	scripts/build-images

URL ?= https://example.com/releases/download

$(RELEASE)/.locked: requirements-release.lock
	scripts/make-venv $(PYTHON) $(RELEASE) requirements-release.lock
	@touch $@

release-files: venv $(RELEASE)/.locked
	rm -rf dist
	$(BIN)/hatchling build
	$(RELEASE)/bin/twine check --strict dist/*
	$(BIN)/python scripts/build-plugin dist/*.whl dist $(URL)
	$(RELEASE)/bin/python scripts/sbom.py $(BIN)/python requirements.lock dist/frameworkcontroller.spdx.json
	$(RELEASE)/bin/python scripts/sbom.py $(BIN)/python requirements-client.lock dist/kubectl-framework.spdx.json
	version=v$$($(BIN)/hatchling version) && scripts/release-notes $$version > dist/notes.md

release-dry-run: release-files ## Build all files of a release into dist/, and try them in an empty home
	scripts/release-dry-run $(PYTHON) $(BIN)

audit: venv ## Check the locked dependencies for known vulnerabilities
	scripts/audit $(PYTHON) $(VENV)

lock: ## Update the lock files within the bounds of pyproject.toml
	scripts/lock $(PYTHON)

clean: ## Remove everything generated
	rm -rf $(VENV) .tools .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
