# Bookend. "make" alone lists what can be made.

VERSION ?= $(shell deploy/packages/version.sh 2>/dev/null || cat VERSION)

# cgo's own defaults, less the warnings of the vendor's header.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

# No build id: the same source makes the same bytes, in whatever folder.
LDFLAGS := -s -w -buildid= -X main.version=$(VERSION)
# NVIDIA's functions are bound when called: a driver may lack some of them, and many toolchains bind at start.
LAZY := -extldflags=-Wl,-z,lazy

# Where the programs go; the packages have folders of their own.
BIN ?= bin
STATIC := $(BIN)/bookend-prolog $(BIN)/bookend-epilog $(BIN)/bookend-healthcheck $(BIN)/bookend $(BIN)/bookend-amd
folder_bookend-prolog := prolog
folder_bookend-epilog := epilog
folder_bookend-healthcheck := healthcheck
folder_bookend := admin
folder_bookend-amd := rocm

# Packages with goroutines of their own, or whose files several hooks share; the rest has nothing to race.
RACE := ./internal/child/... ./internal/procscan/... ./internal/joblog ./internal/metrics \
	./internal/publish ./internal/safefile ./internal/hook ./internal/node ./internal/maintenance ./internal/recorder ./internal/state \
	./internal/allocation ./cuda/...

# The packages that need no file, clock or process: the bands "values" and "pure" of the architecture.
PURE = $(addprefix ./internal/,$(shell sed -nE 's/^\| (values|pure) \|([^|]*)\|.*/\2/p' docs/architecture.md | tr -d '`'))

.PHONY: help build $(STATIC) $(BIN)/bookend-gpu $(BIN)/bookend-hip vet check test lint coverage e2e demo page-look check-deploy check-grafana packages release install-test bench bench-scan soak soak-mutants torture fuzz gpu-test clean

help: ## list what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: $(STATIC) $(BIN)/bookend-gpu $(BIN)/bookend-hip ## build the programs into bin/

$(STATIC):
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o $@ ./$(folder_$(@F))

$(BIN)/bookend-gpu:
	CGO_ENABLED=1 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS) $(LAZY)" -o $@ ./cuda

$(BIN)/bookend-hip:
	CGO_ENABLED=1 go build -trimpath -buildvcs=false -ldflags "$(LDFLAGS)" -o $@ ./rocm/hip

vet:
	@deploy/packages/needs.sh go gcc
	go vet ./...

check: ## the inner loop, as any user, in a minute: form, architecture, the pure packages, real programs' messages, a small soak
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run ./test/lint
	go test $(PURE) ./test/texts ./test/docs
	go run ./test/soak --pairs 10000

# Some tests build the programs that they try, of which go test's cache knows nothing: -count=1.
test: lint ## lint, and run every test that needs no GPU; installs Slurm and busybox first (as root)
	@command -v busybox >/dev/null || { apt-get -q update && apt-get -q -y install busybox; } >/dev/null || \
		echo "without busybox: the hooks' scripts are not run by it"
	@slurm=$$(test/install-slurm.sh) && export "$$slurm" && set -x && \
	go test -count=1 -timeout 30m -ldflags "$(LAZY)" ./... && \
	go test -timeout 30m -ldflags "$(LAZY)" -race -skip AreBounded $(RACE)

lint: vet build ## check form, architecture and what the programs are linked with
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go run ./test/lint
	test/lint/programs.sh $(STATIC)
	go tool -modfile=test/tools/go.mod staticcheck ./...
	test/vulns.sh

coverage: ## measure what the tests reach of the code that runs as root, children included (as root): 3 minutes; COVERAGE=-help
	test/coverage/measure.sh $(COVERAGE)

SLURM ?= native

e2e: build ## run the end-to-end tests under a real Slurm with fake GPUs; SLURM=all (or 22.05,24.11,26.05): on each (as root)
ifeq ($(SLURM),native)
	@slurm=$$(test/install-slurm.sh) && export "$$slurm" && set -x && \
	go test -count=1 -timeout 30m ./test/e2e/...
else
	go run ./test/e2e/versions -slurm $(SLURM) $(E2E)
endif

demo: ## show jobs with and without a leak, on a private Slurm (installed first, as root); STORY=help lists its stories
	@test/gpu/demo.sh "$(STORY)" $(DEMO)

page-look: ## make a report page of generated records, and pictures of it in build/page (installs chromium, as root); PAGE=--docs renews docs/images
	test/page/look.sh $(PAGE)

check-deploy: build ## check deploy/ with systemd's programs, ShellCheck, a real Prometheus and node_exporter (installs them, as root)
	test/install-prometheus.sh
	test/deploy/verify.sh
	test/monitoring/check.sh $(BIN)

check-grafana: ## hold the dashboard in deploy/ against Grafana's published schema (needs node and npm)
	@mkdir -p build/grafana && cp test/monitoring/grafana/* build/grafana && \
	cd build/grafana && npm ci --ignore-scripts --no-audit --no-fund && node check.mjs ../../deploy/grafana/bookend.json

packages: ## make .deb and .rpm for x86-64 and arm64 in build/packages, the same bytes each time (docs/packages.md); ARCHES=amd64
	deploy/packages/build.sh $(ARCHES)

release: ## make the release that HEAD is tagged as, in build/release: packages, tarballs, SHA256SUMS (RELEASE_KEY=ID signs); ARCHES=amd64
	deploy/packages/release.sh $(ARCHES)

install-test: packages ## install the packages in fresh Debian chroots with a real Slurm, and try upgrades and removal (as root); INSTALL=-help
	go run ./test/install $(INSTALL)

bench: ## measure the hooks
	go test -run '^$$' -bench . -benchtime 20x ./test/bench
	go test -run '^$$' -bench . -benchmem ./internal/...

# A process takes some 200 KiB: 20000 need 4 GiB, which not every machine has to spare.
SCAN ?= -processes $(shell awk '/^MemAvailable/ { print ($$2 > 8*1024*1024) ? 20000 : 2000 }' /proc/meminfo) -fds 50 -cpus 4 -max 2s

bench-scan: ## measure the search for holders among real processes; flags: SCAN=-help
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -o bin/scanbench ./test/scan
	$(CC) -O2 -static -o bin/nursery test/scan/nursery/nursery.c
	bin/scanbench $(SCAN)

soak: ## play 1 500 000 simulated pairs of jobs through the judgement: 11 minutes on 2 cores; SOAK="--seed N --pairs N --replay SEED:N"
	go run ./test/soak $(SOAK)

soak-mutants: ## plant mistakes in the judgement, one at a time: the soak must notice each, in 3 minutes; SOAK="--only TEXT --pairs N"
	go run ./test/soak --mutants --pairs 300000 --seed 1 $(SOAK)

torture: ## swap files under the hooks, fail each system call near what they keep, kill them (as root); TORTURE=-help CRASH=-help
	go run ./test/adversary swap $(TORTURE)
	go run ./test/adversary fault $(CRASH)

FUZZTIME ?= 10s

fuzz: ## feed what comes from outside to its parsers, each fuzz target for FUZZTIME (10s); FUZZ="--only TEXT --jobs N --list"
	test/fuzz.sh --time $(FUZZTIME) $(FUZZ)

gpu-test: ## run the scenarios on a real GPU under a real Slurm (exit 3 of run.sh: no GPU here)
	test/gpu/run.sh --check
	$(MAKE) --no-print-directory build
	test/gpu/build.sh bin
	test/gpu/run.sh

clean: ## remove what was built
	rm -rf bin build
