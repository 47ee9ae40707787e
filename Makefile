# Wattkeep's chores. Thin: everything of weight is in cargo and in the binaries.
#
#   make            list the targets
#   make demo       see a power cut survived
#   make test       everything that must hold before a change is merged

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
HOURS ?= 1
CYCLES ?= 20
SEED ?= 1
WATTKEEP := $(TARGET_DIR)/release/wattkeep
DEMO_DIR := target/demo
DEMO_PICTURE := $(DEMO_DIR)/drill.svg

TORTURE := $(TARGET_DIR)/release/torture
MUTANTS_DIR := $(TARGET_DIR)/mutants
GUEST := target/power-cut

# The rivals that need a C compiler, and time: they are left out of a plain 'cargo build'.
RIVALS := --features wattkeep-bench/rivals

.PHONY: help deps build demo test mutants torture soak power-cut bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

deps: ## install what is missing: a C compiler and linker; check for cargo
	@if ! command -v cc >/dev/null; then \
	    echo 'deps: no C compiler: installing gcc and libc6-dev'; \
	    if [ "$$(id -u)" -eq 0 ]; then sudo=; else sudo=sudo; fi; \
	    $$sudo apt-get update -qq; \
	    $$sudo apt-get install -y --no-install-recommends gcc libc6-dev; \
	fi
	@if ! command -v cargo >/dev/null; then \
	    echo 'deps: cargo is missing: install Rust 1.90 or newer from https://rustup.rs, then run make again' >&2; \
	    exit 1; \
	fi

build: deps ## build everything, optimised
	cargo build --release --workspace $(RIVALS)

demo: build ## write to 1 GiB with 11 % of a battery, cut the power, restore, verify
	@mkdir -p $(DEMO_DIR)
	@store=$$(mktemp -d $(DEMO_DIR)/store.XXXXXX); trap 'rm -rf "$$store"' EXIT; \
	$(WATTKEEP) drill "$$store" --workload ycsb-a --size 1GiB --budget 11% --seconds 10 --seed 1 \
	    --svg $(DEMO_PICTURE)
	@echo 'demo: the picture of the drill is $(DEMO_PICTURE)'

test: deps ## format, lints, tidy, build, all tests
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(RIVALS) -- -D warnings
	cargo xtask tidy
	cargo build --workspace $(RIVALS)
	cargo test --workspace $(RIVALS)
	cargo build --release --workspace $(RIVALS)
	$(TORTURE) --size fast
	@echo 'test: format, lints, tidy, build, all tests and the fast slice of the torture suite passed'

mutants: deps ## build the torture suite with its planted bugs compiled in
	cargo build --release -p wattkeep-torture -p wattkeepd -p wattkeep-cli --features wattkeep-torture/mutants \
	    --target-dir $(MUTANTS_DIR)

torture: build mutants ## try to lose data, in every way we know; then find the planted bugs
	$(TORTURE) --json $(TARGET_DIR)/torture.json --mutants $(MUTANTS_DIR)/release/torture

soak: build mutants ## the same for HOURS=n, with larger counts and fresh seeds
	$(TORTURE) --hours $(HOURS) --seed $$(date +%s) --json $(TARGET_DIR)/soak.json \
	    --mutants $(MUTANTS_DIR)/release/torture

power-cut: build ## cut the power of a virtual machine CYCLES=n times, and once of one whose disk lies
	crates/torture/guest/prepare.sh $(TARGET_DIR)/release $(GUEST)
	$(TORTURE) power-cut --guest $(GUEST) --count 10 --lying-disk
	$(TORTURE) power-cut --guest $(GUEST) --count $(CYCLES) --seed $(SEED)

bench: build ## measure beside the rivals
	$(WATTKEEP) bench all

clean: ## remove everything built
	cargo clean
