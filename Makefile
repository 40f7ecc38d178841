# What a developer runs. Everything is pinned: Go's modules in go.mod, the
# tools in tools/go.mod, Ray in test/setup.sh.

GO       ?= go
BIN      ?= bin
VERSION  ?= $(shell git describe --tags --match 'v[0-9]*' --always --abbrev=12 --dirty 2>/dev/null)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)
TOOL      = $(GO) tool -modfile=tools/go.mod
# The manual's generator in urfave/cli takes more of a start than all the rest.
# NVML can only be called through C; names and users are still Go's to look up.
TAGS      = urfave_cli_no_docs,netgo,osusergo
SMALL     = -trimpath -buildvcs=false -ldflags "-s -w -X main.stamped=$(VERSION) -X main.commit=$(COMMIT)"

# Without it 29 warnings about what NVIDIA's own header calls deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

# Runs the tests in parts. SUITE -list shows them.
SUITE = $(GO) run ./test/cmd/suite

.PHONY: build release static package test test-all quick unit lint share cluster soak bench deaths testbed clean

build: ## build bin/bringupd, to put where all nodes see it
	CGO_ENABLED=1 $(GO) build -tags $(TAGS) -o $(BIN)/bringupd ./cmd/bringupd

release: ## the same, small, and stamped with its version
	CGO_ENABLED=1 $(GO) build -tags $(TAGS) $(SMALL) -o $(BIN)/bringupd ./cmd/bringupd

static: ## the same for nodes with another C library; it sees no GPUs
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) $(SMALL) -o $(BIN)/bringupd ./cmd/bringupd

package: ## leave tarballs, a .deb, an .rpm, SBOMs and their sums in dist/
	VERSION='$(VERSION)' TAGS=$(TAGS) sh packaging/build.sh

test: ## install what the gate needs and run it: the core and what fails often, as CI does
	$(SUITE) -gate

test-all: ## install what all tests need, and run them: once before an issue is resolved
	$(SUITE)

quick: ## vet, and the tests beside the code that take no seconds: to be run all the time
	$(GO) vet -tags testbed,ray,browser,recipes,stacks,mpi,packages,starters ./...
	$(GO) test -short -p 8 ./cmd/... ./internal/... ./pkg/...

lint: ## what CI holds the code to
	$(SUITE) lint

unit: ## the tests beside the code under the race detector, and jobs on this machine
	$(SUITE) unit

share: ## a share that is slow, stale, lying, full or hung
	$(SUITE) share

cluster: ## jobs on a real Slurm, some with a real Ray
	$(SUITE) cluster

soak: ## what is drawn anew each time: fuzzing, schedules, chaos; and the report in a browser
	$(SUITE) soak

bench: ## the benchmarks; whole bring-ups are paired with srun true
	sh test/bench.sh

deaths: ## of them the deaths alone, so many of each kind on one share: make deaths DEATHS=100 ON=sshfs-stale
	$(GO) test -tags testbed -run '^$$' -bench Death -benchtime 1x -timeout 120m ./test/bench \
		-deaths=$(or $(DEATHS),100) -deaths-on=$(or $(ON),sshfs-stale)

testbed: ## leave a Slurm of four nodes up to play with, until Ctrl-C
	$(GO) run ./test/cmd/testbed -nodes 4 -share sshfs-stale

clean:
	rm -rf $(BIN) dist
