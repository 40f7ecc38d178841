#!/bin/bash
# shellcheck disable=SC2329  # the cases call the functions
# Runs the cases with an installed PBS: README.md.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit
# shellcheck source=test/sites/cases.sh
. "$root/test/sites/cases.sh"

LIMIT='-l walltime=00:01:00'
ARRAY='-J 4-5'
# shellcheck disable=SC2016  # expanded by the driver
ARRAY_DRIVER='touch index.$PBS_ARRAY_INDEX'

# Several lines per host, as mpiprocs=2 has, are part of each case.
submit() { qsub -v DRIVER,BRINGUPD_LOG_DIR,BRINGUPD_DRIVER_GRACE -l select=2:ncpus=1:mpiprocs=2 -l place=scatter "$@" "$root/deploy/pbs/generic.pbs"; }
await_end() { while qstat "$1" >/dev/null 2>&1 && ! qstat -x -f "$1" | grep -q 'job_state = [FX]'; do sleep 1; done; }
cancel() { qdel "$1"; }
exit_code() { qstat -x -f "$1" | sed -n 's/ *Exit_status = //p'; }
suspend() { qsig -s suspend "$1"; }
resume() { qsig -s resume "$1"; }
elements() { echo "${1/\[\]/[4]} ${1/\[\]/[5]}"; }
run_name() { # 17.server is 17, and 17[4].server is 17-4
    local job=${1%%.*}
    job=${job/\[/-}
    echo "${job%]}"
}

run_cases
