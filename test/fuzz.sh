#!/bin/sh
# Fuzzes every target for a while: 45s for targets that read input of peers, ranks, other programs
# or the run directory (10 minutes in total), and 3s for all others. FUZZTIME overrides both. Inputs
# that fail are stored in the package's testdata/fuzz, where go test finds them. The corpus of other
# interesting inputs is not kept.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# fuzz_time TARGET: prints how long to fuzz a target.
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

# ran_out: reports whether fuzzing ended only because its time was over. Before Go 1.27 this is
# sometimes reported as a failure, without an input: see https://go.dev/issue/75804.
ran_out() {
    grep -q '^    context deadline exceeded$' "$work/said" && grep -q 'now fuzzing with' "$work/said" &&
        ! grep -q 'Failing input' "$work/said"
}

failed=
for package in $(grep -rl --include='*_test.go' '^func Fuzz' cmd internal pkg | xargs -n 1 dirname | sort -u); do
    # Build the binary once for all targets of a package, because linking takes long.
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
