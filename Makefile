# Two commands do all the set-up on a machine that has Python 3.11-3.13:
#   make quickstart   brings up the local cluster and runs the retraining pipeline on it
#   make test         runs the tests
# `make check` is the one check command (format, lint, types, layers, unit tests).

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info < (3,14))' 2>/dev/null \
	&& command -v $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TENSORFLOW ?= $(HOME)/.cache/airflow-kftrain/tensorflow
# Airflow writes its files here, so that the user's own Airflow is left alone.
export AIRFLOW_HOME ?= $(CURDIR)/.kftrain/airflow
export AIRFLOW__CORE__LOAD_EXAMPLES ?= False
PYTEST := $(BIN)/python -m pytest
PYTEST_ARGS ?=

.PHONY: setup frameworks quickstart test check static unit constraints clean \
	bench bench-scheduling bench-planner bench-triggers bench-gang test-controlplane controlplane-build

setup: $(READY)

$(READY): requirements/constraints.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 on PATH: install one, or say make PYTHON=/path/to/python3.12" >&2; exit 2; }
	@echo "Installing Airflow and what else is needed into $(VENV): 1 GB, some minutes the first time"
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# What the PyTorch and TensorFlow examples run with on the local cluster. TensorFlow's 1.6 GB stay out of the project's own
# environment; PyTorch is the system's (Debian's python3-torch), since the one on PyPI brings 7 GB.
frameworks: $(TENSORFLOW)/.ready

$(TENSORFLOW)/.ready: requirements/tensorflow.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 on PATH: install one, or say make PYTHON=/path/to/python3.12" >&2; exit 2; }
	"$(PYTHON)" -m venv --clear "$(TENSORFLOW)"
	"$(TENSORFLOW)/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tensorflow.txt
	@touch "$@"

quickstart: $(READY)
	$(BIN)/python -m example_dags.quickstart

check: static unit

static: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(READY)
	$(PYTEST) -q -m "not slow and not e2e and not controlplane" -n 2 $(PYTEST_ARGS)

test: $(READY)
	$(PYTEST) -q -m "not controlplane" -n 2 --dist loadgroup $(PYTEST_ARGS)

controlplane-build: $(READY)
	$(BIN)/python -m tests.controlplane.build

test-controlplane: $(READY)
	$(PYTEST) -q -m controlplane $(PYTEST_ARGS)

bench: $(READY)
	$(BIN)/python -m benchmarks.imports
	$(BIN)/python -m benchmarks.api
	$(BIN)/python -m benchmarks.waiting

bench-scheduling: $(READY)
	$(BIN)/python -m benchmarks.scheduling $(ARGS)

bench-planner: $(READY)
	$(BIN)/python -m benchmarks.planner $(ARGS)

bench-triggers: $(READY)
	$(BIN)/python -m benchmarks.triggers $(ARGS)

bench-gang: $(READY)
	$(BIN)/python -m benchmarks.gang $(ARGS)

constraints:
	uv pip compile --quiet pyproject.toml --extra local --extra xgboost --extra plots --group dev --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade \
		--output-file requirements/constraints.txt
	uv pip compile --quiet requirements/tensorflow.in --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade \
		--output-file requirements/tensorflow.txt

clean:
	rm -rf $(VENV) .kftrain .mypy_cache .ruff_cache .pytest_cache build dist
