# The commands of this repository; README.md and CONTRIBUTING.md explain them.
# One profile (release) everywhere: nothing is compiled twice.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

# An empty HOME with CARGO_HOME given finds cargo here.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTHON ?= python3
VENV := $(CURDIR)/.venv
BRAMBLING := $(VENV)/bin/brambling
XTASK := cargo run --quiet --release -p xtask --
BENCHES := task-rate barrier job-start task-graph logistic kmeans pagerank python-kernel
PICTURES := build/demo
THREADS ?=
# Of the soak: an hour or two for a million.
SEEDS ?= 1000000
BENCH_OPTIONS := $(if $(THREADS),--threads $(THREADS))

# What is being built by and by: a step is skipped, aloud, only while its folder does not exist.
HAS_PYTHON := $(wildcard python/pyproject.toml)
HAS_PYTHON_TESTS := $(wildcard python/tests/test_*.py)
WITH_LOOM := $(addprefix brambling-,$(patsubst crates/%/tests/loom.rs,%,$(wildcard crates/*/tests/loom.rs)))
HAS_FUZZ := $(wildcard fuzz/Cargo.toml)
RUST_EXAMPLES := $(basename $(notdir $(wildcard examples/*.rs)))
PYTHON_EXAMPLES := $(wildcard examples/*.py)
WITH_MUTANTS := $(shell for file in $$(grep -ls '^mutants = ' crates/*/Cargo.toml); do \
	sed -n 's/^name = "\(.*\)"/\1/p' "$$file"; done)

SOURCES := $(shell find Cargo.toml Cargo.lock crates bench python -type f \
	\( -name '*.rs' -o -name '*.toml' -o -name '*.lock' \) 2>/dev/null)
comma := ,
empty :=
space := $(empty) $(empty)
say = @echo "== $(1)"
skip = @echo "-- $(1): does not exist yet"

# Tests of stores in buckets need a server that honours conditional puts; without Go they are skipped, aloud.
S3_SERVER := build/s3/bin/versitygw
S3_SERVER_VERSION := v1.8.0
GO := $(firstword $(wildcard $(shell command -v go 2>/dev/null) /usr/local/go/bin/go))

.PHONY: help demo test claims lint bench peers fmt clean soak install docs rustdoc \
	test-rust test-mutants test-loom test-fuzz test-examples test-python test-types test-docs test-smoke

help:
	@echo "make demo     336,776 real flights: build, install into .venv, run; pictures in $(PICTURES)"
	@echo "make test     everything that has to hold before a commit"
	@echo "make claims   the acceptance: every point with its figure and its bar (OF=engine: one file's)"
	@echo "make bench    the benches (THREADS=N)"
	@echo "make peers    beside scikit-learn, SciPy, NetworKit, Spark, Polars, DuckDB, GNU sort, ripgrep (OF=kmeans SIZE=small)"
	@echo "make docs     the pages as a site, in build/site, with every link checked and every example run"
	@echo "make lint     format, clippy, layers, lints, licences, invariants, pages"
	@echo "make soak     a million random programs and simulated clusters (SEEDS=100000)"
	@echo "make fmt      format all sources"
	@echo "make clean    remove everything that was built"

demo: install
	$(call say,the demo: flights that are late$(comma) flights that are alike$(comma) airports that matter)
	$(BRAMBLING) run flights --pictures $(PICTURES)
	$(call say,the words of the pages$(comma) counted by map-reduce)
	$(BRAMBLING) run word_count docs/*.md

test: lint test-rust test-mutants test-loom test-fuzz test-examples test-python test-types test-docs test-smoke
	$(call say,all steps passed)

# What cannot be built is missed, with its reason; it does not keep the other points from running.
claims:
	-@$(MAKE) --no-print-directory install
	$(call say,the acceptance)
	cargo run --release -p xtask -- claims $(if $(OF),--of $(OF))

# ---- the Python package, built and installed into .venv

ifneq ($(HAS_PYTHON),)
install: build/installed
else
install:
	$(call skip,the Python package)
endif

build/venv:
	$(call say,a Python environment in .venv)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet maturin numpy cloudpickle pytest
	@mkdir -p build && touch $@

build/installed: build/venv $(SOURCES) $(wildcard python/pyproject.toml)
	$(call say,the package into .venv; the first build takes minutes and prints nothing)
	cd python && VIRTUAL_ENV=$(VENV) $(VENV)/bin/maturin develop --release --quiet --extras demo,test
	@touch $@

# ---- the steps of `make test`

lint:
	$(call say,format)
	cargo fmt --all --check
	$(call say,clippy)
	cargo clippy --quiet --release --workspace --all-targets -- -D warnings
	$(call say,layers)
	$(XTASK) layers
	$(call say,lints)
	$(XTASK) lints
	$(call say,licences)
	$(XTASK) licences
	$(call say,invariants)
	$(XTASK) invariants
	$(call say,pages: their size$(comma) and that every figure is one of bench/results)
	$(PYTHON) docs/site/pages.py
	$(PYTHON) bench/results/tables.py --check

$(S3_SERVER):
ifneq ($(GO),)
	$(call say,a server of S3 for tests$(comma) in build/s3; once$(comma) two minutes)
	GOBIN=$(CURDIR)/build/s3/bin $(GO) install github.com/versity/versitygw/cmd/versitygw@$(S3_SERVER_VERSION) \
		|| echo "-- tests of stores in buckets: skipped, the server could not be installed"
else
	@echo "-- tests of stores in buckets: skipped, there is no go to install a server with"
endif

test-rust: $(S3_SERVER)
	$(call say,tests of all crates)
	cargo test --release --workspace

# Tests that switch mutants on have "mutant" in their names.
test-mutants: $(S3_SERVER)
	$(call say,mutants are caught)
	cargo test --release $(addprefix --package ,$(WITH_MUTANTS)) --lib --tests \
		--features $(subst $(space),$(comma),$(addsuffix /mutants,$(WITH_MUTANTS))) mutant

test-loom:
ifneq ($(WITH_LOOM),)
	$(call say,loom: the races of queues and slots and wake-up)
	RUSTFLAGS="--cfg brambling_loom" cargo test --release $(addprefix --package ,$(WITH_LOOM)) --test loom --target-dir target/loom
else
	$(call skip,loom tests)
endif

test-fuzz:
ifneq ($(HAS_FUZZ),)
	$(call say,fuzz targets replay their corpus)
	cargo test --release --manifest-path fuzz/Cargo.toml
else
	$(call skip,fuzz targets)
endif

test-examples: install
ifneq ($(RUST_EXAMPLES),)
	$(call say,examples in Rust)
	for name in $(RUST_EXAMPLES); do \
		cargo run --quiet --release --example "$$name"; done
else
	$(call skip,examples in Rust)
endif
ifneq ($(and $(HAS_PYTHON),$(PYTHON_EXAMPLES)),)
	$(call say,examples in Python)
	for file in $(PYTHON_EXAMPLES); do $(BRAMBLING) run "$$file"; done
else
	$(call skip,examples in Python)
endif

test-python: install $(S3_SERVER)
ifneq ($(HAS_PYTHON_TESTS),)
	$(call say,tests of the Python package)
	cd python && $(VENV)/bin/python -m pytest -q tests
	$(call say,tests of what sets other systems beside ours; without them)
	$(VENV)/bin/python -m pytest -q bench/peers
	$(call say,tests of the checks of pages)
	$(VENV)/bin/python -m pytest -q bench/results docs/site
else
	$(call skip,tests of the Python package)
endif

test-types: install
ifneq ($(HAS_PYTHON),)
	$(call say,types: the stubs agree with the package)
	bench/claims/package.sh stubs
else
	$(call skip,types)
endif

test-docs: install build/docs-venv
ifneq ($(HAS_PYTHON),)
	$(call say,examples in README.md and docs)
	$(XTASK) doc-examples $(VENV)/bin/python
else
	$(call skip,examples in README.md and docs)
endif
	$(call say,the pages as a site)
	build/docs-venv/bin/python docs/site/build.py

# What the site shows of Rust: the engine, and the crates whose items it hands on.
DOCUMENTED := brambling $(addprefix brambling-,machine memory operators program worker)

# The examples in Rust are tests of the engine: test-rust runs them too.
docs: rustdoc test-docs
	$(call say,examples in Rust)
	cargo test --quiet --release --package brambling --doc

rustdoc:
	$(call say,the reference of Rust)
	cargo doc --quiet --release --no-deps $(addprefix --package ,$(DOCUMENTED))

build/docs-venv: docs/site/requirements.txt
	$(call say,what builds the pages)
	rm -rf $@
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install --quiet --requirement $<
	@touch $@

test-smoke: install
ifneq ($(HAS_PYTHON),)
	$(call say,the demo and the benches, briefly)
	$(BRAMBLING) run flights --pictures $(PICTURES)
	for name in $(BENCHES); do $(BRAMBLING) bench "$$name" --smoke; done
else
	$(call skip,the demo and the benches)
endif

# ---- the rest

bench: install
	$(call say,benches: nothing else should run on this machine)
	for name in $(BENCHES); do $(BRAMBLING) bench "$$name" $(BENCH_OPTIONS); done

# In an environment of their own, build/peers-venv; `python bench/peers --help` explains.
PEERS_OPTIONS = $(if $(OF),--of $(OF)) $(if $(SIZE),--size $(SIZE)) $(if $(THREADS),--threads $(THREADS)) \
	$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(DEADLINE),--deadline $(DEADLINE)) $(if $(JSON),--json)

peers: install
	@$(PYTHON) bench/peers $(PEERS_OPTIONS)

soak:
	$(call say,$(SEEDS) random programs and simulated clusters)
	BRAMBLING_SEEDS=$(SEEDS) cargo test --release -p brambling-simulation ten_thousand -- --nocapture
	BRAMBLING_SEEDS=$$(( $(SEEDS) / 50 )) cargo test --release -p brambling-simulation --test streams -- --nocapture
	$(call say,a twentieth as many side by side on the same threads$(comma) and on workers whose shards move)
	BRAMBLING_SEEDS=$$(( $(SEEDS) / 20 )) cargo test --release -p brambling-simulation --tests -- --nocapture side_by_side several_workers
	$(call say,a fiftieth as many clusters that lose workers and controllers$(comma) and whose stores fail)
	SEEDS=$$(( $(SEEDS) / 50 )) bench/claims/simulation.sh recoveries

fmt:
	cargo fmt --all

clean:
	cargo clean
	rm -rf $(VENV) build fuzz/target
