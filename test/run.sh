#!/bin/sh
# Runs everything: make test. See test/setup.sh for what it installs.
set -eu
cd "$(dirname "$0")/.."
. test/setup.sh
have_cc || exit 1

echo "== lint"
sh test/lint.sh

echo "== the tests beside the code, and jobs on this machine"
go test -race -timeout 10m ./cmd/... ./pkg/... ./test/local/... ./test/nvml/...

echo "== ten thousand schedules of one protocol"
go test -timeout 10m ./pkg/daemon/schedules

echo "== inputs that nobody has thought of"
sh test/fuzz.sh

if have_browser; then
    echo "== the report's page in a real browser"
    go test -tags browser -timeout 10m -count=1 -run Browser ./pkg/timeline/report
fi

if have_fuse; then
    echo "== a share that is slow, stale, lying, full or hung"
    go test -timeout 15m -count=1 ./test/hostile ./test/faults
fi

if have_testbed; then
    echo "== the testbed itself"
    go test -tags testbed -timeout 10m -count=1 ./test/testbed/...
    tags=testbed
    if have_ray; then
        echo "== the client of a real Ray"
        go test -tags ray -timeout 10m -count=1 -run TestRealRay ./pkg/framework/ray
        tags="testbed,ray"
    fi
    echo "== jobs on a real Slurm"
    go test -tags "$tags" -timeout 20m -count=1 ./test/e2e
    echo "== chaos"
    go test -tags testbed -timeout 10m -count=1 ./test/chaos
    echo "== jobs on another share: MooseFS"
    go test -tags testbed -timeout 10m -count=1 -run 'Driver|OneNode|SeesNothing|Term|Stop|Sandbox' ./test/e2e -share=moosefs
fi
