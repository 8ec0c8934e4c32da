# Two commands on a fresh machine: `make demo` and `make test`. Each makes .venv if it is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# What one process compiles of our Python others find, also where the environment says not to write it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-deep test-gpu check bench bench-gpu clean

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

# On a GPU where the environment has CuPy (pip install -e '.[gpu]') and a card; else every test skips and says why.
test-gpu: $(VENV)/installed
	LOOPWRIGHT_TEST_DEVICE=gpu $(BIN)/python -m pytest -n 4 -r s --override-ini filterwarnings=default \
		tests/test_launcher.py tests/test_devices.py tests/test_cuda_ops.py tests/test_cuda_programs.py tests/test_cuda_sorting.py \
		tests/test_gpu_tuning.py

# mypy reads the package as it is installed, so it gets a regular install of its own.
check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target $(VENV)/regular .
	MYPYPATH=$(VENV)/regular $(BIN)/mypy -p loopwright
	$(BIN)/python -m pytest tests/test_layers.py

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks

bench-gpu: $(VENV)/installed
	$(BIN)/python -m benchmarks.gpu

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
