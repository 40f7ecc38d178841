#!/bin/sh
# Checks the code: formatting, go vet, and a small set of linters. It runs all checks, even if
# one of them has failed.
set -u
cd "$(dirname "$0")/.."
tags=testbed,ray,browser,recipes,stacks,mpi,packages,starters,site,bwrap,prometheus
code=0
# With -trimpath, the linters would read cgo's output with the paths of another checkout from Go's cache.
export GOFLAGS="${GOFLAGS:-} -trimpath=false"

unformatted=$(gofmt -l cmd deploy internal pkg test tools)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted"; code=1; }
go vet ./... || code=1
go run ./test/cmd/comments cmd internal pkg test || code=1
go vet -tags "$tags" ./pkg/framework/... ./pkg/inspect/... ./test/... || code=1
go tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners --build-tags "$tags" ./... || code=1
licences=$(mktemp)
make -s licences LICENCES="$licences" && diff THIRD_PARTY_LICENSES "$licences" ||
    { echo "THIRD_PARTY_LICENSES is stale: run make licences"; code=1; }
rm "$licences"
exit $code
