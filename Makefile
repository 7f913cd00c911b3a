# Every target sets up .venv by itself when needed; PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEV := .venv/.dev-ready
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo test test-long check format bench docs clean

demo: $(READY)
	$(BIN)/cautious demo

test: $(DEV)
	$(BIN)/pytest -n 2 --dist worksteal -m "not long" --durations 20

test-long: $(DEV)
	$(BIN)/pytest -n 2 --dist worksteal -m long

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV)
	$(BIN)/python -m benchmarks

docs: .venv/.docs-ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis demo site examples/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the package needs to run; tests, checks and benchmarks need more, which `make demo` does without.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cautious needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) .
	touch $(READY)

$(DEV): $(READY)
	$(PIP) '.[dev]'
	touch $(DEV)

.venv/.docs-ready: $(DEV)
	$(PIP) '.[docs]'
	touch .venv/.docs-ready
