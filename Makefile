# `make serve` and `make test` set everything up by themselves. `make help` lists the rest.

PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help venv serve test fuzz lint bench-determinism bench embedded lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

venv: $(READY)  ## create .venv with the locked versions

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Python 3.11 is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

serve: $(READY)  ## serve the embedded model on 127.0.0.1:8000; Ctrl-C ends it
	@exec $(BIN)/serve run serve_config.yaml

test: $(READY)  ## all tests, as CI runs them
	$(BIN)/pytest

fuzz: $(READY)  ## requests made from the OpenAPI schema, many more than `make test` tries
	FUZZ_EXAMPLES=500 $(BIN)/pytest tests/deployments/test_fuzz.py

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench-determinism: $(READY)  ## the price of determinism: batch_invariant against relaxed
	$(BIN)/python -m benchmarks.determinism

bench: $(READY)  ## the other benchmarks; ARGS=--quick for a first look
	$(BIN)/python -m benchmarks $(ARGS)

embedded: $(READY)  ## make the embedded model anew, from its fixed seed
	$(BIN)/python -m pipeline.random_checkpoint models/embedded

lock:  ## write requirements.lock anew from pyproject.toml
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet '.[bench,test]'
	(sed '/^[^#]/d' requirements.lock; build/lock/bin/pip freeze --exclude moss-tts-serve | sed 's/+cpu$$//') > build/requirements.lock
	mv build/requirements.lock requirements.lock

clean:  ## remove .venv and build
	rm -rf $(VENV) build
