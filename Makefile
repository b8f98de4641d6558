# One verb per intent; the CI calls only these.
CARGO := cargo
# Tools that are not on the machine are built once into .tools, at these versions.
NEXTEST_VERSION := 0.9.143
DENY_VERSION := 0.20.2
FUZZ_VERSION := 0.13.1
TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS)/bin:$(PATH)
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

dev: ## Keel on this machine: http://127.0.0.1:4870, the ledger kept in .keel/
	@$(CARGO) build -q -p keel-local
	@exec target/debug/keel-local

test: check nextest .venv/installed ## everything that must hold: format, lints, rules, faults, the contract over HTTP, kill -9
	$(CARGO) build --locked --workspace --all-targets
	$(CARGO) nextest run --locked --workspace

check: ## format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

contract: nextest ## the contract over HTTP: of KEEL_BASE_URL with KEEL_API_KEY, or of a keel-local of its own
	$(CARGO) build -q -p keel-local
	$(CARGO) nextest run -p keel-tests --test contract

load: ## 50 sessions at once with 20 inputs each, half sent twice; prints the counts
	$(CARGO) build -q -p keel-local
	$(CARGO) test -q -p keel-tests --test local load -- --nocapture

sim: ## the functions under seeded faults: SEEDS=n runs n seeds, SEED=n replays one
	@SEEDS=$(or $(SEEDS),300) $(if $(SEED),SEED=$(SEED)) $(CARGO) test -q --profile sim -p keel-simulation -- --nocapture

chaos: .venv/installed ## faults over real sockets, for SECONDS=300; prints what went wrong and what came through
	$(CARGO) build -q -p keel-local
	KEEL_CHAOS_SECONDS=$(or $(SECONDS),300) $(CARGO) test -q -p keel-tests --test chaos -- --nocapture

fuzz: ## looks for what breaks TARGET=payload|canonical|list_cursor|resume, for SECONDS=60
	@command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --version $(FUZZ_VERSION) --locked --root $(TOOLS)
	@mkdir -p fuzz/target/found/$(or $(TARGET),payload)
	RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run --sanitizer none $(or $(TARGET),payload) \
	  fuzz/target/found/$(or $(TARGET),payload) fuzz/corpus/$(or $(TARGET),payload) -- -max_total_time=$(or $(SECONDS),60)

# PROFILE=bench-local links the functions in seconds instead of minutes; the table says which it was.
bench: PROFILE ?= release
bench: ## what everything costs: prints the table and writes docs/performance.md; PROFILE of the functions' programs
	$(CARGO) build -q --locked --profile bench-local -p keel-bench -p keel-local
	$(CARGO) build -q --locked --profile $(PROFILE) -p keel-fn-edge -p keel-fn-kernel -p keel-fn-worker -p keel-fn-stream
	target/bench-local/keel-bench --programs target/$(PROFILE)

deny: ## licences, sources and bans of every dependency
	@command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --version $(DENY_VERSION) --locked --root $(TOOLS)
	$(CARGO) deny --offline check bans licenses sources

nextest:
	@command -v cargo-nextest >/dev/null \
	  || $(CARGO) install cargo-nextest --version $(NEXTEST_VERSION) --locked --root $(TOOLS)

# The fault proxy is Python's; nothing else here is.
.venv/installed: tests/chaos/requirements.txt
	python3 -m venv .venv
	.venv/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

.PHONY: help dev test check contract load sim chaos fuzz bench deny nextest
