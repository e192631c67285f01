# Two commands do everything: `make train` and `make test`. Both build .venv themselves.

PYTHON ?= python3
PRESET ?= tiny
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin

.PHONY: train test install lint types integration clean

train: $(VENV)/.installed
	$(BIN)/codev train --preset $(PRESET) $(ARGS)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not integration" $(ARGS)

install: $(VENV)/.installed

# torch is asked for by its exact version: that is the CPU build where one is offered, and what follows accepts it.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "codev-env needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@echo "Installing into $(VENV) (about a minute with a fast connection) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[train,eval,photos,sandbox,data,corruptions,math,dev]"
	@touch $@

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Type checkers read folders, not installations: give them the packages under their import names.
types: $(VENV)/.installed
	mkdir -p build/types
	for pair in codev_env:codev_env agents:codev_agents train:codev_train eval:codev_eval; do \
		ln -sfn ../../$${pair%%:*} build/types/$${pair##*:}; done
	MYPYPATH=build/types $(BIN)/mypy

integration: $(VENV)/.installed
	$(BIN)/python -m pytest -m integration $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info
