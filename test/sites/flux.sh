#!/bin/bash
# shellcheck disable=SC2329  # the cases call the functions
# Runs the cases within an instance of Flux: README.md.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit
# shellcheck source=test/sites/cases.sh
. "$root/test/sites/cases.sh"

LIMIT='--time-limit=1m'

# shellcheck disable=SC2016  # DRIVER is expanded by the driver's shell
submit() { flux submit -N2 --tasks-per-node=1 --cwd="$work" "$@" bringupd -- sh -c 'eval "$DRIVER"'; }
await_end() { flux job wait-event -q "$1" clean 2>/dev/null; }
cancel() { flux cancel "$1"; }
exit_code() { flux jobs -n -o '{returncode}' "$1"; }
suspend() { flux job kill -s STOP "$1"; }
resume() { flux job kill -s CONT "$1"; }
kill_daemon() { flux exec -r "$(flux hostlist -e local | tr ' ' '\n' | grep -nxF "$1" | cut -d: -f1 | awk '{ print $1 - 1 }')" kill -9 "$2"; }
run_name() { # the ids of the instances around it precede the job's
    flux getattr jobid >/dev/null 2>&1 && echo -n "$(flux job id --to=f58plain "$(flux getattr jobid)")-"
    flux job id --to=f58plain "$1"
}

run_cases
