#!/bin/sh
# The benchmarks: make bench. Those on a real Slurm are pairs with srun true.
set -eu
cd "$(dirname "$0")/.."
. test/setup.sh

go test -run '^$' -bench . ./pkg/...
if have_testbed; then
    go test -tags testbed -run '^$' -bench . -benchtime 1x -timeout 20m ./test/bench
fi
