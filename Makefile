# Commands for developers. All versions are pinned: Go modules in go.mod, tools in tools/go.mod, and
# Ray and other test requirements in test/setup.sh.

GO       ?= go
BIN      ?= bin
VERSION  ?= $(shell sh packaging/version.sh)
TOOL      = $(GO) tool -modfile=tools/go.mod
# urfave_cli_no_docs removes the documentation generator of urfave/cli, which takes more start-up
# time than everything else. NVML needs cgo; the other tags make Go resolve host and user names
# without C.
TAGS      = urfave_cli_no_docs,netgo,osusergo
SMALL     = -trimpath -buildvcs=false -ldflags "-s -w -X github.com/bringupd/bringupd/internal/version.stamped=$(VERSION)"

# Suppress 29 warnings about functions that NVIDIA's own header marks as deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

LICENCES = THIRD_PARTY_LICENSES

# Runs the tests in parts. With -list, it lists them.
SUITE = $(GO) run ./test/cmd/suite

.PHONY: build release static package licences release-check test test-all quick unit lint share cluster soak bench deaths recoveries testbed pictures site clean

build: ## build bin/bringupd, to be copied to a folder that all nodes see
	CGO_ENABLED=1 $(GO) build -tags $(TAGS) -o $(BIN)/bringupd ./cmd/bringupd

release: ## the same, but smaller, and with its version
	CGO_ENABLED=1 $(GO) build -tags $(TAGS) $(SMALL) -o $(BIN)/bringupd ./cmd/bringupd

static: ## the same for nodes with another C library; it cannot monitor NVIDIA GPUs
	CGO_ENABLED=0 $(GO) build -tags $(TAGS) $(SMALL) -o $(BIN)/bringupd ./cmd/bringupd

package: ## write tarballs, a .deb, an .rpm, Python wheels, SBOMs and checksums to dist/
	TAGS=$(TAGS) sh packaging/build.sh

licences: ## write THIRD_PARTY_LICENSES, after the modules of the program have changed
	$(GO) run ./test/cmd/licences $(TAGS) $(LICENCES)

release-check: ## check that the packages of the last commit can be released
	sh packaging/release-check.sh

test: ## install the requirements of the gate and run it, as CI does: the core and what often fails
	$(SUITE) -gate

test-all: ## install the requirements of all tests and run them, once before an issue is resolved
	$(SUITE)

quick: ## run go vet and the short unit tests; for frequent use
	$(GO) vet -tags testbed,ray,browser,recipes,stacks,mpi,packages,starters,site,bwrap,prometheus ./...
	$(GO) test -short -p 8 ./cmd/... ./internal/... ./pkg/...

lint: ## run the checks of the code that CI runs
	$(SUITE) lint

unit: ## run the unit tests with the race detector, and jobs on this machine
	$(SUITE) unit

share: ## run the tests with a shared file system that is slow, stale, faulty, full or unresponsive
	$(SUITE) share

cluster: ## run jobs on a real Slurm, some with a real Ray
	$(SUITE) cluster

soak: ## run the randomised tests (fuzzing, schedules, chaos), and the report in a browser
	$(SUITE) soak

bench: ## run the benchmarks; complete bring-ups are paired with srun true
	sh test/bench.sh

deaths: ## run only the benchmark of deaths: make deaths DEATHS=100 ON=sshfs-stale
	$(GO) test -tags testbed -run '^$$' -bench Death -benchtime 1x -timeout 120m ./test/bench \
		-deaths=$(or $(DEATHS),100) -deaths-on=$(or $(ON),sshfs-stale)

recoveries: ## run only the benchmark of recoveries: make recoveries RECOVERIES=50 ON=sshfs-stale
	$(GO) test -tags testbed -run '^$$' -bench Recovery -benchtime 1x -timeout 120m ./test/bench \
		-recoveries=$(or $(RECOVERIES),50) -recoveries-on=$(or $(ON),sshfs-stale)

testbed: ## run a Slurm of four nodes for experiments, until Ctrl-C
	. test/setup.sh && have_testbed && $(GO) run ./test/cmd/testbed -nodes 4 -share sshfs-stale

site: ## write the documentation with a search box to dist/site
	. test/setup.sh && have_site && "$$BRINGUPD_TEST_SITE" packaging/site.py dist/site

pictures: ## make the pictures of the documentation again, from a run on this machine
	sh test/pictures.sh

clean:
	rm -rf $(BIN) dist
