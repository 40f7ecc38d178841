#!/bin/sh
# Fuzzes every target for a while: 3s each, and 45s (10 minutes in all) those that
# read what others send: peers, ranks and other programs, and the run directory.
# FUZZTIME is for all of them, if it is set. An input that fails is left in the
# package's testdata/fuzz, where plain go test finds it. Nothing else is left: what
# was interesting this time is forgotten.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# fuzz_time prints for how long a target is fuzzed.
fuzz_time() {
    case $1 in
    FuzzExamine | FuzzIntroduce | FuzzRecords | FuzzFrames | FuzzServe | FuzzDelta | FuzzFrame | FuzzChild | \
        FuzzSocket | FuzzAsked | FuzzAgent | FuzzDecode | FuzzReadRecord | FuzzRequestsShown) echo "${FUZZTIME:-45s}" ;;
    *) echo "${FUZZTIME:-3s}" ;;
    esac
}

fuzz() {
    "$work/test" -test.run='^$' -test.fuzz="^$1\$" -test.fuzztime="$(fuzz_time "$1")" \
        -test.fuzzminimizetime=200x -test.fuzzcachedir="$work/cache" >"$work/said" 2>&1
}

# ran_out reports whether fuzzing ended by its time alone. Go below 1.27 at times takes that for a
# failure, for which there is no input then: see https://go.dev/issue/75804.
ran_out() {
    grep -q '^    context deadline exceeded$' "$work/said" && grep -q 'now fuzzing with' "$work/said" &&
        ! grep -q 'Failing input' "$work/said"
}

failed=
for package in $(grep -rl --include='*_test.go' '^func Fuzz' cmd internal pkg | xargs -n 1 dirname | sort -u); do
    # The binary is made once for all targets of a package: linking takes long.
    go test -c -fuzz=. -o "$work/test" "./$package"
    cd "$package"
    for target in $("$work/test" -test.list='^Fuzz'); do
        if fuzz "$target" || ran_out; then
            echo "$package $target: $(grep 'elapsed:' "$work/said" | tail -n 1 | sed 's/^.*execs: //')"
        else
            failed="$failed $target"
            cat "$work/said"
        fi
    done
    cd "$root"
done
[ -z "$failed" ] || { echo "fuzzing has failed:$failed" >&2; exit 1; }
