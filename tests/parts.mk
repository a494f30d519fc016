# The tests, cut into parts: a process each. One pool runs them, and what else `make test` runs: make starts as many at a
# time as there are cores, the longest first, and shows what each printed at its end.
POOL = $(MAKE) --no-print-directory -k -j $(CORES) $(if $(filter output-sync,$(.FEATURES)),-O)
CORES := $(shell getconf _NPROCESSORS_ONLN)

CONFORMANCE := r-z p-q a-f g-o
part-a-f := $(wildcard tests/conformance/test_[a-f]*.py)
part-g-o := $(wildcard tests/conformance/test_[g-o]*.py)
part-p-q := $(wildcard tests/conformance/test_[p-q]*.py)
part-r-z := $(wildcard tests/conformance/test_[r-z]*.py)
part-fakecuda-a-f := $(wildcard tests/fakecuda/test_[a-f]*.py)
part-fakecuda-g-z := $(wildcard tests/fakecuda/test_[g-z]*.py)
part-examples := tests/examples
part-pure := tests/pure
part-loader := tests/pure/test_loader.py
part-properties := tests/properties
# what no other part names
part-rest := $(filter-out $(addprefix tests/,conformance fakecuda examples pure properties stress),$(patsubst %/,%,$(wildcard tests/*/)))
part-errors := tests/errors
part-compat := tests/compat
part-programs := tests/properties/test_programs.py tests/properties/test_graph_programs.py
part-devices := $(addprefix tests/multigpu/,test_places.py test_current.py test_grids.py) \
  tests/examples/test_examples.py::test_numbered_example_on_gpus

COMPILED := $(addprefix compiled-,examples pure fakecuda-g-z fakecuda-a-f properties rest $(CONFORMANCE))
UNCOMPILED := $(addprefix uncompiled-,properties pure $(CONFORMANCE))
UNCOMPILED_QUICK := $(addprefix uncompiled-,$(CONFORMANCE) loader)
STAND_IN := $(addprefix stand-in-,$(CONFORMANCE) programs devices errors compat)
.PHONY: $(COMPILED) $(UNCOMPILED) uncompiled-loader $(STAND_IN)

$(filter compiled-fakecuda%,$(COMPILED)): fakecuda # they use what it built

$(COMPILED): compiled-%: $(VENV)/built
	@$(call shown,$@,FAKECUDA_FOLDER=$(CURDIR)/$(FAKECUDA) $(PYTEST) $(part-$*))

$(UNCOMPILED) uncompiled-loader: uncompiled-%: $(VENV)/built
	@$(call shown,$@,STF_PURE=1 $(PYTEST) $(part-$*))

# The same tests on the CUDA driver, over stand-ins for CUDA's driver library and for CuPy.
$(STAND_IN): stand-in-%: fakecuda
	@missing=$$($(PYTHON) tests/fakecuda/build.py --missing); \
	if [ -n "$$missing" ]; then echo "$@: skipped, not there: $$missing"; exit; fi; \
	$(call shown,$@,LD_LIBRARY_PATH=$(CURDIR)/$(FAKECUDA) PYTHONPATH=$(CURDIR)/tests/fakecuda STF_SUBMIT_THREAD=1 \
	  STF_TEST_DEVICES=cuda:0$(comma)1 $(PYTEST) --ignore tests/conformance/test_processes.py $(part-$*))

comma := ,
shown = mkdir -p $(LOGS); echo "== $(1)"; $(2) | tee $(LOGS)/$(1).log

# How many tests of each form passed, from the last lines of their logs.
SUMMARY = for form in compiled uncompiled stand-in; do cat $(LOGS)/$$form-*.log /dev/null | awk -v form=$$form \
  '/ in [0-9.]+s/ { for (i = 2; i <= NF; i++) { if ($$i ~ /^passed/) passed += $$(i - 1); if ($$i ~ /^skipped/) skipped += $$(i - 1) } } \
   END { print form ":", passed + 0, "passed,", skipped + 0, "skipped" }'; done
