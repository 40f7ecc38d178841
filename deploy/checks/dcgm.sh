#!/bin/sh
# Usage: bringupd --active-check=/path/to/dcgm.sh …
#        bringupd --active-check='/path/to/dcgm.sh -r 2 -i 0,1' …
# Runs NVIDIA's dcgmi diag, by default at level 1, and exits with the code of an active check:
#   0  tests have passed, and none has warned
#   1  a test has warned
#   2  a test has failed
#   3  DCGM could not test the GPUs
# The arguments are those of dcgmi diag. bringupd's report contains the first line of the output.

[ $# -gt 0 ] || set -- -r 1
if ! command -v dcgmi >/dev/null; then
    echo "cannot find dcgmi in PATH: install DCGM (datacenter-gpu-manager)"
    exit 3
fi
report=$(dcgmi diag "$@" 2>&1)
code=$?

# named RESULT: prints the names of the tests with this result. The rows are: | name | result … |
named() {
    printf '%s\n' "$report" | awk -F '|' -v result="$1" '
        { gsub(/^ +| +$/, "", $2); sub(/^ +/, "", $3) }
        $2 != "" && index($3, result) == 1 { all = all (all == "" ? "" : ", ") $2 }
        END { print all }'
}

# end LINE CODE: prints LINE and, if CODE is not 0, the report of dcgmi, and exits with CODE.
end() {
    echo "$1"
    [ "$2" -eq 0 ] || printf '%s\n' "$report"
    exit "$2"
}

failed=$(named Fail) warned=$(named Warn) passed=$(named Pass)
# The exit code of dcgmi is a dcgmReturn_t modulo 256. 0 is DCGM_ST_OK. 226 is DCGM_ST_NVVS_ERROR: a
# test, or NVVS itself, has failed. 205 is DCGM_ST_NVVS_ISOLATE_ERROR. Any other code is an error of
# DCGM and contains no information about the GPUs.
case $code in
205) end "failed: ${failed:-dcgmi requests that the GPU be isolated}" 2 ;;
0 | 226) [ -z "$failed" ] || end "failed: $failed" 2 ;;
esac
[ $code -eq 0 ] || end "cannot test the GPUs: dcgmi has ended with exit code $code" 3
[ -z "$warned" ] || end "warned: $warned" 1
[ -n "$passed" ] || end "unknown: no test has passed" 3 # all tests were skipped
end "passed: $passed" 0
