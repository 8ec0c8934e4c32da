# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-deep check bench clean

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,examples]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/python examples/digits.py

test: $(VENV)/installed
	$(BIN)/python -m pytest

test-deep: $(VENV)/installed
	LOOPWRIGHT_TEST_SCALE=20 $(BIN)/python -m pytest --override-ini faulthandler_timeout=7200

# mypy reads the package as it is installed, so it gets a regular install of its own.
check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/regular .
	MYPYPATH=$(VENV)/regular $(BIN)/mypy -p loopwright
	$(BIN)/python -m pytest tests/test_layers.py

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
