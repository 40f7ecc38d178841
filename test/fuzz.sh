#!/bin/sh
# Fuzzes every target for a while: FUZZTIME each, 3s by default. An input that
# fails is left in the package's testdata/fuzz, where plain go test finds it.
# Nothing else is left: what was interesting this time is forgotten.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

fuzz() {
    "$work/test" -test.run='^$' -test.fuzz="^$1\$" -test.fuzztime="${FUZZTIME:-3s}" \
        -test.fuzzminimizetime=200x -test.fuzzcachedir="$work/cache" >"$work/said" 2>&1
}

# in_vain tells whether it failed without an input that fails.
in_vain() {
    grep -q 'context deadline exceeded' "$work/said" && ! grep -q 'Failing input' "$work/said"
}

failed=
for package in $(grep -rl --include='*_test.go' '^func Fuzz' cmd pkg | xargs -n 1 dirname | sort -u); do
    # The binary is made once for all targets of a package: linking takes long.
    go test -c -fuzz=. -o "$work/test" "./$package"
    cd "$package"
    for target in $("$work/test" -test.list='^Fuzz'); do
        # Go below 1.27 at times takes the end of the time for a failure: see
        # https://go.dev/issue/75804. A second try tells.
        if fuzz "$target" || { in_vain && fuzz "$target"; }; then
            echo "$package $target: $(grep 'elapsed:' "$work/said" | tail -n 1 | sed 's/^.*execs: //')"
        else
            failed="$failed $target"
            cat "$work/said"
        fi
    done
    cd "$root"
done
[ -z "$failed" ] || { echo "fuzzing has failed:$failed" >&2; exit 1; }
