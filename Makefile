# Two commands for everybody: `make demo` runs the main job, `make test` the tests. Each makes .venv if missing.
PYTHON ?= python3
BIN := .venv/bin
VENV_READY := .venv/ready

.PHONY: demo test test-all check format bench clean

demo: $(VENV_READY)
	$(BIN)/python -m mkevolve model=resnet_block

# Two test files at a time: most of their time is spent in one child process each.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

test: $(VENV_READY)
	$(PYTEST) --slow=sample

test-all: $(VENV_READY)
	$(PYTEST) --slow=all

check: $(VENV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV_READY)
	$(BIN)/python -m tests.bench.figures

.venv/ready: pyproject.toml constraints.txt .ci/venv
	bash .ci/venv $(PYTHON)
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
