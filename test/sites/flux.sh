#!/bin/bash
# shellcheck disable=SC2329  # the cases call the functions
# Runs the cases within an instance of Flux: README.md.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit
# shellcheck source=test/sites/cases.sh
. "$root/test/sites/cases.sh"

LIMIT='--time-limit=1m'
HOLD=--urgency=0

# shellcheck disable=SC2016  # DRIVER is expanded by the driver's shell
submit() {
    flux submit -N "${NODES:-2}" --tasks-per-node=1 --cwd="$work" "$@" bringupd ${NNODES:+--nnodes="$NNODES"} \
        ${RANKS_PER_NODE:+--ranks-per-node="$RANKS_PER_NODE"} ${DRIVER:+-- sh -c 'eval "$DRIVER"'}
}
await_end() { flux job wait-event -q "$1" clean 2>/dev/null; }
cancel() { flux cancel "$1"; }
exit_code() { flux jobs -n -o '{returncode}' "$1"; }
suspend() { flux job kill -s STOP "$1"; }
resume() { flux job kill -s CONT "$1"; }
kill_daemon() { flux exec -r "$(flux hostlist -e local | tr ' ' '\n' | grep -nxF "$1" | cut -d: -f1 | awk '{ print $1 - 1 }')" kill -9 "$2"; }
ids() { flux jobs -n -o '{id.f58} {id.f58plain} {id.dec} {id.hex} {id.dothex} {id.kvs}' "$1"; }
run_name() { # the ids of the instances around it precede the job's
    flux getattr jobid >/dev/null 2>&1 && echo -n "$(flux job id --to=f58plain "$(flux getattr jobid)")-"
    flux job id --to=f58plain "$1"
}

SITE_CASES='nested batch'

# An instance of Flux in a job of Flux; the batch job's id is that of the newest run in it.
case_nested() {
    local job
    printf '%s\n' '#!/bin/sh' 'exit 5' >five.sh # --wrap would split a shell's command
    chmod +x five.sh
    job=$(flux batch -N2 --cwd="$work" --wrap flux run -N2 --tasks-per-node=1 bringupd -- ./five.sh)
    await_end "$job"
    report nested "the code of wait for the batch job" "$(bringupd wait "$job" 2>/dev/null; echo $?)" 5
    report nested "the batch job's code" "$(exit_code "$job")" 5
}

case_batch() {
    local job
    job=$(RANKS_PER_NODE=2 flux batch -N2 --cwd="$work" "$root/deploy/flux/generic.sh" sh -c 'touch batch.$RANK')
    await_end "$job"
    report batch "the code of deploy/flux/generic.sh" "$(exit_code "$job")" 0
    report batch "the ranks" "$(echo batch.*)" "batch.0 batch.1 batch.2 batch.3"
    [ -n "${RAY_PYTHON:-}" ] || return
    job=$(PATH=$(dirname "$RAY_PYTHON"):$PATH flux batch -N2 --cwd="$work" "$root/deploy/flux/ray.sh" "$RAY_PYTHON" "$PWD/count.py")
    await_end "$job"
    report batch "the code of deploy/flux/ray.sh" "$(exit_code "$job")" 0
}

run_cases
