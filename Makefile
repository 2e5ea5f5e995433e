# Two commands do all set-up: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# `make run` needs less than the tests, and is the first thing a new user waits for.
FOR_RUN := $(VENV)/.for_run
FOR_TESTS := $(VENV)/.for_tests
# A browser for the report's pages; two databases for the SQL queries, of which one needs Java.
DEBIAN := chromium postgresql openjdk-17-jre-headless

.PHONY: run test check docs speed clean

run: $(FOR_RUN)  ## a first look: all nine methods on the embedded digits, and "unknown" for a classifier
	@mkdir -p runs
	@$(BIN)/python examples/add_unknown.py >runs/unknown.txt & \
		$(BIN)/openauc run digits --baseline ce_plus && wait $$! && cat runs/unknown.txt
	@echo
	@echo "open  runs/digits/report.html: the nine methods, with intervals"
	@echo "try   $(BIN)/openauc discover runs/unknown/model runs/unknown/later.parquet -o runs/unknown/groups"
	@echo "read  README.md: which path is mine?"

test: $(FOR_TESTS)  ## everything CI runs
	$(MAKE) --jobs 2 --output-sync=target lint docs
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered --durations=10

check: $(FOR_TESTS) style  ## the fast part, under a minute
	$(BIN)/python -m pytest -m "not slow" tests/metrics/test_ranking.py tests/metrics/test_decision.py \
		tests/metrics/test_curve.py tests/contracts/test_layers.py tests/test_validation.py tests/test_cli.py \
		tests/test_readme.py

LOWEST := $(VENV)/lowest
.PHONY: lowest
lowest: $(LOWEST)/.for_tests  ## tests with the lowest versions that are supported
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -m "not slow" tests/test_cli.py tests/test_predictions.py \
		tests/metrics/test_ranking.py tests/test_plotting.py tests/report/test_predictions.py tests/test_torch.py \
		tests/features/classifier/test_estimator.py tests/features/classifier/test_files.py \
		tests/features/classifier/test_onnx.py tests/features/classifier/test_hub.py tests/test_encoders.py \
		tests/training/test_loop.py

.PHONY: lint style doctests
style: $(FOR_TESTS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

lint: style doctests

doctests: $(FOR_TESTS)
	$(BIN)/python -m pytest --doctest-modules src/openauc

docs: $(FOR_TESTS)  ## the documentation, docs/_build/index.html; its tutorials run, a warning is an error
	rm -rf docs/generated/api
	$(BIN)/sphinx-build -q -W --keep-going docs docs/_build

speed: $(FOR_TESTS)  ## measure, and write benchmark/results/speed.*
	$(BIN)/python benchmark/speed.py

$(VENV):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt

$(FOR_RUN): pyproject.toml constraints.txt | $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[train,sklearn]"
	touch $@

$(FOR_TESTS): pyproject.toml constraints.txt | $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	{ dpkg -s $(DEBIAN) || { apt-get update -qq && apt-get install -y -qq $(DEBIAN); }; } >/dev/null 2>&1 \
		|| echo "not all of $(DEBIAN) are here: tests without what they need are skipped, or fail where CI is set"
	touch $(FOR_RUN) $@

$(LOWEST)/.for_tests: pyproject.toml constraints-lowest.txt | $(VENV)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet -c constraints-lowest.txt -e ".[all]" hypothesis pandas pytest
	touch $@

clean:
	rm -rf docs/_build docs/generated $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
