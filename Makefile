# `make` lists what there is. Every target sets up first what it needs; PYTHON= names the Python to set up with.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: test-long test-plans test-memory test-daemon test-tpcds test-sql-tests first-epoch fifty profile
.PHONY: help setup demo demo-kafka ui test test-fast test-kills test-queries properties races damage fuzz mutants test-s3 test-stores test-browser test-destinations test-kafka test-deploy chaos cluster chaos-chain chaos-delivery isolation soak check format bench bench-steps bench-delivery simulate \
	docs versions package release constraints clean

BIN := .venv/bin
READY := .venv/.set-up
# What the demo needs is part of what everything needs.
DEMO := $(or $(wildcard $(READY)),.venv/.set-up-demo)
BENCH := .bench/venv
RELEASE := .release/venv
comma := ,

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s%s\n", $$1, $$2 }' Makefile

setup: $(READY) ## install everything into .venv, and a Java runtime if there is none

$(READY): pyproject.toml constraints.txt scripts/setup.sh scripts/apt.sh scripts/java.sh
	@PYTHON='$(PYTHON)' scripts/setup.sh

.venv/.set-up-demo: pyproject.toml constraints.txt scripts/setup.sh scripts/apt.sh scripts/java.sh
	@PYTHON='$(PYTHON)' EXTRAS=demo READY=$@ scripts/setup.sh

demo: $(DEMO) ## run the main job, kill it, watch it recover, prove the result (KEEP=1 leaves the UI up)
	@scripts/run.sh python -m demo

demo-kafka: $(READY) ## run streams from Kafka to Kafka, Delta Lake, Iceberg and PostgreSQL, kill all of them, prove the result (SEED=)
	@SEED='$(SEED)' scripts/with_servers.sh python -m demo.kafka

ui: $(DEMO) ## start the Dagster UI alone
	@scripts/run.sh python -m demo ui

test: $(READY) ## run the tests
	@scripts/run.sh python scripts/test.py

test-kills: $(READY) ## run the tests that kill processes of a Dagster at work
	@scripts/run.sh python scripts/test.py kills

test-fast: $(READY) ## run the tests that need neither Spark nor Dagster
	@$(BIN)/python scripts/test.py fast

test-queries: $(READY) ## run all queries of known benchmarks as streams and compare with Spark's batch after each epoch
	@scripts/run.sh python scripts/test.py queries

test-long: $(READY) ## run more tests of the kinds that `make test` runs, and those that start many processes
	@scripts/run.sh python scripts/test.py long

test-memory: $(READY) ## put a backlog of 20 times a task's memory limit through it, and measure what it holds
	@$(BIN)/python scripts/test.py memory

test-tpcds: $(READY) ## keep the queries of TPC-DS up to date, those of Spark's own tests (Maven fetches them)
	@scripts/test_sparks_queries.sh tests/tpcds

test-sql-tests: $(READY) ## keep the queries of Spark's sql-tests up to date, each against batch after each epoch
	@DAGSTER_CKPT_TEST_EXAMPLES=20 scripts/test_sparks_queries.sh tests/sql_tests --dist worksteal -o timeout=3600

test-plans: $(READY) ## plan each query of TPC-DS and of Spark's sql-tests twice, and compare what a manifest would have of it
	@DAGSTER_CKPT_TEST_PLANS=1 scripts/test_sparks_queries.sh tests/tpcds
	@DAGSTER_CKPT_TEST_PLANS=1 scripts/test_sparks_queries.sh tests/sql_tests --dist worksteal -o timeout=3600

test-daemon: $(READY) ## test freshness policies with Dagster's daemon as a process: windows last a minute or more
	@scripts/run.sh python -m pytest -q -p no:cacheprovider tests/daemon

test-s3: $(READY) ## run the tests of stores on S3 against a real server (built by Go)
	@scripts/test_s3.sh

test-stores: $(READY) ## run the tests of stores on Google Cloud Storage, Azure and HDFS, on emulators and a cluster (Go, npm, Maven)
	@scripts/test_stores.sh

test-destinations: $(READY) ## run the tests of destinations on real servers (PostgreSQL and Kafka, installed if missing; Delta Lake)
	@scripts/test_destinations.sh

test-kafka: $(READY) ## run the tests of streams that read Kafka, on a real broker (Maven fetches it)
	@scripts/test_kafka.sh

test-browser: $(READY) ## run the tests of the pages in Chromium, which apt-get installs if missing (UPDATE=1: new screenshots)
	@UPDATE='$(UPDATE)' scripts/test_browser.sh

test-deploy: $(READY) ## run deploy/ without Docker, on PostgreSQL, and streams on a cluster of Spark
	@scripts/test_deploy.sh

first-epoch: $(READY) ## time the way from pip install of the wheel to the first live epochs of dagster-ckpt init's project
	@scripts/run.sh python -m scripts.first_epoch

chaos: $(READY) ## kill processes of a Dagster at work and compare with batch (KILLS=100; SEED= repeats the choices; LANES=stepped KINDS=worker)
	@scripts/run.sh python -m tests.chaos --kills $(or $(KILLS),100) $(if $(SEED),--seed $(SEED)) $(if $(LANES),--lanes '$(LANES)') \
		$(if $(KINDS),--kinds '$(KINDS)')

cluster: $(READY) ## kill parts of a standalone cluster of Spark and the streams on it (KILLS=40; SEED=; LANES=; KINDS=executor; WORLDS=dynamic)
	@scripts/cluster.sh --kills $(or $(KILLS),40) $(if $(SEED),--seed $(SEED)) $(if $(LANES),--lanes '$(LANES)') \
		$(if $(KINDS),--kinds '$(KINDS)') $(if $(WORLDS),--worlds '$(WORLDS)')

chaos-chain: $(READY) ## like chaos, for a chain of three streams (KILLS=30 of each; SEED= repeats the choices)
	@scripts/run.sh python -m tests.chaos.chain --kills $(or $(KILLS),30) $(if $(SEED),--seed $(SEED))

chaos-delivery: $(READY) ## kill deliveries, their streams and servers (KILLS=40 of each destination; ONLY=postgres,delta; SEED=)
	@scripts/with_servers.sh python -m tests.chaos.delivery --kills $(or $(KILLS),40) $(if $(ONLY),--only '$(ONLY)') $(if $(SEED),--seed $(SEED))

isolation: $(READY) ## let one of two chains fail for ever, and see whether the other keeps its pace (MINUTES=3)
	@scripts/run.sh python -m tests.chaos.isolation --minutes $(or $(MINUTES),3)

soak: $(READY) ## run two streams for long and see whether memory, files and times stay flat (MINUTES=30)
	@scripts/run.sh python -m tests.chaos.soak --minutes $(or $(MINUTES),30)

races: $(READY) ## let two writers open one stream at once, and 20 threads create one object, over and over (RACES=1000)
	@RACES=$(or $(RACES),1000) $(BIN)/python -m pytest -q -s -p no:cacheprovider -o timeout=3600 \
		tests/unit/storage/writer/test_opening_races.py \
		tests/contract/test_object_store.py -k 'races or exactly_one_of_many_threads'

properties: $(READY) ## let Hypothesis try EXAMPLES=20 times as many examples as the tests do
	@DAGSTER_CKPT_TEST_EXAMPLES=$(or $(EXAMPLES),20) scripts/run.sh python -m pytest -q -n 2 -o timeout=0 tests/properties \
		tests/spark/test_random_queries_are_kept_up_to_date.py \
		tests/spark/test_rows_are_aggregated_before.py::test_the_state_is_that_of_the_rows

damage: $(READY) ## damage every object of made streams in every way (SEEDS=1: about 800 cases; results in .work/damage.jsonl)
	@$(BIN)/python -m tests.damage --seeds $(or $(SEEDS),1)

fuzz: $(READY) ## let objects say anything, rightly signed: each reading ends in time, in an answer or an error (MINUTES=5; a day: 1440)
	@$(BIN)/python -m tests.damage.fuzz --minutes $(or $(MINUTES),5) --first $(or $(FIRST),0)

mutants: $(READY) ## change the code one thing at a time, and list what no test notices (ONLY=protocol,lsm,retraction,delivery; MINUTES=)
	@test -x $(BIN)/mutmut || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[mutants]'
	@$(BIN)/python -m scripts.mutants $(subst $(comma), ,$(ONLY)) $(if $(MINUTES),--minutes $(MINUTES))

check: $(READY) ## check format, lint, types, import layers and the links of docs/
	@scripts/check.sh

docs: $(READY) ## build the site of docs/ with its API reference into build/site
	@rm -rf build/site
	@$(BIN)/python -m sphinx -q -W -E -d .work/docs -b html docs build/site
	@echo 'Open file://$(CURDIR)/build/site/index.html'

format: $(READY) ## format the code and mend what the linter can mend
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: $(BENCH)/.set-up ## measure against Spark's own state (QUICK=1: 8 minutes; ONLY=growth,commit; ANEW=1: all again)
	@VENV=$(BENCH) scripts/run.sh python -m benchmarks $(if $(QUICK),--quick) $(if $(ANEW),--anew) $(if $(ONLY),--only '$(ONLY)')

profile: $(BENCH)/.set-up ## show where a trigger's milliseconds go, as flame graphs in docs/images (10 minutes)
	@VENV=$(BENCH) scripts/run.sh python -m benchmarks.profile

fifty: $(READY) ## measure what fifty streams in one code location cost Dagster (STREAMS=50 SECONDS=120)
	@scripts/run.sh python -m benchmarks.fifty --streams $(or $(STREAMS),50) --seconds $(or $(SECONDS),120)

bench-steps: $(READY) ## compare each kind of step with another commit, without Spark (AGAINST=main; ONLY=join)
	@$(BIN)/python -m benchmarks.paired --against $(or $(AGAINST),main) $(if $(ONLY),--only '$(ONLY)')

bench-delivery: $(READY) ## measure deliveries against plain writes, Kafka to an epoch, and latency (ROWS=100000; ONLY=postgres,latency)
	@scripts/with_servers.sh python -m benchmarks.delivery --rows $(or $(ROWS),100000) $(if $(ONLY),--only '$(ONLY)')

$(BENCH)/.set-up: pyproject.toml constraints.txt scripts/setup.sh scripts/apt.sh scripts/java.sh
	@PYTHON='$(PYTHON)' VENV=$(BENCH) EXTRAS=bench scripts/setup.sh

simulate: $(READY) ## simulate SEEDS=100000 worlds in which everything goes wrong (SEED=7: one of them, step by step; REBUILDS=1: only those with rebuilds)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),100000) $(if $(REBUILDS),--rebuilds))

versions: $(RELEASE)/.set-up ## run tests on each Python, Dagster, Spark and Java allowed (ONLY=spark-4.3,java-21; TESTS=tests/spark)
	@$(if $(ONLY),,rm -rf .work/versions)
	@$(RELEASE)/bin/python -m nox $(if $(ONLY),--session $(subst $(comma), ,$(ONLY))) $(if $(TESTS),-- $(TESTS)); \
		code=$$?; $(RELEASE)/bin/python scripts/versions.py $(subst $(comma), ,$(ONLY)); exit $$code

package: $(RELEASE)/.set-up ## build the packages in dist/, and check what is in them
	@rm -rf dist
	@$(RELEASE)/bin/python -m build >.work/build.log 2>&1 || { cat .work/build.log; exit 1; }
	@$(RELEASE)/bin/python -m twine check --strict dist/*
	@$(RELEASE)/bin/python scripts/release.py package dist

release: package ## the same, and check that this version can be published; prints the steps that are left to you
	@$(RELEASE)/bin/python scripts/release.py ready

# Without Spark and Dagster: the tools alone.
$(RELEASE)/.set-up: $(READY) pyproject.toml constraints.txt
	@$(BIN)/python -m venv --clear $(RELEASE)
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["release"], \
		sep="\n")' >$(RELEASE)/requirements.txt
	@$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --requirement $(RELEASE)/requirements.txt
	@touch $@

constraints: $(READY) ## pin the newest packages that pyproject.toml allows
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --use-pep517 \
		--report - '.[azure,bench,browser,deltalake,demo,deploy,dev,dg,docs,gcs,hdfs,iceberg,kafka,mutants,postgres,release,s3,sketches,sql,test-deploy]' | $(BIN)/python scripts/constraints.py >.work/constraints.txt
	@mv .work/constraints.txt constraints.txt

clean: ## remove everything that make has made
	@rm -rf .venv .bench .nox .release .work .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
