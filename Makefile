# Every target sets up what it needs by itself. CI and people run the same targets.
PY := .venv/bin/python
# Tests share no state. A process more than there are cores, at most four (each that needs them has a ZooKeeper and a JVM
# of its own): a third of its time a test waits for a process, a socket or a disk.
PYTEST := $(PY) -m pytest -q --numprocesses=$(shell expr $$(nproc) + 1) --maxprocesses=4 --dist=worksteal
.DEFAULT_GOAL := help
# Every broker is a process: without kept bytecode each would compile its modules again, and start in twice the time.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup system kubernetes demo test test-all test-all-long e2e simulate bench lint format protocol reference lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## .venv with everything locked in requirements/
	@scripts/setup-venv.sh

system: setup ## Java, kcat, Spark, Kerberos and the jars of ZooKeeper and Apache Kafka (root on Debian installs them; else says what is missing)
	@scripts/install-system.sh
	@scripts/setup-venv.sh --spark
	@scripts/fetch-kerberos.sh

# What it needs is fetched side by side: neither waits for the other's network.
demo: ## the main job: a fleet, a real data set, a killed leader, nothing lost
	@scripts/fetch-jars.sh zookeeper & jars=$$!; scripts/setup-venv.sh || exit; \
	wait $$jars || echo "demo: going on without a real ZooKeeper: all brokers share one process"; \
	exec $(PY) -m demo

test: setup ## units, properties, one real fleet, one client of each kind; what needs Java or root runs where it is found
	@scripts/install-system.sh kafka zookeeper kafka-clients-4 || echo "test: the tests that need the above are skipped and counted"
	@$(PYTEST) -m "not extended"

kubernetes: ## the programs of a Kubernetes control plane and its nodes, from Go modules (ten minutes, once)
	@scripts/build-kubernetes.sh > /dev/null

test-all: system kubernetes ## every test but the long ones, nothing skipped (ORDER=n: the modules in an order drawn from n)
	@OTTLA_TEST_ALL=1 $(PYTEST) -m "not long" $(if $(ORDER),--module-order $(ORDER))

test-all-long: system kubernetes ## the long tests: clients that take minutes, kills, pages with Spark
	@OTTLA_TEST_ALL=1 $(PYTEST) -m long

e2e: setup ## a real Kubernetes with three nodes, and everything a person does with it (root on Debian; first run 15 minutes)
	@$(PY) -m e2e $(E2E)

# CI always runs the same seeds, so that a red run is the change's doing; people get new ones.
simulate: setup ## the fleet under virtual time with injected faults: 8 minutes, or SEEDS=n
	@$(PY) -m simulation run $(if $(SEEDS),--seeds $(SEEDS),--minutes 8) $(if $(CI),--first-seed 1)

bench: system ## side by side with Apache Kafka 3.9.1: build/bench/report.json, a table, plots
	@$(PY) -m bench $(BENCH)

lint: setup ## style, types, import layers, language
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy broker/ottla_broker documents/ottla_documents pipeline/ottla_pipeline operator/ottla_operator command/ottla demo simulation bench e2e tests & \
	types=$$!; \
	.venv/bin/lint-imports && $(PY) scripts/check_language.py; \
	others=$$?; \
	wait $$types && exit $$others

format: setup ## let ruff write the style
	@.venv/bin/ruff check --fix -q . ; .venv/bin/ruff format -q .

protocol: setup ## write protocol/generated from protocol/definitions
	@$(PY) -m ottla_broker.protocol.generator

reference: setup ## write crds/, schemas/ and the generated pages of docs/reference
	@$(PY) -m ottla_documents.generator
	@$(PY) -m ottla_broker.config.reference
	@$(PY) -m ottla_broker.server.compatibility
	@$(PY) -m ottla_broker.server.rights_reference
	@$(PY) -m ottla.testing.metrics_reference
	@$(PY) -m ottla_operator.reference metrics docs/reference/metrics.md
	@$(PY) -m ottla_operator.reference fields crds/*.yaml > docs/reference/crd-fields.md
	@$(PY) -m ottla_operator.reference needed crds/*.yaml > operator/ottla_operator/api/needed_fields.py
	@$(PY) -m ottla_operator.reference reasons > docs/reference/condition-reasons.md

lock: setup ## write requirements/*.txt from pyproject.toml
	@scripts/lock-requirements.sh

clean: ## what builds and tests left in the checkout
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
