# Podium: two commands do everything: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
PARALLEL := --numprocesses=auto --dist=loadfile
export PYTHONDONTWRITEBYTECODE := 1

RECIPES := $(VENV)/recipes
RIVALS := $(VENV)/rivals
FAST := tests/unit tests/contract tests/golden
# three files at a time on clusters of their own, in the order of tests/e2e/conftest.py: most of the time is waiting
CLUSTERS := --numprocesses=3 --dist=loadfile --no-loadscope-reorder --durations=25
# these build minutes of Go programs of others, and have targets of their own
OTHERS := tests/e2e/test_kueue.py tests/e2e/test_dra.py tests/e2e/test_workers.py tests/e2e/test_workloads.py tests/e2e/test_upgrade.py tests/e2e/test_offline_install.py
CLUSTERS += $(addprefix --ignore=,$(OTHERS))
FAST_CACHE := -o cache_dir=.pytest_cache/fast
# what the clusters' audit logs have about Podium's accounts, for tests/grants
RECORDS := build/audit-records
GRANTS := -p no:cacheprovider tests/grants
export_records = rm -rf $(RECORDS); export PODIUM_AUDIT_RECORDS=$(CURDIR)/$(RECORDS)
FAULTS := tests/e2e/test_faults.py tests/e2e/test_kubernetes_faults.py tests/e2e/test_agent_faults.py tests/e2e/test_checkpoint_faults.py tests/e2e/test_evictions.py tests/e2e/test_hung_components.py tests/e2e/test_node_loss.py
BARE_FAULTS := $(addprefix tests/integration/test_,agent_partition.py operator_partition.py deletions.py disk_and_descriptors.py clock_jumps.py faulty_transport.py)

.PHONY: notebook help setup demo test test-fast test-clusters lint docs test-unit test-integration test-e2e test-faults test-gpu test-dashboard fuzz fuzz-watch test-older-scheduler test-recipes test-kueue test-dra test-workers test-workloads test-upgrade test-vm cluster \
	cluster-down images kind generate golden record-metrics bench-demo bench-agent bench-checkpoint bench-gpu bench-migration bench-realtime \
	bench-theory bench-extender bench-scheduler bench-openb bench-openb-cluster bench-hpo bench-simulation bench-slots \
	bench-expected bench-queues bench-katib bench-reality bench-planner bench-scale bench-rivals bench-searchers bench-pbt bench-local bench-log-lines bench-dashboard dist release release-check sbom lock clean clean-cache

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'
	@echo; echo "Variables of the benchmarks:"
	@echo "  CURVES=\"PATH ...\"     recorded curves: files or folders, or \`example\` (default: benchmarks/data/curves)"
	@echo "  PODS=FILE NODES=FILE  a trace in the openb format (default: benchmarks/data/openb)"
	@echo "  TRACE=FILE            a trace in the Philly format (default: benchmarks/data/philly)"
	@echo "  GPUS=4,8 SEEDS=15     numbers of GPUs; repetitions with other random choices"
	@echo "  OUT=FOLDER            where results are written (default: benchmarks/results in this folder)"

$(VENV)/.done: requirements-dev.lock pyproject.toml tools/setup.sh
	@PYTHON=$(PYTHON) VENV=$(VENV) bash tools/setup.sh
	@touch $@

setup: $(VENV)/.done ## create the virtual environment; as root, install the system packages that tests need

demo: setup ## run the example search on a two-node cluster on this machine, with a live table and a report (Ctrl-C removes everything)
	@$(BIN)/python examples/demo.py

test: setup ## run every layer: lint, unit, contract, golden, integration, e2e
	@$(BIN)/python tools/beside.py $(MAKE) --no-print-directory lint test-fast -- $(MAKE) --no-print-directory test-clusters

# The fast tests run on the processor time that the clusters leave, so a test may exceed its time limit. Failed tests run
# once more, one by one, if the first run reached its end (status 1). Each of the two runs has a cache of its own.
test-fast: setup
	@$(PYTEST) $(PARALLEL) $(FAST_CACHE) --cache-clear $(FAST) tests/recipes; status=$$?; test $$status -ne 1 && exit $$status; \
		echo "make test: repeating the fast tests that failed; a test that passes now is FLAKY"; \
		$(PYTEST) $(FAST_CACHE) --last-failed --last-failed-no-failures=none $(FAST) tests/recipes

test-clusters: setup
	@$(export_records); \
		{ rm -rf .pytest_cache; $(PYTEST) $(CLUSTERS) tests/integration tests/e2e || $(BIN)/python tools/second_look.py $$?; } \
		&& $(PYTEST) $(GRANTS)

lint: setup ## check with ruff, mypy and the import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: setup ## build the documentation site in build/docs; broken links fail
	@$(BIN)/python tools/docs.py
	@echo "the site is in build/docs/index.html"

test-unit: setup ## run the unit, contract and golden tests (no root, no cluster)
	@$(PYTEST) $(PARALLEL) $(FAST)

fuzz-watch: setup ## watch caches over a faulty transport, 10,000 random stories on virtual time (SEEDS=10000; 4 minutes)
	@PODIUM_FUZZ_SEEDS=$(or $(SEEDS),10000) $(PYTEST) -q tests/unit/cluster/test_watch_faults.py

test-integration: setup ## run the tests with a real kube-apiserver and kube-scheduler
	@$(PYTEST) tests/integration

test-e2e: setup ## run the tests on the real two-node cluster
	@$(export_records); $(PYTEST) $(CLUSTERS) tests/e2e && $(PYTEST) $(GRANTS)

test-kueue: setup ## run reservations beside the real Kueue (root; builds Kueue from its Go module once: ten minutes)
	@$(PYTEST) -rP tests/e2e/test_kueue.py

test-dra: setup ## run reservations over dynamic resources, with a DRA driver from its Go module (root; builds it once)
	@$(PYTEST) -rP tests/e2e/test_dra.py

test-workers: setup ## run trials of several workers on two nodes, with 200 random switches (root; 15 minutes)
	@$(PYTEST) -rP tests/e2e/test_workers.py

test-workloads: setup ## run trials that are JobSets and TrainJobs on two nodes (root; builds JobSet, Kubeflow Trainer and CoreDNS once: 15 minutes)
	@$(PYTEST) -rP tests/e2e/test_workloads.py

test-upgrade: setup ## upgrade from release 0.1.0 under load, roll back, and install offline (root; builds both releases)
	@$(PYTEST) tests/e2e/test_upgrade.py tests/e2e/test_offline_install.py

test-vm: setup ## run the tests on a node in a virtual machine: systemd, cgroup v2, runc and crun (root; 15 minutes without KVM)
	@$(PYTEST) -s tests/vm

test-faults: setup ## run the fault-injection tests, with an agent's outage of five minutes (25 minutes)
	@PODIUM_LONG_FAULTS=1 $(PYTEST) $(FAULTS)
	@PODIUM_LONG_FAULTS=1 $(PYTEST) $(BARE_FAULTS)

test-older-scheduler: setup ## run the extender's tests with the kube-scheduler of an older minor version (root)
	@PODIUM_TEST_SCHEDULER=$$($(BIN)/python -c 'from podium_devcluster.versions import OLDER_KUBERNETES as v; print(v)') \
		$(PYTEST) tests/integration/test_extender.py

test-gpu: setup ## run the cuda-checkpoint tests on this machine's NVIDIA driver (root; fails without one)
	@PODIUM_TEST_DRIVER=real $(PYTEST) tests/contract/test_suspension.py tests/unit/driver/test_cuda*.py tests/unit/agent/suspension tests/unit/local/test_cuda_suspension.py

test-dashboard: setup ## open the dashboard in a headless Chromium; screenshots in build/dashboard
	@$(PYTEST) tests/browser

fuzz: setup ## run 100,000 cases of each reader, parser and HTTP edge, with Atheris where it is available (hours; CASES=N, TARGET=name, JOBS=1)
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip install -q --python $(BIN)/python --only-binary :all: --require-hashes -r tests/unit/fuzz/requirements.lock \
		|| echo "no package of Atheris for this machine: hypothesis alone draws the cases"
	@$(BIN)/python tools/fuzz.py --cases $(or $(CASES),100000) --jobs $(or $(JOBS),1) $(and $(TARGET),--target $(TARGET))

test-recipes: setup ## run the recipes with the real PyTorch, JAX, XGBoost and others (6 GB, in a separate environment)
	@test -x $(RECIPES)/bin/python || $(PYTHON) -m venv $(RECIPES)
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip install -q --compile-bytecode --python $(RECIPES)/bin/python --require-hashes -r examples/recipes/requirements.lock
	@$(RECIPES)/bin/python -m pytest --confcutdir=tests/recipes tests/recipes

cluster: setup ## start a real two-node Kubernetes on this machine, without Docker (root)
	@$(BIN)/podium-devcluster up

cluster-down: setup ## stop it: no process, namespace, mount or cgroup remains
	@$(BIN)/podium-devcluster down

images: setup ## build the images and load them into the running cluster
	@$(BIN)/podium-devcluster images

kind: setup ## run the same chart, fake driver and example on kind (needs Docker; RESERVATIONS=1: GPUs of NVIDIA's device plugin)
	@$(BIN)/python -m podium_devcluster.kind $(if $(RESERVATIONS),--reservations)

generate: setup ## write CRDs and reference pages from the models, and the chart's dashboards and alert rules
	@$(BIN)/python -m podium_core.schema.generation.crd --write
	@$(BIN)/python tools/reasons.py
	@$(BIN)/python tools/doctor_checks.py
	@PYTHONPATH=tools:$$PYTHONPATH $(BIN)/python -m monitoring

notebook: setup ## run examples/notebook.ipynb in a Jupyter kernel and store its outputs in it (a minute)
	@$(BIN)/python tools/notebook.py

record-metrics: setup ## record the metrics of a real run in tests/integration/data/metrics (root; ten minutes)
	@PYTHONPATH=tools:$$PYTHONPATH $(BIN)/python tools/record_metrics.py

golden: setup ## accept the current output as the golden files
	@$(PYTEST) tests/golden --update-golden

# Benchmarks: benchmarks/README.md lists the question, time and needs of each. They write into OUT, by default
# benchmarks/results in this folder.
BENCH := $(BIN)/python -m benchmarks
OUTPUT = $(and $(OUT),--out $(OUT))

bench-demo: setup ## time to the best trial under six policies on the real cluster; delay of a run queue (SEEDS=3; root)
	@$(BENCH).hpo.bench_demo $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-agent: setup ## cost of 50 suspensions and requeues for a training on the real cluster, and that no bit changes (root)
	@$(BENCH).agent.bench_agent $(OUTPUT)

bench-checkpoint: setup ## what the agent adds to the driver's own time of cuda-checkpoint (fake driver; root)
	@$(BENCH).agent.bench_checkpoint $(OUTPUT)

bench-local: setup ## what `podium run` costs against plain subprocesses, and the time from pip install to ranked trials
	@$(BENCH).hpo.bench_local $(OUTPUT)

bench-dashboard: setup ## memory and time of the dashboard with 10,000 trials and 200 browsers, against 300 MiB and 1 s
	@$(BENCH).dashboard.bench_dashboard $(OUTPUT)

bench-log-lines: setup ## CPU time and memory of reading hostile log lines, against the limits of 20 ms and 10 MB
	@$(BENCH).agent.bench_log_lines $(OUTPUT)

bench-gpu: setup ## cuda-checkpoint on a real NVIDIA GPU with PyTorch: GB/s, bits, time-sharing (root; PyTorch in the environment)
	@$(BENCH).agent.bench_gpu $(OUTPUT)

bench-migration: setup ## live migration of a container on the real cluster: seconds by phase, and that nothing is lost (root)
	@$(BENCH).agent.bench_migration $(OUTPUT)

bench-realtime: setup ## SGPRS: the papers' figures simulated, promises, real networks on this machine's cores (and GPU)
	@$(BENCH).realtime.bench_realtime $(OUTPUT)

bench-theory: setup ## the optimisers against optima, formulas and one another: tables, plots, bars (TRACE=; 10 minutes)
	@$(BENCH).theory.bench_theory $(and $(TRACE),--trace $(TRACE)) $(OUTPUT)

bench-extender: setup ## CPU time of filter and prioritize over synthetic caches, in one process
	@$(BENCH).extender.bench_extender $(OUTPUT)

bench-scheduler: setup ## pods per second of the real kube-scheduler with and without the extender, to 5,000 nodes (root)
	@$(BENCH).extender.bench_scheduler $(OUTPUT)

bench-openb: setup ## GPUs allocated by each placement policy on the openb trace, against the FGD paper (PODS=, NODES=, SEEDS=10)
	@$(BENCH).openb.bench_openb $(and $(PODS),--pods $(PODS)) $(and $(NODES),--nodes $(NODES)) $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-openb-cluster: setup ## the trace's first pods through the real kube-scheduler, against the library (PODS=, NODES=; root)
	@$(BENCH).openb.bench_openb_cluster $(and $(PODS),--pods $(PODS)) $(and $(NODES),--nodes $(NODES)) $(OUTPUT)

bench-hpo: setup ## every policy on recorded learning curves (CURVES=, GPUS=4,8, SEEDS=15; CHECK=1: against an independent replay)
	@$(BENCH).hpo.bench_hpo $(if $(CHECK),--check-reference) $(and $(GPUS),--gpus $(GPUS)) $(and $(SEEDS),--seeds $(SEEDS)) $(and $(CURVES),--curves $(CURVES)) $(OUTPUT)

bench-searchers: setup ## which search algorithm proposes good points soonest (CURVES=, SEEDS=10)
	@$(BENCH).searchers.bench_searchers $(and $(CURVES),--curves $(CURVES)) $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-pbt: setup ## population-based training against random search with the same GPU-seconds (SEEDS=5)
	@$(BENCH).searchers.bench_pbt $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-simulation: setup ## speed of the simulated system (CURVES=FILE)
	@$(BENCH).simulator.bench_simulation $(and $(CURVES),--curves $(CURVES)) $(OUTPUT)

bench-slots: setup ## what is left of a policy's gain where GPUs have few slots, with and without checkpoints (CURVES=, SEEDS=4)
	@$(BENCH).simulator.bench_slots $(and $(CURVES),--curves $(CURVES)) $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-expected: setup ## how often a search ends inside the interval of `podium explain job` (CURVES=, SEEDS=1)
	@$(BENCH).simulator.bench_expected $(and $(CURVES),--curves $(CURVES)) $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-queues: setup ## three GPUQueues on the real cluster: GPU-seconds by weight, and the return of a lent part (root; 20 minutes)
	@$(BENCH).queues.bench_queues $(OUTPUT)

bench-katib: setup ## the digits search by the real Katib with whole GPUs, and by Podium with slots, on one node (SEEDS=5; root; 1 hour)
	@$(BENCH).katib.bench_katib $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-reality: setup ## the digits search on the real cluster against its simulation and its forecast (POLICY=NAME, WORKERS=2; root)
	@$(BENCH).simulator.bench_reality $(and $(POLICY),--policy $(POLICY)) $(and $(WORKERS),--workers $(WORKERS)) $(and $(SEEDS),--seeds $(SEEDS)) $(OUTPUT)

bench-planner: setup ## cost of a tick of the planner, up to 10,000 trials on 1,000 GPUs (a minute)
	@$(BENCH).planner.bench_planner $(OUTPUT)

bench-scale: setup ## memory, etcd and time to the first plan with 1,000 to 10,000 trials on a real API server (root; 10 minutes)
	@$(BENCH).planner.bench_scale $(OUTPUT)

bench-rivals: setup ## two searches by Optuna, Ray Tune and Podium on this machine's cores (SEEDS=10; idle: an hour)
	@test -x $(RIVALS)/bin/python || $(PYTHON) -m venv $(RIVALS)
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip install -q --compile-bytecode --python $(RIVALS)/bin/python --require-hashes -r benchmarks/rivals/requirements.lock
	@$(BENCH).rivals.bench_rivals --rivals $(RIVALS)/bin/python --seeds $(or $(SEEDS),10) $(OUTPUT)

dist: setup ## build wheel, source archive, chart, bill of materials and SHA256SUMS in dist/, reproducibly (ROOTFS=: of an image, too)
	@rm -rf dist
	@$(BIN)/python tools/dist.py dist $(and $(ROOTFS),--rootfs $(ROOTFS))

release-check: setup ## check that all files state the same version, and that the tag has it (TAG=vVERSION)
	@$(BIN)/python tools/release.py $(and $(TAG),--tag $(TAG))

release: setup ## build all files of a release in dist/, with the image (REPOSITORY=HOST/podium, PLATFORMS=, TAG=, SOURCE=, UNCOMMITTED=1)
	@rm -rf dist
	@$(BIN)/python tools/release.py dist $(and $(REPOSITORY),--repository $(REPOSITORY)) $(and $(PLATFORMS),--platforms $(PLATFORMS)) \
		$(and $(TAG),--tag $(TAG)) $(and $(SOURCE),--source $(SOURCE)) $(and $(UNCOMMITTED),--uncommitted)

sbom: setup ## write the bills of materials (CycloneDX) in build/sbom (ROOTFS=FOLDER: of an image with this root folder, too)
	@$(BIN)/python tools/sbom.py build/sbom $(and $(ROOTFS),--rootfs $(ROOTFS))

lock: setup ## pin all dependencies, with hashes and without index addresses
	@bash tools/lock.sh

clean-cache: setup ## remove the cluster's cache: programs, images, nodes' root (no cluster may run)
	@$(BIN)/podium-devcluster clean

clean: ## remove the virtual environment and the caches of tools (not the cluster cache)
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
