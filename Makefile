# One verb per intent; the CI calls only these.
CARGO := cargo
# Tools that are not on the machine are built once into .tools, at these versions.
NEXTEST_VERSION := 0.9.143
FUZZ_VERSION := 0.13.1
TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS)/bin:$(PATH)
# What Lambda runs, and what it runs on.
FUNCTIONS := edge kernel stream worker
ARCH ?= $(if $(wildcard $(shell rustc --print target-libdir --target aarch64-unknown-linux-gnu)),arm64,x86_64)
SAM_ENV := SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=$(or $(AWS_DEFAULT_REGION),eu-central-1)
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

dev: ## Keel on this machine: http://127.0.0.1:4870, the ledger kept in .keel/
	@$(CARGO) build -q -p keel-local
	@exec target/debug/keel-local

test: check deny validate nextest .venv/installed .tools/emulator/installed ## everything that must hold: format, lints, licences, template, rules, faults, the contract over HTTP, kill -9, the deployment on an emulator
	@$(MAKE) --no-print-directory emulated
	$(CARGO) test --quiet --doc --locked --workspace
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

# Security advisories are not part of it: their database is on another host than the crates, and a test must not need it.
deny: .tools/house/installed ## licences, sources and bans of every dependency
	PATH="$(CURDIR)/.tools/house/bin:$$PATH" $(CARGO) deny --locked check bans licenses sources

nextest:
	@command -v cargo-nextest >/dev/null \
	  || $(CARGO) install cargo-nextest --version $(NEXTEST_VERSION) --locked --root $(TOOLS)

validate: .tools/infra/installed .tools/emulator/installed ## the templates as AWS's own linters read them, the compose file by its schema
	$(SAM_ENV) .tools/infra/bin/cfn-lint infra/template.yaml infra/function-url.yaml
	$(SAM_ENV) .tools/infra/bin/sam validate --lint --template infra/template.yaml
	$(SAM_ENV) .tools/infra/bin/sam validate --lint --template infra/function-url.yaml
	.tools/emulator/bin/check-jsonschema -q --builtin-schema vendor.compose-spec localstack/emulator/docker-compose.yml

build: .tools/build/installed ## the functions for Lambda, into target/lambda: ARCH=arm64 where Rust has that target, else x86_64
	PATH="$(CURDIR)/.tools/build/bin:$$PATH" AWS_LC_SYS_NO_JITTER_ENTROPY=1 $(CARGO) lambda build --release --locked \
	  --output-format zip $(if $(filter arm64,$(ARCH)),--arm64,--x86-64) $(FUNCTIONS:%=-p keel-fn-%)
	@echo $(ARCH) > target/lambda/architecture
	@cd target/lambda && wc -c */bootstrap.zip

deploy: build .tools/infra/installed ## to AWS, as STAGE=name in infra/samconfig.toml says (infra/samconfig.example.toml)
	@test -n "$(STAGE)" || { echo "which? make deploy STAGE=dev"; exit 2; }
	@test -f infra/samconfig.toml || { echo "first: cp infra/samconfig.example.toml infra/samconfig.toml"; exit 2; }
	@sed -n '/^\[$(STAGE)\./,/^\[/p' infra/samconfig.toml | grep -q 'Architecture=x86_64' && want=x86_64 || want=arm64; \
	  test $$want = $(ARCH) || { echo "built for $(ARCH), but [$(STAGE)] wants $$want: give ARCH= or Architecture="; exit 2; }
	cd infra && $(SAM_ENV) ../.tools/infra/bin/sam deploy --template template.yaml --config-env $(STAGE)

up: .tools/emulator/installed ## the deployment on an AWS emulator on this machine, from target/lambda (make build)
	@test -f $${KEEL_PACKAGES:-target/lambda}/architecture || { echo "first: make build"; exit 2; }
	@.tools/emulator/bin/python localstack/emulator/emulator.py up

e2e: nextest ## the contract over HTTP through the emulator's gateway, after make up
	@.tools/emulator/bin/python localstack/emulator/emulator.py env > /dev/null
	env $$(.tools/emulator/bin/python localstack/emulator/emulator.py env) \
	  $(CARGO) nextest run --locked --workspace --profile e2e

# Linking a release takes longer than all tests. What is tested here at every commit is the same code in this machine's
# debug build; make build, make up and make e2e test the packages themselves.
emulated: .tools/emulator/installed nextest
	$(CARGO) build --locked --workspace --all-targets
	@.tools/emulator/bin/python localstack/emulator/package.py target/debug target/packages
	@trap '$(MAKE) -s down' EXIT; trap 'exit 1' HUP INT TERM; \
	  KEEL_PACKAGES=target/packages $(MAKE) -s up && $(MAKE) -s e2e

down: ## ends the emulator
	@.tools/emulator/bin/python localstack/emulator/emulator.py down

# Python's tools, each set in a place of its own: together their pins would not agree.
.venv/installed: tests/chaos/requirements.txt
.tools/infra/installed: infra/requirements.txt
.tools/build/installed: infra/build-requirements.txt
.tools/emulator/installed: localstack/emulator/requirements.txt
.tools/house/installed: tests/house/requirements.txt
.venv/installed .tools/infra/installed .tools/build/installed .tools/emulator/installed .tools/house/installed:
	python3 -m venv $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

.PHONY: help dev test check contract load sim chaos fuzz bench deny nextest validate build deploy up emulated e2e down
