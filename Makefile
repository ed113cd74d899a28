# Two commands matter: `make demo` and `make test`. Each sets up what it needs, in `.venv`, and nothing outside this folder.

PYTHON ?= python3
# Of the tests: one more than cores. Nearly half of a worker's time is waiting, for processes that start and for leases.
WORKERS ?= 3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH_VENV := .venv-bench
STANDINS_VENV := .venv-standins
AUDIT_VENV := .venv-audit
DOCS_VENV := .venv-docs
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --quiet

# The tests start processes by the hundred: where Python may not write bytecode, each would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
# Every target but files.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Make .venv and install the locked packages (again only when the lock changed)

$(INSTALLED): requirements.lock pyproject.toml tools/setup tools/locks/build.lock
	@PYTHON="$(PYTHON)" tools/setup $(VENV)
	@touch $@

standins: setup ## Make .venv-standins: BigQuery and DynamoDB on this machine, for tests and the demo
	@tools/setup-apart $(VENV) $(STANDINS_VENV) standins/requirements.txt "the stand-ins for BigQuery and DynamoDB"

node-clients: ## Install Google's Pub/Sub client for Node into .node, for the gateway's test with it (needs npm)
	@npm install --prefix .node --no-save --no-audit --no-fund --loglevel=error @google-cloud/pubsub@5

demo: setup standins ## Run the whole system with demo data on embedded servers; Ctrl-C stops it
	@exec $(BIN)/clientmgr demo

up: setup ## Run the whole system without demo data
	@exec $(BIN)/clientmgr up

test: setup standins lint ## Lint, type-check and run the test suite
	$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder -m "not bench"

thorough: setup standins ## The tests with all examples of the properties: before a release, and after work on the rules
	THOROUGH_TESTS=1 $(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder -m "not bench"

test-bench: setup standins ## Every benchmark in small: it runs, and its variants do the same work; a minute or two
	$(BIN)/pytest -n 2 --no-loadscope-reorder -m bench

check: setup ## Format, lint, types, layers and all tests that need no server: under a minute
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint quick-tests

quick-tests: setup
	QUICK_TESTS=1 $(BIN)/pytest -q -n 2 --no-loadscope-reorder -m "not server and not bench"

test-cluster: setup standins ## The batch work on a Spark cluster of two workers and by Spark Connect: minutes
	CLUSTER_TESTS=1 $(BIN)/pytest tests/spark/test_everywhere.py tests/spark/test_submit.py

ON_CITUS := tests/citus tests/tenants tests/devices/test_store.py tests/orphans/test_deletion.py \
	tests/streaming/test_writer.py tests/streaming/test_republisher.py tests/streaming/test_contact_deletion.py \
	tests/streaming/test_push_token_status.py tests/streaming/test_tenants_apart.py \
	tests/streaming/test_waiting_for_activation.py tests/device_mapper/test_mapper.py \
	tests/erasure/test_sweep.py tests/erasure/test_merged_and_relinked.py tests/erasure/test_prove.py \
	tests/devices/test_import.py tests/spark/test_nodes.py tests/spark/test_orphan_assets.py \
	tests/spark/test_dashboard.py tests/spark/test_contact_reconciliation.py

test-citus: setup standins ## Tenants, daemons and batch work on the Citus cluster that CITUS_DATABASE_URL names; skipped without one
	@if [ -z "$$CITUS_DATABASE_URL" ]; then \
		echo "skipped: set CITUS_DATABASE_URL to the URL of a Citus coordinator's superuser (docs/citus.md)"; \
	else CITUS_TESTS=1 $(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder $(ON_CITUS) && \
		CITUS_TESTS=1 CITUS_CRASHES=1 $(BIN)/pytest tests/citus/test_kills.py; fi

kill-device-mapper: setup ## Kill device mappers at work on 50,000 recipients, on both transports, and count: a minute or two
	DEVICE_MAPPER_KILL_RECIPIENTS=50000 $(BIN)/pytest --durations=4 tests/device_mapper/test_kills.py

kill-migration: setup ## Kill imports of 200,000 items from the legacy store while events arrive, and count: some minutes
	MIGRATION_KILL_ITEMS=200000 $(BIN)/pytest -rP tests/legacy_migration/test_kills.py

lint: setup ## Formatter, linter, strict types and import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup ## Write the documentation that is made from the code: settings, daemons, messages
	$(BIN)/python -m tools.docs

docs-site: setup ## Write the documentation as a site to search, dist/docs-site; a link that leads nowhere fails
	@tools/setup-apart $(VENV) $(DOCS_VENV) tools/locks/docs.lock "what makes the site"
	$(DOCS_VENV)/bin/python -m tools.docs_site dist/docs-site

columns: setup ## Write the columns that Dagster shows of its assets' tables: after a migration that changes one
	$(BIN)/python -m tools.columns

deploy-files: setup ## Write the files of deploy/ that are made from the registry of daemons: units, manifests, scrape targets
	$(BIN)/python -m tools.deploy

screenshots: setup ## Take the documentation's pictures from a running `make demo` (needs Chromium)
	$(BIN)/python -m tools.screenshots

lock: setup ## Resolve the locks anew: packages, those of the image, build tools, the vulnerability scan
	$(COMPILE) pyproject.toml --extra dev -o requirements.lock
	$(COMPILE) pyproject.toml --extra all -c requirements.lock -o requirements-runtime.lock
	$(COMPILE) tools/locks/build.in -c requirements.lock -o tools/locks/build.lock
	$(COMPILE) tools/locks/audit.in -o tools/locks/audit.lock
	$(COMPILE) tools/locks/docs.in -o tools/locks/docs.lock

sbom: setup ## Write the bill of materials of what is installed and deployed: dist/sbom.cdx.json (CycloneDX)
	$(BIN)/python -m tools.sbom dist/sbom.cdx.json

audit: setup ## Look for known vulnerabilities in the locked packages, or say NOT CHECKED
	@$(BIN)/python -m tools.audit $(VENV)

bench: setup ## Run every benchmark: ours, the peers' and the physical limit, as ratios
	@PYTHON="$(PYTHON)" tools/setup-bench $(VENV) $(BENCH_VENV)
	$(BIN)/python -m bench

bench-check: setup ## What became slower since the newest tag (or BASE=revision): each benchmark in short, in turns
	$(BIN)/python -m tools.bench_check --base "$(BASE)" --rounds $(or $(ROUNDS),5) $(NAMES)

soak: setup ## Kill and restart everything around the message log, for hours (MINUTES=60)
	$(BIN)/python -m tests.broker.faults --minutes $(or $(MINUTES),60)

clean: ## Remove the virtualenvs, caches and the embedded servers' data
	rm -rf $(VENV) $(BENCH_VENV) $(STANDINS_VENV) $(AUDIT_VENV) $(DOCS_VENV) .clientmgr .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
