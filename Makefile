# Everything runs in .venv, which the first target that needs it makes. Requires Python >= 3.10 and a package index.
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: train test test-long bench lint docs format clean

train: $(VENV)/.installed
	$(BIN)/python train.py $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n auto -m "not long" $(ARGS)

test-long: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy .

# Builds the guide in site/. A broken link is an error.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) --editable ".[docs]"
	$(INSTALL_TAB)
	@touch $@

# Those that need no other project's checkout; an hour or so, on a machine that does nothing else.
bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/start.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/tokenizing.py
	$(BIN)/python benchmarks/watching.py
	$(BIN)/python benchmarks/tab.py
	$(BIN)/python benchmarks/optimizers.py

format: $(VENV)/.installed-test
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:
	rm -rf $(VENV)

# Installed again only when what is asked for changes. A half-made .venv has no such file and is completed.
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; PyTorch is large)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable ".[test]"
	@touch $@
