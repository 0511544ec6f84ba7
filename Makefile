# The daily tasks of development; CONTRIBUTING.md explains them. `make` lists the targets.
# Everything runs in the virtual environment VENV.

VENV ?= .venv
PYTHON ?= python3
TESTS ?= tests
WORKERS ?= 2
BENCH ?= publish-persist --peers amps

BIN := $(VENV)/bin
BUILD_EXTENSIONS := $(BIN)/python setup.py build_ext --inplace

# Tools call other tools: cython-lint runs pycodestyle.
export PATH := $(abspath $(BIN)):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help set-up build release-build debug test test-one lint types check docs docs-serve sdist wheel wheels client-wheel bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

set-up: ## make the environment, install the package in editable form with all tools, install the hooks
	$(PYTHON) -m venv $(VENV)
	AMPS_BUILD=develop $(BIN)/pip install -e '.[test,demo,docs,develop]'
	if git rev-parse --git-dir >/dev/null 2>&1; then $(BIN)/pre-commit install; fi

build: ## build the changed modules of amps/_core, for development
	AMPS_BUILD=develop $(BUILD_EXTENSIONS)

release-build: ## build amps/_core optimized, for measurements
	AMPS_BUILD=release $(BUILD_EXTENSIONS)

debug: ## build amps/_core with bounds checks, assertions and debugging information
	AMPS_BUILD=debug $(BUILD_EXTENSIONS)

test: ## run the tests, or those in TESTS, in WORKERS processes
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(TESTS)

test-one: ## run one test: make test-one TEST=tests/…/test_….py::test_…
	$(BIN)/pytest -x $(or $(TEST),$(error say which test: make test-one TEST=tests/…/test_….py::test_…))

lint: ## ruff, cython-lint, citations of the specification, links
	$(BIN)/ruff check .
	find amps -name '*.pyx' -o -name '*.pxi' -o -name '*.pxd' | sort | xargs $(BIN)/cython-lint
	$(BIN)/python tools/check_citations.py
	$(BIN)/python tools/check_links.py

types: ## mypy
	$(BIN)/mypy

check: lint types ## all checks that run no test

docs: ## build the documentation site in site/
	$(BIN)/mkdocs build --strict

docs-serve: ## show the documentation site while it is edited
	$(BIN)/mkdocs serve

sdist: ## build the source distribution in dist/
	$(BIN)/python -m build --sdist

wheel: ## build the source distribution, and from it a wheel for this host, in dist/
	$(BIN)/python -m build

wheels: sdist ## build the source distribution, and from it the wheels of a release, in dist/; needs containers
	$(BIN)/cibuildwheel --platform linux --output-dir dist "$$(ls -t dist/*.tar.gz | head -1)"

client-wheel: ## build the wheel of the client library alone, in dist/; needs no compiler
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist ./client

bench: ## run a benchmark: make bench BENCH='replay --peers amps'
	$(BIN)/python -m perf $(BENCH)

clean: ## remove the products of builds and tests, but not VENV
	rm -rf build client/build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find amps tests perf tools \( -name '*.so' -o -name '*.c' -o -name '*.html' \) -type f -delete
	find amps tests perf tools -name __pycache__ -type d -prune -exec rm -rf {} +
