# Each target does its own set-up on a fresh clone. The first run makes .venv and builds; later runs are quick.
#
#   make test       build, lint, types, and the quick tests: compiled, uncompiled, and of the CUDA driver on a stand-in
#   make test-all   all tests, before a change is called done                 make demo       the Cholesky example
#   make stress     long random programs                                      make bench      overhead per task, grain, workloads
#   make gpu-test   the tests on this machine's GPUs                 make gpu-bench  cost per task on a GPU
#   make wheel      source distribution and wheels (GCC goes by a profile), each tried in a clean environment
#   make lint       ruff and mypy       make typecheck       mypy             make pure-test  tests, uncompiled
#   make fakecuda-test                  tests on the stand-in for CUDA
#   make bench AGAINST=COMMIT           CPU time of an earlier commit and of this one, in turn
#   make optimized                      build again, by a profile of what runs (GCC): tasks cost up to a fifth less
#   make docs       the documentation as a site, in build/docs           make clean      remove what was built
#   make tsan       the C of loops and pools under ThreadSanitizer

SHELL := /bin/bash
.SHELLFLAGS := -eo pipefail -c
.DEFAULT_GOAL := test
.PHONY: test test-all everything fakecuda faults demo stress tsan bench gpu-build gpu-optimized gpu-test gpu-bench optimized wheel docs lint typecheck pure-test fakecuda-test build modules clean

SYSTEM_PYTHON ?= python3
VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check -q

# Tests start hundreds of processes, which are quicker with bytecode; it does not lie among the sources.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache

# With a C compiler, what doesn't compile is an error; without one, stf is installed uncompiled.
CC ?= cc
export STF_COMPILE ?= $(if $(shell command -v $(firstword $(CC))),always,auto)

DECLARED := $(shell find src/stf -name '*.pxd' -o -name '*.pyx')
SOURCES := $(DECLARED) $(wildcard $(DECLARED:.pxd=.py))
CHECKED := $(wildcard src tests examples benchmarks docs setup.py)
PYTEST := $(PYTHON) -m pytest -q
LOGS := build/logs
LIBRARIES ?= test
FAKECUDA := build/fakecuda

include tests/parts.mk

# Every driver and both forms of the modules, with less of what repeats itself. The modules are compiled with -O0.
test: export STF_TEST_QUICK := 1
test: export STF_CFLAGS ?= -O0
test: UNCOMPILED := $(UNCOMPILED_QUICK)
test: everything

# All tests, all rows, all repeats: what a change has to pass before it is called done.
test-all: everything

everything: $(VENV)/built $(VENV)/test
	@rm -rf $(LOGS)
	@$(POOL) fakecuda lint $(COMPILED) $(STAND_IN) $(UNCOMPILED)
	@echo "$(MAKECMDGOALS): lint and types clean; $$($(SUMMARY))"

demo: export LIBRARIES := examples
demo: $(VENV)/built $(VENV)/examples
	$(PYTHON) examples/gp_cholesky.py --out demo

stress: $(VENV)/built $(VENV)/test
	$(PYTEST) -n auto --maxprocesses 8 --dist worksteal tests/stress

# Loops and pools of compiled bodies: races in their C, without Python.
tsan:
	@mkdir -p build/tsan
	$(CC) -g -O1 -fsanitize=thread -Wno-unused-function tests/tsan/loops.c -o build/tsan/loops -pthread
	setarch -R build/tsan/loops 3000 1
	$(CC) -g -O1 -fsanitize=thread -Wno-unused-function tests/tsan/pools.c -o build/tsan/pools -pthread
	setarch -R build/tsan/pools 3000 1

# With AGAINST=COMMIT: that commit and this tree in turn.
ifdef AGAINST
bench: build
	$(PYTHON) benchmarks/overhead/against.py $(AGAINST)
else
bench: export LIBRARIES := bench
bench: build $(VENV)/bench
	$(PYTHON) benchmarks/overhead/run.py --plot build/bench/overhead.png
	$(PYTHON) benchmarks/overhead/grain.py --plot build/bench/grain.png
	$(PYTHON) benchmarks/task_bench/run.py --plot build/bench/task_bench.png
	$(PYTHON) benchmarks/overhead/gil.py
	$(PYTHON) benchmarks/overhead/flat.py --plot build/bench/flat.png --check
	$(PYTHON) benchmarks/overhead/python_loops.py
	$(PYTHON) benchmarks/workloads/cholesky/run.py
	$(PYTHON) benchmarks/workloads/tiled_product/run.py
endif

# The site, from the sources, which need not be compiled; warnings are errors, and so is a link within it that leads nowhere.
docs: $(VENV)/docs
	rm -rf build/docs # so that no page of before is left
	STF_PURE=1 PYTHONPATH=src $(PYTHON) -m sphinx -q -E -j auto -n -W --keep-going -d build/doctrees docs build/docs
	$(PYTHON) docs/links.py build/docs

# On a machine with GPUs whose Python has what is needed (see docs): builds in place, without network.
GPU_PYTHON ?= python3
gpu-build:
	STF_COMPILE=always $(GPU_PYTHON) setup.py -q build_ext --inplace

define optimize
	bash tests/install/learn.sh $(1)
	STF_COMPILE=always STF_PROFILE=use $(1) setup.py -q build_ext --inplace --force
endef

gpu-optimized:
	$(call optimize,$(GPU_PYTHON))

gpu-test: gpu-build
	GPU_PYTHON="$(GPU_PYTHON)" bash tests/cuda/run.sh

gpu-bench: gpu-optimized
	PYTHONPATH=src:$$PYTHONPATH $(GPU_PYTHON) benchmarks/cuda/run.py
	PYTHONPATH=src:$$PYTHONPATH $(GPU_PYTHON) benchmarks/cuda/python_kernels.py

lint: $(VENV)/built $(VENV)/test
	$(PYTHON) -m ruff check $(CHECKED)
	$(PYTHON) -m ruff format --check $(CHECKED)
	$(PYTHON) -m mypy

typecheck: $(VENV)/built $(VENV)/test
	$(PYTHON) -m mypy

pure-test: $(VENV)/built $(VENV)/test
	@$(POOL) $(UNCOMPILED)

# The stand-in for CUDA's driver library, and what notes the calls that it gets, where there is what they are built from.
fakecuda: $(VENV)/built $(VENV)/test
	@if [ -z "$$($(PYTHON) tests/fakecuda/build.py --missing)" ]; then \
	  $(PYTHON) tests/fakecuda/build.py $(FAKECUDA); $(PYTHON) tests/cudatrace/build.py $(FAKECUDA)/trace > /dev/null; fi

# Faults planted in the engine: the quick tests must find each.
faults: $(VENV)/built $(VENV)/test
	$(PYTHON) tests/faults/run.py

fakecuda-test: fakecuda
	@$(POOL) $(STAND_IN)

build: $(VENV)/built
	$(PYTHON) setup.py -q build_ext --inplace # with all optimizations, where `make test` has built it without

# What it learns of CUDA, it learns on the stand-in.
optimized: export LD_LIBRARY_PATH := $(CURDIR)/$(FAKECUDA)
optimized: export PYTHONPATH := $(CURDIR)/tests/fakecuda
optimized: fakecuda
	rm -f $(VENV)/built # if it is interrupted, what is there is a build that records
	$(call optimize,$(PYTHON))
	touch $(VENV)/built

PYTHONS ?= $(SYSTEM_PYTHON)
wheel:
	PYTHONS="$(PYTHONS)" bash tests/install/run.sh

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || :
	find src \( -name '*.so' -o -name '*.pyd' \) -delete

# The build requirements stay in the environment, so that a rebuild needs no network and no isolated environment. There
# is a list for each extra: what is installed by it builds nothing of stf again.
define REQUIREMENTS
import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
lists = {"build": project["build-system"]["requires"]}
for name in ("test", "examples", "bench", "docs"):
    lists[name] = project["project"]["dependencies"] + project["project"]["optional-dependencies"][name]
for name, found in lists.items():
    pathlib.Path("$(VENV)", name + "-requirements.txt").write_text("\n".join(found))
endef
export REQUIREMENTS

$(VENV)/requirements: pyproject.toml
	test -x $(PYTHON) || $(SYSTEM_PYTHON) -m venv $(VENV)
	$(PYTHON) -c "$$REQUIREMENTS"
	$(PIP) install --no-compile -r $(VENV)/build-requirements.txt
	touch $@

# Beside the compiler in the call of make below; by themselves when it is done, so that no two run at a time.
$(VENV)/test $(VENV)/examples $(VENV)/bench: $(VENV)/requirements | $(if $(filter 0,$(MAKELEVEL)),$(VENV)/installed)
$(VENV)/docs: $(VENV)/requirements
$(VENV)/test $(VENV)/examples $(VENV)/bench $(VENV)/docs:
	$(PIP) install --no-compile -r $@-requirements.txt
	touch $@

# The compiler is at work while pip waits for the network.
$(VENV)/installed: $(VENV)/requirements setup.py
	$(MAKE) --no-print-directory -j 2 $(VENV)/$(LIBRARIES) modules
	$(PIP) install --no-compile --no-build-isolation --no-deps -e .
	touch $@

modules:
	$(PYTHON) setup.py -q build_ext --inplace

$(VENV)/built: $(VENV)/installed $(SOURCES)
	$(PYTHON) setup.py -q build_ext --inplace
	touch $@
