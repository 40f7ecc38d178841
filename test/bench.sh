#!/bin/sh
# Runs the benchmarks (make bench). Those on a real Slurm are paired with `srun true`.
set -eu
cd "$(dirname "$0")/.."
. test/setup.sh
have_cc || exit 1

go test -run '^$' -bench . ./internal/... ./pkg/...
for latency in 0ms 1ms 5ms; do
    go run ./test/cmd/simulate --nodes=4,16,64,256,1024,4096 --op-latency=$latency --dir="${SIMULATE_DIR:-/dev/shm}"
done
go run ./test/cmd/simulate --nodes=64,256,1024 --ranks=8 --op-latency=1ms --dir="${SIMULATE_DIR:-/dev/shm}"
go test -run '^$' -bench . -benchtime 1x ./test/roleruns # restarts and deaths of the instances of roles
if have_testbed && have_mpis; then
    tags=testbed
    ! have_ray || tags=testbed,ray
    go test -tags $tags -run '^$' -bench . -benchtime 1x -timeout 180m ./test/bench -deaths="${DEATHS:-3}" -recoveries="${RECOVERIES:-3}"
fi
