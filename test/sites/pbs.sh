#!/bin/bash
# shellcheck disable=SC2329  # the cases call the functions
# Runs the cases with an installed PBS: README.md.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit
# shellcheck source=test/sites/cases.sh
. "$root/test/sites/cases.sh"

LIMIT='-l walltime=00:01:00'
HOLD=-h
ARRAY='-J 4-5'
# shellcheck disable=SC2016  # expanded by the driver
ARRAY_DRIVER='touch index.$PBS_ARRAY_INDEX'

# Several lines per host, as mpiprocs=2 has, are part of each case.
submit() {
    qsub -v "$(compgen -e | grep -x 'DRIVER\|NNODES\|RANKS_PER_NODE\|BRINGUPD_.*' | paste -sd,)" \
        -l "select=${NODES:-2}:ncpus=1:mpiprocs=2" -l place=scatter "$@" "$root/deploy/pbs/generic.pbs"
}
await_end() { while qstat "$1" >/dev/null 2>&1 && ! qstat -x -f "$1" | grep -q 'job_state = [FX]'; do sleep 1; done; }
cancel() { qdel "$1"; }
exit_code() { qstat -x -f "$1" | sed -n 's/ *Exit_status = //p'; }
suspend() { qsig -s suspend "$1"; }
resume() { qsig -s resume "$1"; }
rerun() { qrerun "$1"; }
ids() { echo "$1" "${1%%.*}"; }
elements() { echo "${1/\[\]/[4]} ${1/\[\]/[5]}"; }
run_name() { # 17.server is 17, and 17[4].server is 17-4
    local job=${1%%.*}
    job=${job/\[/-}
    echo "${job%]}"
}

SITE_CASES='pbsdsh interactive'

case_pbsdsh() {
    local job
    job=$(echo 'pbsdsh -- bash -c "cd $PBS_O_WORKDIR && PATH=$PBS_O_PATH exec bringupd -- true"' |
        qsub -N pbsdsh -j oe -v BRINGUPD_LOG_DIR -l select=2:ncpus=1:mpiprocs=1 -l place=scatter)
    await_end "$job"
    report pbsdsh "the result" "$(result "$(run_name "$job")")" 0
}

# In the shell of qsub -I there is no other daemon, and bringupd local needs none.
case_interactive() {
    local printed
    printed=$(printf '%s\n' "cd $work; PATH=$PATH" 'bringupd -- true; echo code=$?' 'bringupd local --nodes=2 -- true; echo code=$?' exit |
        timeout 120 script -qec "qsub -I -l select=2:ncpus=1 -l place=scatter -v BRINGUPD_LOG_DIR" /dev/null)
    report interactive "the codes" "$(tr -d '\r' <<<"$printed" | grep -x 'code=.*' | xargs)" "code=65 code=0"
}

run_cases
