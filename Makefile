# One verb per intent; the CI calls only these.
CARGO := cargo
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

dev: ## Keel on this machine: http://127.0.0.1:4870, the ledger kept in .keel/
	@$(CARGO) build -q -p keel-local
	@exec target/debug/keel-local

.PHONY: help dev
