# magneto: every target that a developer needs.  `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
BUILD ?= build
# Its ninja does not take the job server of a parallel make.
MESON := env -u MAKEFLAGS PATH=$(CURDIR)/.venv/bin:$$PATH .venv/bin/meson
export PYTHONPATH := $(CURDIR)/python:$(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
SOURCES := src/base src/ir src/middle src/back src/ptx src/cuda src/runtime src/driver src/host src/entry src/record src/frame src/api tests/unit
TESTS ?= tests
WORKERS ?= 2
# Test files of tests/front by their names, whatever their room.
FRONT = $(wildcard $(patsubst %,tests/front/*/test_%.py,$(1)))
# Of each area what is quick.
CHECK_TESTS ?= tests/golden tests/ir tests/docs tests/support $(call FRONT,api breaks guards objects values)
# Tests that do again what `make check` has just done.
CHECKED = $(patsubst %,--deselect=tests/docs/test_check_%,arguments.py::test_the_sources_are_clean \
  comments.py::test_the_comments_are_right docs.py::test_the_documents_are_right)
# What `make test-integrations` runs: doors of frameworks, and what is said of them.
INTEGRATIONS ?= tests/integrations tests/generate tests/docs/test_examples.py
# Are names of sources in the documents that do not exist warnings or errors?
DOCS_SRC ?= error
# What depends on the width of vectors, and a machine of level v3 for magneto and for what it is compared with.
NUMERICAL := tests/differential tests/middle tests/ops tests/programs
AT_V3 := MAGNETO_CPU=v3 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2
# Entries that nobody sets hold a pattern, so that reading one is seen.  gcc's warnings are wrong under sanitizers.
ASAN_SETUP := -Doptimization=1 -Dwerror=false -Db_sanitize=address,undefined -Db_lundef=false -Dc_args=-ftrivial-auto-var-init=pattern
# CPython and torch are not instrumented: what they keep is no leak, and libstdc++'s operator new is not the sanitizer's.
ASAN_ENV = LD_PRELOAD=$$(cc -print-file-name=libasan.so):$$(cc -print-file-name=libubsan.so) PYTHONMALLOC=malloc MAGNETO_STRICT=1 \
  ASAN_OPTIONS=detect_leaks=0:alloc_dealloc_mismatch=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  PYTHONPATH=$(CURDIR)/build-asan-ext/python:$(CURDIR)
# What runs object lifetimes, exceptions and guards: about 5 minutes of one core, after 3.5 for the build.  Everything:
# make asan-ext ASAN_TESTS=tests (an hour).  A crash is printed by: make asan-ext ASAN_TESTS=tests/... WORKERS=0
ASAN_TESTS ?= tests/middle $(call FRONT,api bad_input breaks cache dynamic_ints exception_state \
  guards handlers imports large_containers life numbers obj_classes obj_containers obj_effects obj_misc objects snapshot \
  state_numbers tensor_semantics values view_state)

# The Python files and folders of the package, for builds of their own.
PACKAGE = $(filter-out %.so %/__pycache__,$(wildcard $(CURDIR)/python/magneto/*))

# What runs much in little time, in one process, on which the probes of Python code rely.
COVERAGE_TESTS ?= $(filter-out tests/ir tests/docs,$(CHECK_TESTS)) tests/report \
  $(call FRONT,api_explain api_keywords api_marks dynamic_ints fx_functions fx_graph fx_regions)
# Percentages: less is an error.  The quick tests alone reach these (2026-11-24); who covers more raises them.
LEAST_C ?= 62
LEAST_PYTHON ?= 31
COVERAGE := $(CURDIR)/build-coverage

.PHONY: help setup build unit demo test levels quick test-integrations fuzz accept lint-tools format lint check layers comments asan asan-unit asan-ext coverage wheel bench docs docs-check clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
setup: ## make .venv; install what is missing
	@tools/setup.sh
build: setup ## compile the extension into python/magneto
	@test -f $(BUILD)/build.ninja || $(MESON) setup $(BUILD) > /dev/null
	@python3 tools/sources.py $(SOURCES) > $(BUILD)/sources.new
	@cmp -s $(BUILD)/sources.new $(BUILD)/sources.old || { touch meson.build; cp $(BUILD)/sources.new $(BUILD)/sources.old; }
	@$(MESON) compile -C $(BUILD) --ninja-args=--quiet
	@cmp -s $(BUILD)/_magneto*.so python/magneto/_magneto*.so || cp --remove-destination $(BUILD)/_magneto*.so python/magneto/
	@$(PY) tools/metadata.py
unit: build ## the C tests of the core
	@$(MESON) test -C $(BUILD) --print-errorlogs
demo: build ## a real model, eager against magneto
	@$(PY) -m bench.demo
test: build ## the whole default suite
	@$(MESON) test -C $(BUILD) --print-errorlogs
	@MAGNETO_STRICT=1 MALLOC_PERTURB_=165 $(PY) -m pytest -q -n $(WORKERS) --timeout=600 $(TESTS)
levels: build ## the tests of numbers at the vector levels below this machine's
	@for level in v2 v3; do MAGNETO_CPU=$$level $(MESON) test -C $(BUILD) --print-errorlogs || exit 1; done
	@if grep -q avx512vl /proc/cpuinfo; then $(AT_V3) MAGNETO_STRICT=1 $(PY) -m pytest -q -n $(WORKERS) --timeout=600 $(NUMERICAL); fi
quick: build ## the front-end and back-end tests without models
	@MAGNETO_STRICT=1 MALLOC_PERTURB_=165 $(PY) -m pytest -q -n $(WORKERS) --timeout=300 tests -m "not model"
test-gpu: ## the tests of CUDA, on this machine's GPU (PY=python3: with a torch that has CUDA, and magneto importable)
	@$(PY) -c 'import torch, magneto; assert torch.cuda.is_available(), "torch finds no GPU"'
	@MAGNETO_STRICT=1 $(PY) -m pytest -q -n $(WORKERS) --timeout=600 tests/cuda
test-integrations: build ## frameworks and libraries that compile by name, in .venv-integrations (PACKAGES="timm kornia": these only)
	@PACKAGES="$(PACKAGES)" WORKERS=$(WORKERS) tools/integrations.sh $(INTEGRATIONS)
fuzz: build ## random programs against eager (SECONDS=n SEED=s FAIL_ON=crashes DEVICE=cuda KEEP=1, or ONE='kind seed'); failures are saved in build/fuzz
	@MAGNETO_STRICT=1 $(PY) tests/fuzz --seconds $(or $(SECONDS),120) $(if $(SEED),--seed $(SEED)) $(if $(FAIL_ON),--fail-on $(FAIL_ON)) $(if $(ONE),--one $(ONE)) $(if $(DEVICE),--device $(DEVICE)) $(if $(KEEP),--keep)
accept: build ## rewrite the expected output of the golden tests
	@MAGNETO_ACCEPT=1 $(PY) -m pytest -q tests/golden
lint-tools:
	@test -x .venv-lint/bin/python || python3 -m venv .venv-lint
	@cmp -s requirements/lint.txt .venv-lint/requirements.txt || { .venv-lint/bin/python -m pip install --quiet \
	  --disable-pip-version-check -r requirements/lint.txt && cp requirements/lint.txt .venv-lint/requirements.txt; }
format: lint-tools ## format C and Python
	@git ls-files '*.c' '*.h' | xargs .venv-lint/bin/clang-format -i
	@.venv-lint/bin/ruff format --quiet .
lint: lint-tools setup ## is everything formatted, do ruff and mypy find nothing in Python, are arguments of ops named?
	@git ls-files '*.c' '*.h' | xargs .venv-lint/bin/clang-format --dry-run -Werror
	@.venv-lint/bin/ruff format --check --quiet .
	@.venv-lint/bin/ruff check --quiet .
	@.venv-lint/bin/mypy --python-executable $(PY) --no-error-summary
	@python3 tools/check_arguments.py
check: ## what to run before a commit: lint, layers, documents, C tests, quick tests (4 minutes)
	@$(MAKE) --no-print-directory -j$(WORKERS) --output-sync lint layers comments docs-check unit
	@MAGNETO_STRICT=1 MALLOC_PERTURB_=165 $(PY) -m pytest -q -n $(WORKERS) --timeout=300 -m "not sweep" $(CHECKED) $(CHECK_TESTS)
layers: ## includes go downward; files stay short
	@python3 tools/layers.py src
comments: ## names, files and codes in comments exist
	@python3 tools/check_comments.py
asan-unit: setup ## the C tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@grep -qs auto-var-init build-asan/build.ninja || { rm -rf build-asan; $(MESON) setup build-asan -Dextension=false $(ASAN_SETUP) > /dev/null; }
	@$(MESON) test -C build-asan --print-errorlogs
asan: asan-unit asan-ext ## both
asan-ext: setup ## Python tests with the whole extension under them (all Python tests: ASAN_TESTS=tests)
	@test -f build-asan-ext/build.ninja || $(MESON) setup build-asan-ext $(ASAN_SETUP) > /dev/null
	@$(MESON) compile -C build-asan-ext --ninja-args=--quiet > /dev/null
	@mkdir -p build-asan-ext/python/magneto
	@ln -sfn $(PACKAGE) \
	  $(CURDIR)/build-asan-ext/_magneto*.so build-asan-ext/python/magneto/
	@$(ASAN_ENV) $(PY) -m pytest -q -s -n $(WORKERS) --timeout=1200 $(ASAN_TESTS)
wheel: ## wheels for manylinux_2_28 of each CPython that is found, and the sdist, in dist/ (PYTHONS="python3.12 ...": of these)
	@tools/wheel.sh
coverage: setup ## what tests run of src/ and python/magneto; too little is an error (COVERAGE_TESTS=tests/..., V=1 lists the rest)
	@test -f build-coverage/build.ninja || $(MESON) setup build-coverage -Db_coverage=true -Doptimization=1 -Dwerror=false > /dev/null
	@$(MESON) compile -C build-coverage --ninja-args=--quiet > /dev/null
	@mkdir -p build-coverage/python/magneto
	@ln -sfn $(PACKAGE) \
	  $(COVERAGE)/_magneto*.so build-coverage/python/magneto/
	@find build-coverage -name '*.gcda' -delete; rm -f build-coverage/python-*.json
	@$(MESON) test -C build-coverage --print-errorlogs
	@MAGNETO_STRICT=1 COVERAGE_FOLDER=$(COVERAGE) PYTHONPATH=$(COVERAGE)/python:$(CURDIR):$(CURDIR)/tools \
	  $(PY) -m pytest -q -p coverage_probe --timeout=1200 $(COVERAGE_TESTS)
	@python3 tools/coverage_table.py build-coverage --least-c $(LEAST_C) --least-python $(LEAST_PYTHON) $(if $(V),--never)
bench: build ## the benchmark tables of docs/benchmarks.md
	@$(PY) -m bench cpu
docs-check: ## sentences, links, names and tables of the documents (sources that moved are warnings; errors: DOCS_SRC=error)
	@python3 tools/check_docs.py --src $(DOCS_SRC)
docs: docs-check ## the documents as a site, in site/
	@test -x .venv-docs/bin/python || python3 -m venv .venv-docs
	@cmp -s requirements/docs.txt .venv-docs/requirements.txt || { .venv-docs/bin/python -m pip install --quiet \
	  --disable-pip-version-check -r requirements/docs.txt && cp requirements/docs.txt .venv-docs/requirements.txt; }
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --quiet
clean: ## remove build output
	@rm -rf build build-asan build-asan-ext build-coverage site python/magneto/*.so
