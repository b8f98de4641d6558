# One verb per intent; the CI calls only these.
CARGO := cargo
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

dev: ## Keel on this machine: http://127.0.0.1:4870, the ledger kept in .keel/
	@$(CARGO) build -q -p keel-local
	@exec target/debug/keel-local

SEEDS ?= 300
sim: ## the functions under seeded faults: SEEDS=n runs n seeds, SEED=n replays one
	@SEEDS=$(SEEDS) $(if $(SEED),SEED=$(SEED)) $(CARGO) test -q --profile sim -p keel-simulation -- --nocapture

.PHONY: help dev sim
