#!/bin/sh
# Usage: bringupd --active-check='/path/to/nccl.sh 300' …
#        bringupd --active-check='/path/to/nccl.sh 300 -b 4G -e 4G -g 4' …
# Runs an all-reduce among the GPUs of the node: all_reduce_perf of nccl-tests, or of rccl-tests for AMD.
# The first argument is the least bus bandwidth in GB/s; 0 accepts any. The others are those of
# all_reduce_perf, by default 1 GiB among all GPUs that the job has here. The program is searched in
# PATH, or is ALL_REDUCE_PERF. The exit code is that of an active check:
#   0  the results are right, and the bandwidth suffices; or there is only one GPU
#   2  a result is wrong, the bandwidth is too low, or NCCL has failed
#   3  the test could not run
# bringupd's report contains the first line of the output.

least=${1:-0}
[ $# -eq 0 ] || shift
program=${ALL_REDUCE_PERF:-all_reduce_perf}
if ! command -v "$program" >/dev/null; then
    echo "cannot find $program: build nccl-tests or rccl-tests, and add it to PATH or set ALL_REDUCE_PERF"
    exit 3
fi

# gpus: prints the number of GPUs that CUDA or HIP would find.
gpus() {
    for list in "$CUDA_VISIBLE_DEVICES" "$ROCR_VISIBLE_DEVICES" "$HIP_VISIBLE_DEVICES"; do
        [ -z "$list" ] || { echo "$list" | tr ',' '\n' | grep -c .; return; }
    done
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi -L | grep -c '^GPU'
    else
        cat /sys/class/kfd/kfd/topology/nodes/*/gpu_id 2>/dev/null | grep -cv '^0$' # AMD; 0 is a CPU
    fi
}

if [ $# -eq 0 ]; then
    count=$(gpus)
    case $count in
    0) echo "there is no GPU"; exit 3 ;;
    1) echo "there is only one GPU: no all-reduce"; exit 0 ;;
    esac
    set -- -b 1G -e 1G -g "$count"
fi
# The RAS thread of this NCCL must not answer for a job at the default port.
report=$(NCCL_RAS_ENABLE=0 NCCL_TESTS_MIN_BW='' "$program" "$@" 2>&1)
code=$?

# value NAME: prints the number after a name at the end of the report.
value() { printf '%s\n' "$report" | sed -n "s/^# $1 *: *\([0-9.e+-]*\).*/\1/p" | tail -n 1; }

# end LINE CODE: prints LINE and, if CODE is not 0, the report, and exits with CODE.
end() {
    echo "$1"
    [ "$2" -eq 0 ] || printf '%s\n' "$report"
    exit "$2"
}

wrong=$(value 'Out of bounds values') bandwidth=$(value 'Avg bus bandwidth')
case $code in
126 | 127) end "cannot run $program: exit code $code" 3 ;; # also if a library is missing
esac
if [ -z "$bandwidth" ]; then
    reason=$(printf '%s\n' "$report" | grep -i -m 1 -e 'failure' -e 'error' | tr -s ' ')
    end "failed: ${reason:-$program has ended with exit code $code}" 2
fi
[ "${wrong:-0}" = 0 ] || end "failed: $wrong wrong results" 2
awk -v is="$bandwidth" -v least="$least" 'BEGIN { exit !(is + 0 < least + 0) }' && end "failed: $bandwidth GB/s, and not $least" 2
[ $code -eq 0 ] || end "failed: $program has ended with exit code $code" 2
end "$bandwidth GB/s" 0
