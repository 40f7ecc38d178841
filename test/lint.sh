#!/bin/sh
# Holds the code to what can be checked: formatting, vet, a short set of
# linters, generated code that is up to date, known vulnerabilities (where their
# database can be reached).
set -eu
cd "$(dirname "$0")/.."
tags=testbed,ray,browser

unformatted=$(gofmt -l cmd pkg test)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted" >&2; exit 1; }
go vet ./...
generated=pkg/framework/ray/gcs/gcs.pb.go
was=$(cksum <$generated)
go generate ./pkg/framework/...
[ "$was" = "$(cksum <$generated)" ] || { echo "$generated was stale: it has been generated anew" >&2; exit 1; }
go vet -tags "$tags" ./pkg/framework/... ./pkg/timeline/... ./test/...
go tool -modfile=tools/go.mod golangci-lint run --build-tags "$tags" ./...
if ! out=$(go tool -modfile=tools/go.mod govulncheck ./... 2>&1); then
    case $out in
    *vuln.go.dev*) echo "govulncheck: not run: its database can't be reached" ;;
    *) echo "$out" >&2; exit 1 ;;
    esac
fi
