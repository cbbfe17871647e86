# One target for each task of newcomers, operators and CI. `make help` lists them.

STACK  ?= dev
# Engine: pulumi or embedded. The default is pulumi if the command `pulumi` is installed, otherwise
# embedded.
ENGINE ?=
PY     := .venv/bin/python
# Folder of a policy pack to enforce; POLICY=policy enforces the policy pack of this project
POLICY ?=
TIMES  := -v --durations=25
# Run a failed test again, because a slow machine can make a test fail. The end of the output shows
# the first failure and its reason. Stop after three failures: they usually have the same cause, and
# each further failure may take minutes.
AGAIN  := --reruns 1 --rerun-show-tracebacks --maxfail 3
CHOSEN := $(if $(ENGINE),--engine $(ENGINE)) $(if $(POLICY),--policy-pack $(POLICY))

# Install Debian's packages. If the package lists are out of date, update them and try again.
APT    := DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends
apt     = echo "apt-get install $(1)" >&2; $(APT) $(1) >/dev/null 2>&1 || { apt-get update >/dev/null && $(APT) $(1) >/dev/null; }
DOWNLOAD := apt-get download docker-registry >/dev/null 2>&1

.DEFAULT_GOAL := help
.PHONY: help up stop down status kubeconfig ssh preview new-stack images sbom snapshot check test container cluster edits nodesets health bridge stacks soak vm mutants bench lock schema dashboards clean

help:  ## List these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: .venv/ready  ## Deploy the stack: images, cluster, Slurm (STACK=dev, ENGINE=pulumi|embedded, POLICY=policy)
	@$(PY) -m images.build --stack $(STACK)
	@$(PY) -m local up --stack $(STACK)
	@$(PY) -m local.deploy up --stack $(STACK) $(CHOSEN)
	@$(PY) -m local.access --stack $(STACK)

stop: .venv/ready  ## Stop the local cluster and keep its data; `make up` starts it again
	@$(PY) -m local stop --stack $(STACK)

down: .venv/ready  ## Remove the stack and, if it is local, its cluster
	@$(PY) -m local.deploy down --stack $(STACK) $(CHOSEN)
	@$(PY) -m local down --stack $(STACK)

preview: .venv/ready  ## Show what `make up` would change (ARGS=--markdown, ARGS=--json, POLICY=policy)
	@$(PY) -m local.deploy preview --stack $(STACK) $(CHOSEN) $(ARGS)

new-stack: .venv/ready  ## Write Pulumi.NAME.yaml for a new stack: ask for its settings, or read ARGS="--set key=value …"
	@$(PY) -m local.new_stack $(NAME) $(ARGS)

status: .venv/ready  ## Show the cluster's nodes and pods
	@$(PY) -m local status --stack $(STACK)
	@$(PY) -m local kubectl --stack $(STACK) get pods --all-namespaces

kubeconfig: .venv/ready  ## Print the kubectl command for the cluster, with its options
	@$(PY) -m local kubeconfig --stack $(STACK)

ssh: .venv/ready  ## Log in to a login node of the cluster
	@grep -qs '^Host login$$' .local/$(STACK)/ssh_config || $(PY) -m local.access --stack $(STACK)
	@! grep -qs '^Host login$$' .local/$(STACK)/ssh_config || ssh -F .local/$(STACK)/ssh_config login

images: .venv/ready  ## Build the images; push them to the registry, or load them into the nodes of a local cluster
	@$(PY) -m images.build --stack $(STACK) $(ARGS)

sbom: .venv/ready  ## Write a list of each image's contents to .local/sbom (CycloneDX)
	@$(PY) -m images.sbom --stack $(STACK) $(ARGS)

snapshot:  ## Use today's Debian packages in the images (writes images/debian/snapshot)
	@date --utc +%Y%m%dT%H%M%SZ >images/debian/snapshot

check: .venv/ready /usr/include/slurm/spank.h /usr/include/munge.h  ## Lint, types, import contract, unit tests (two minutes)
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/lint-imports
	@mkdir -p .local; .venv/bin/mypy >.local/types 2>&1 & types=$$!; trap "kill $$types; exit 130" INT TERM; \
		$(PY) -m pytest tests/unit tests/policy --lane check -q --numprocesses=auto --dist=worksteal; status=$$?; \
		wait $$types || { cat .local/types; exit 1; }; exit $$status

# Each worker runs the tests of one folder at a time. pytest starts the folders in the order of their
# names, and the folder that takes longest is the first.
SPREAD := --dist=loadscope --no-loadscope-reorder --numprocesses
# Folders whose tests have their own cluster and their own lane. A lane is one run of pytest.
APART  := tests/cluster/edits tests/cluster/nodesets tests/cluster/health tests/cluster/two_stacks tests/cluster/bridge
# Lanes in the order in which they start. Three lanes run at a time. They use two cores nearly fully,
# and more lanes would cause timeouts. When a lane ends, the next one starts. `test` first downloads
# the files that lanes need, so that no lane has to wait for a download.
LANES  := cluster health nodesets bridge container edits stacks
# Parallel lanes slow each other down: a test, or an event that a test waits for, may take three
# times as long. PATIENCE=3 therefore triples the time limits of waits.
test: check .local/bin/docker-registry /usr/bin/rsync  ## Run all tests that a change must pass (`make soak` runs the longer tests)
	@PATIENCE=$${PATIENCE:-3} PYTEST_TIMEOUT=1800 $(MAKE) --no-print-directory --jobs=3 $(LANES); status=$$?; $(PY) -m tests.support.report check $(LANES); exit $$status

container: .venv/ready .local/bin/docker-registry  ## Test each part alone, in containers
container: TESTS := tests/container $(SPREAD) 2

cluster: .venv/ready /usr/bin/rsync  ## Test what users and operators see, on a real cluster (ARGS="--keep -k login")
cluster: TESTS := tests/cluster $(APART:%=--ignore %)

edits: .venv/ready  ## Test changes of a running stack's settings, on a separate cluster
edits: TESTS := tests/cluster/edits

nodesets: .venv/ready  ## Test nodesets that grow, shrink, sleep and have GPUs, on a separate cluster
nodesets: TESTS := tests/cluster/nodesets

health: .venv/ready  ## Test faults of nodes and machines, on a separate cluster
health: TESTS := tests/cluster/health

stacks: .venv/ready  ## Test two stacks with different settings at once, each on its own cluster
stacks: TESTS := tests/cluster/two_stacks

bridge: .venv/ready  ## Test pods that Slurm schedules, on a separate cluster
bridge: TESTS := tests/cluster/bridge

$(LANES):
	@$(PY) -m pytest $(TESTS) -m 'not soak' --lane $@ $(TIMES) $(AGAIN) $(ARGS)

soak: .venv/ready /usr/bin/fuse2fs /usr/bin/faketime  ## Run the long tests, for faults that appear only after minutes (takes hours; run before a release)
	@$(PY) -m pytest tests/cluster tests/container -m soak --timeout 3600 --lane $@ $(TIMES) $(ARGS); status=$$?; \
		$(MAKE) --no-print-directory vm && exit $$status

vm: .venv/ready /usr/bin/qemu-system-x86_64  ## Run the tests that require their own kernel, in an emulated Debian machine (takes hours)
	@$(PY) -m pytest tests/machine --timeout 14400 --lane $@ $(TIMES) $(ARGS)

mutants: .venv/ready /usr/include/slurm/spank.h /usr/include/munge.h .local/bin/docker-registry  ## Break copies of the code on purpose, and check that the tests fail (ARGS="--tier unit --only agents")
	@$(PY) -m tests.mutants $(ARGS)

bench: .venv/ready .local/bin/docker-registry  ## Measure performance, mostly as ratios of two times in one run (results: docs/benchmarks.md; ARGS="--only confinement")
	@$(PY) -m tests.bench $(ARGS)

lock: .venv/ready  ## Pin the requirements again, with hashes
	@.venv/bin/pip install --quiet uv
	@.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header -o requirements.txt requirements.in
	@.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header -c requirements.txt -o requirements-dev.txt requirements-dev.in

schema: .venv/ready  ## Write the JSON Schema of the stack files, and the types of the Python package
	@$(PY) -m components.settings
	@$(PY) -m package.typeddicts

dashboards: .venv/ready  ## Write the JSON files of the Grafana dashboards
	@$(PY) -m monitoring.dashboards

clean:  ## Remove the Python environment and all caches (run `make down` first)
	rm -rf .venv .local/cache .local/bin

.venv/ready: requirements-dev.txt
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "slurmstack needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@echo "installing the Python requirements into .venv" >&2 # not to stdout, which $$(make -s kubeconfig) reads
	@python3 -m venv .venv 2>/dev/null || { $(call apt,python3-venv); python3 -m venv .venv; }
	@.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

.local/bin/docker-registry: # for tests that push images; only unpacked, because its installation would start a service
	@echo "apt-get download docker-registry"
	@folder=$$(mktemp -d); cd $$folder && { $(DOWNLOAD) || { apt-get update >/dev/null && $(DOWNLOAD); }; } \
		&& dpkg -x docker-registry_*.deb . && install -D usr/bin/docker-registry $(CURDIR)/$@; \
		status=$$?; rm -rf $$folder; exit $$status

/usr/bin/rsync: # for tests that copy files to and from the cluster
	@$(call apt,rsync)

/usr/bin/fuse2fs: # for tests with storage that stops responding
	@$(call apt,fuse2fs)

/usr/bin/qemu-system-x86_64: # for the virtual machine
	@$(call apt,qemu-system-x86)

/usr/bin/faketime: # for tests with a wrong clock
	@$(call apt,faketime)

/usr/include/slurm/spank.h: # for the SPANK plugin's unit tests
	@$(call apt,binutils gcc libc6-dev libslurm-dev make)

/usr/include/munge.h: # for tests that compile images/base/munge_keys.c
	@$(call apt,libmunge-dev)
