# Everything a developer or a user types. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RUNS ?= runs/demo
STOP_AFTER_300_S := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true  # a test
unexport PYTHONDONTWRITEBYTECODE  # compiled tests and modules are shared by all test processes

.DEFAULT_GOAL := help

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml setup.py requirements/constraints.txt $(wildcard src/thalweg/native/c/*)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e '.[dev]'
	@touch $(READY)

setup: $(READY)  ## make the virtual environment (.venv), pinned versions; again only if something changed

demo: $(READY)  ## auto, FedDrift and FedAvg when members, classes and labels change; half a minute
	$(BIN)/thalweg compare fedavg feddrift auto --on mixed-digits --seeds 3 --out $(RUNS)

test: style  ## lint, types and tests; mypy runs beside the tests and reports after them
	@mkdir -p build
	@$(BIN)/mypy > build/mypy.txt 2>&1 & mypy=$$!; trap "kill $$mypy" INT; \
	$(BIN)/python -m pytest -m 'not slow' -n auto $(STOP_AFTER_300_S); tests=$$?; \
	wait $$mypy; types=$$?; cat build/mypy.txt; exit $$((tests + types))

test-slow: $(READY)  ## slow tests, a search for failing examples, and mutation testing
	$(BIN)/python -m pytest -m slow
	$(BIN)/python tools/mutation.py --sample 150
	HYPOTHESIS_PROFILE=search $(BIN)/python -m pytest -m hypothesis -n auto

test-deps:  ## Debian packages that some tests need (as root); without them those tests are skipped
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq dataset-fashion-mnist chromium mosquitto

lint: style  ## ruff, mypy and the length of Markdown lines
	$(BIN)/mypy

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_markdown.py

format: $(READY)  ## let ruff tidy up
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the API reference, made of docstrings, in build/reference
	$(BIN)/python docs/make_reference.py

bench: $(READY)  ## speed against a plain PyTorch loop, as ratios
	$(BIN)/python benchmarks/speed.py

lock: $(READY)  ## write requirements/constraints.txt anew from what is installed
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > requirements/constraints.txt

clean:  ## remove the virtual environment and caches (never runs/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

.PHONY: help setup demo test test-slow test-deps lint style format docs bench lock clean
