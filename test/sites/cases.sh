# shellcheck shell=bash
# The cases, for a site whose script defines these functions:
#   submit [OPTION...]   starts a job whose driver is $DRIVER, and prints its id
#   await_end JOB        waits until the job has ended
#   cancel JOB           ends it
#   exit_code JOB        prints the exit code that the site has recorded
#   run_name JOB         prints the name of the run
# and the variables HOSTS, LIMIT (options for a time limit of a minute) and, where the site has
# them, ARRAY (options for the elements 4 and 5) and the functions elements, suspend and resume.

set -u
work=$(mktemp -d "$PWD/bringupd-site.XXXXXX") || exit
cd "$work" || exit
export BRINGUPD_LOG_DIR=$work/logs BRINGUPD_DRIVER_GRACE=${BRINGUPD_DRIVER_GRACE:-2s}
failed=0

cat >saving.sh <<'END'
#!/bin/sh
# Prints and saves in its grace.
trap 'trap "" TERM; echo saving; echo saved; echo yes >saved."$1"; exit 143' TERM
echo up >ready."$1"
while :; do sleep 600 & wait $!; done
END
chmod +x saving.sh

report() { # CASE WHAT GOT WANT
    if [ "$3" = "$4" ]; then
        echo "ok    $1: $2"
    else
        echo "FAIL  $1: $2 is '$3', want '$4'"
        failed=1
    fi
}

await_file() { # FILE
    for _ in $(seq 600); do
        [ -e "$1" ] && return
        sleep 0.5
    done
    echo "FAIL  $1 did not appear"
    return 1
}

result() { # RUN
    sed -n 's/.*"code": *\([0-9]*\).*/\1/p' "$BRINGUPD_LOG_DIR/$1/result.json" 2>/dev/null | head -n 1
}

case_codes() {
    local code job
    for code in 0 42 65 76 127 137 143; do
        job=$(DRIVER="exit $code" submit)
        await_end "$job"
        report codes "the result of a driver that ends with $code" "$(result "$(run_name "$job")")" "$code"
        report codes "the job's code" "$(exit_code "$job")" "$code"
    done
}

# lose COMMAND: COMMAND is called with the host and the pid of a worker's daemon.
lose() { # CASE COMMAND...
    local name=$1 job worker start
    shift
    job=$(DRIVER="$PWD/saving.sh $name" submit)
    await_file "ready.$name" || return
    worker=$(echo "$BRINGUPD_LOG_DIR/$(run_name "$job")"/nodes/*1.joined)
    if ! "$@" "$(sed -n 's/.*"host": *"\([^"]*\)".*/\1/p' "$worker" | head -n 1)" "$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$worker" | head -n 1)"; then
        cancel "$job"
        report "$name" "the command that takes it away" failed done
        return
    fi
    start=$SECONDS
    await_end "$job"
    report "$name" "the result" "$(result "$(run_name "$job")")" 76
    report "$name" "an end within 90 s (it took $((SECONDS - start)))" "$((SECONDS - start < 90))" 1
}

kill_daemon() { ssh -n "$1" kill -9 "$2"; }
case_daemon() { lose daemon kill_daemon; }

case_host() {
    [ -n "${LOSE_HOST:-}" ] || { echo "skip  host: LOSE_HOST is not set"; return; }
    # shellcheck disable=SC2086  # a command with arguments
    lose host $LOSE_HOST
}

ends_saved() { # CASE JOB
    await_end "$2"
    report "$1" "what the driver saved" "$(cat "saved.$1" 2>/dev/null)" yes
    report "$1" "the last lines of its log" "$(grep -x 'saving\|saved' "$BRINGUPD_LOG_DIR/$(run_name "$2")/logs/driver.log" | xargs)" "saving saved"
    report "$1" "the result" "$(result "$(run_name "$2")")" 143
}

case_cancel() {
    local job
    job=$(DRIVER="$PWD/saving.sh cancel" submit)
    await_file ready.cancel || return
    cancel "$job"
    ends_saved cancel "$job"
}

case_limit() {
    local job
    # shellcheck disable=SC2086  # options
    job=$(DRIVER="$PWD/saving.sh limit" submit $LIMIT)
    ends_saved limit "$job"
}

case_array() {
    [ -n "${ARRAY:-}" ] || { echo "skip  array: this site has none"; return; }
    local job element
    # shellcheck disable=SC2086  # options
    job=$(DRIVER="$ARRAY_DRIVER" submit $ARRAY)
    for element in $(elements "$job"); do
        await_end "$element"
        report array "the result of $element" "$(result "$(run_name "$element")")" 0
    done
    report array "the indices that the drivers saw" "$(echo index.*)" "index.4 index.5"
}

case_suspend() {
    declare -F suspend >/dev/null || { echo "skip  suspend: this site has none"; return; }
    local job
    job=$(DRIVER='touch ready.suspend; sleep 40' submit)
    await_file ready.suspend || return
    suspend "$job" && sleep 20 && resume "$job"
    report suspend "the code of suspend and resume" "$?" 0
    await_end "$job"
    report suspend "the result" "$(result "$(run_name "$job")")" 0
}

run_cases() {
    local name
    for name in ${CASES:-codes daemon host cancel limit array suspend}; do
        "case_$name"
    done
    echo "the files are in $work"
    exit "$failed"
}
