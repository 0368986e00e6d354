# All targets run in .venv, which is created on first use. Requires Python >= 3.10 and a package index.
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# All tests of a file run in one worker, so that their shared fixtures are made once.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: train test test-long bench lint docs format clean

train: $(VENV)/.installed
	$(BIN)/python train.py $(ARGS)

test: $(VENV)/.installed-test
	$(PYTEST) -m "not long" $(ARGS)

# Also checks the shapes in all signatures at every call, which doubles the time of tests that run the model.
test-long: $(VENV)/.installed-long
	$(PYTEST) -p tests.typechecker --jaxtyping-packages=data,model.attention,model.circuit,model.explain,model.gpt,model.hooks,model.layers,model.loss,store,training,inference,observe,live,tests.typechecker.typechecker $(ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy .

# Builds the guide in site/. A broken link is an error.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) --editable ".[docs]"
	@touch $@

# Benchmarks that need no checkout of another project; run them on a machine that does nothing else.
bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/steps.py
	$(BIN)/python benchmarks/watching.py

format: $(VENV)/.installed-test
	-$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:
	rm -rf $(VENV)

# Installs again only when the requirements change. The marker file is written last, so that an interrupted installation is
# completed.
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once, some minutes: PyTorch is large)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "error: Python 3.10 to 3.14 is needed; give one, such as make train PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable ".[test]"
	@touch $@

# There is no wheel of llama-cpp-python: llama.cpp is compiled, once, for some minutes. Not for this CPU alone: its products
# of q8_0 with AMX instructions end in a segmentation fault.
$(VENV)/.installed-long: $(VENV)/.installed-test
	CMAKE_ARGS="-DGGML_NATIVE=OFF" $(PIP) --editable ".[llama]"
	@touch $@
