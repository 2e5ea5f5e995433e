# Two commands do all set-up: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test check speed clean

run: $(STAMP)  ## the main job: score, compare and audit two models, choose a threshold
	$(BIN)/openauc evaluate examples/network.npz examples/linear.npz --max-ofpr 0.1
	$(BIN)/openauc compare examples/network.npz examples/linear.npz
	$(BIN)/openauc audit examples/network.npz
	$(BIN)/openauc threshold examples/network.npz --target known_acceptance=0.95

test: $(STAMP) lint  ## everything CI runs
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

check: $(STAMP) style  ## the fast part, under a minute
	$(BIN)/python -m pytest -m "not slow" tests/metrics/test_ranking.py tests/metrics/test_decision.py \
		tests/metrics/test_curve.py tests/contracts/test_layers.py tests/test_validation.py tests/test_cli.py \
		tests/test_readme.py

.PHONY: lint style
style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lint: style
	$(BIN)/python -m pytest --doctest-modules src/openauc

speed: $(STAMP)  ## measure, and write benchmark/results/speed.*
	$(BIN)/python benchmark/speed.py

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
