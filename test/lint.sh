#!/bin/sh
# Checks the code: formatting, whether generated code is up to date, go vet, and a small set of
# linters. It runs all checks, even if one of them has failed.
set -u
cd "$(dirname "$0")/.."
tags=testbed,ray,browser,recipes,stacks,mpi,packages,starters
generated=$(mktemp -d) || exit 1
trap 'rm -rf "$generated"' EXIT
code=0

unformatted=$(gofmt -l cmd deploy internal pkg test tools)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted"; code=1; }
cp pkg/framework/ray/gcs.proto "$generated" &&
    go run -C tools ./genproto "$generated/gcs.proto" || code=1
cmp "$generated/gcs.pb.go" pkg/framework/ray/gcs.pb.go ||
    { echo "stale: run go generate ./pkg/framework/ray"; code=1; }
go vet ./... || code=1
go run ./test/cmd/comments cmd internal pkg test || code=1
go vet -tags "$tags" ./pkg/framework/... ./pkg/inspect/... ./test/... || code=1
go tool -modfile=tools/go.mod golangci-lint run --allow-parallel-runners --build-tags "$tags" ./... || code=1
exit $code
