# `make serve` and `make test` set everything up by themselves. `make help` lists the rest.

PYTHON ?= $(firstword $(shell command -v python3.11 python3))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BUILD := build/demo_voice

.PHONY: help venv serve test stress fuzz lint bench-determinism bench random demo-voice eval-voice lock clean

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

stress: $(READY)  ## a thousand clients that leave, hundreds of cloned voices
	ABORTS=1000 CLONES=320 $(BIN)/pytest tests/deployments/test_aborts.py

fuzz: $(READY)  ## requests made from the OpenAPI schema, many more than `make test` tries
	FUZZ_EXAMPLES=500 $(BIN)/pytest tests/deployments/test_fuzz.py

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench-determinism: $(READY)  ## the price of determinism: batch_invariant against relaxed
	$(BIN)/python -m benchmarks.determinism

bench: $(READY)  ## the other benchmarks; ARGS=--quick for a first look
	$(BIN)/python -m benchmarks $(ARGS)

random: $(READY)  ## make the random model anew, from its fixed seed
	$(BIN)/python -m pipeline.random_checkpoint models/random

demo-voice: $(BUILD)/.ready  ## train the embedded voice from nothing: hours, and goes on where it was stopped
	$(BIN)/pytest tests/training
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m training.demo_voice.corpus
	$(BIN)/python -m training.demo_voice.train_codec
	$(BIN)/python -m training.demo_voice.export_codec
	$(BIN)/python -m training.demo_voice.encode_corpus
	$(BIN)/python -m training.demo_voice.train_lm
	$(BIN)/python -m training.demo_voice.finetune_decoder
	$(BIN)/python -m training.demo_voice.export_codec
	$(BIN)/python -m training.demo_voice.export_lm
	$(BIN)/python -m training.demo_voice.assemble
	$(BIN)/python -m training.demo_voice.evaluate --model $(BUILD)/model

eval-voice: $(BUILD)/.ready  ## how well the embedded voice is understood
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m training.demo_voice.corpus --only-valid
	$(BIN)/python -m training.demo_voice.evaluate --model models/embedded

$(BUILD)/.ready: $(READY) training/demo_voice/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement training/demo_voice/requirements.txt
	mkdir -p $(BUILD) && touch $@

lock:  ## write requirements.lock anew from pyproject.toml
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet '.[bench,test]'
	(sed '/^[^#]/d' requirements.lock; build/lock/bin/pip freeze --exclude moss-tts-serve | sed 's/+cpu$$//') > build/requirements.lock
	mv build/requirements.lock requirements.lock

clean:  ## remove .venv and build
	rm -rf $(VENV) build
