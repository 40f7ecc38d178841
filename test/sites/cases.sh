# shellcheck shell=bash
# The cases, for a site whose script defines these functions:
#   submit [OPTION...]   starts a job on $NODES hosts (2) whose driver is $DRIVER, with the variables
#                        BRINGUPD_…, NNODES for --nnodes and RANKS_PER_NODE, and prints its id
#   await_end JOB        waits until the job has ended
#   cancel JOB           ends it
#   exit_code JOB        prints the exit code that the site has recorded
#   run_name JOB         prints the name of the run
#   ids JOB              prints the ids by which the site's commands know the job
# and the variables LIMIT (options for a time limit of a minute), HOLD (options that keep the job in
# the queue) and, where the site has them, ARRAY (options for the elements 4 and 5), the functions
# elements, suspend, resume and rerun, and further cases with their names in SITE_CASES.

set -u
work=$(mktemp -d "$PWD/bringupd-site.XXXXXX") || exit
cd "$work" || exit
export BRINGUPD_LOG_DIR=$work/logs
failed=0

cat >saving.sh <<'END'
#!/bin/sh
# Prints and saves in its grace.
trap 'trap "" TERM; echo saving; sleep 1; echo saved; echo yes >saved."$1"; exit 143' TERM
echo up >ready."$1"
while :; do sleep 600 & wait $!; done
END
cat >first.sh <<'END'
#!/bin/sh
# Waits in the first attempt, and ends in the next one.
[ "$BRINGUPD_ATTEMPT" = 0 ] || exit 0
echo up >ready."$1"
while :; do sleep 600; done
END
cat >ask.sh <<'END'
#!/bin/sh
# Asks HTTP servers at the addresses in its arguments.
for address; do
    python3 -c 'import sys, urllib.request as u; u.build_opener(u.ProxyHandler({})).open("http://" + sys.argv[1], timeout=9)' "$address" || exit
done
END
cat >mpi.py <<'END'
from mpi4py import MPI
assert MPI.COMM_WORLD.allreduce(1) == 4
open(f"mpi.{MPI.COMM_WORLD.rank}", "w").close()
END
cat >count.py <<'END'
import ray
ray.init(log_to_driver=False)
assert len([node for node in ray.nodes() if node["Alive"]]) == 2
END
cat >roles.yaml <<'END'
roles:
  - name: server
    nodes: 1
    command: exec python3 -m http.server $BRINGUPD_PORT
    ready: {probe: "http://localhost:$BRINGUPD_PORT/", timeout: 1m}
  - name: client
    nodes: rest
    ranks-per-node: 2
    primary: true
    command: ./ask.sh $BRINGUPD_ROLE_SERVER_ENDPOINTS && touch asked.$RANK
END
chmod +x saving.sh first.sh ask.sh

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

# lose CASE NODE COMMAND...: COMMAND is called with the host and the pid of the node's daemon.
lose() {
    local name=$1 node=$2 job worker start
    shift 2
    job=$(DRIVER="$PWD/saving.sh $name" submit)
    await_file "ready.$name" || return
    worker=$(echo "$BRINGUPD_LOG_DIR/$(run_name "$job")"/nodes/*"$node".joined)
    if ! "$@" "$(sed -n 's/.*"host": *"\([^"]*\)".*/\1/p' "$worker" | head -n 1)" "$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$worker" | head -n 1)"; then
        cancel "$job"
        report "$name" "the command that takes it away" failed "done"
        return
    fi
    start=$SECONDS
    if [ "$node" = 0 ]; then # the batch system may start the job again, after minutes
        until [ -n "$(result "$(run_name "$job")")" ] || ((SECONDS - start > 90)); do sleep 1; done
        cancel "$job"
    else
        await_end "$job"
    fi
    report "$name" "the result" "$(result "$(run_name "$job")")" 76
    report "$name" "an end within 90 s (it took $((SECONDS - start)))" "$((SECONDS - start < 90))" 1
}

kill_daemon() { ssh -n "$1" kill -9 "$2"; }
case_daemon() { lose daemon 1 kill_daemon; }

lose_host() { # CASE NODE
    [ -n "${LOSE_HOST:-}" ] || { echo "skip  $1: LOSE_HOST is not set"; return; }
    # shellcheck disable=SC2086  # a command with arguments
    lose "$1" "$2" $LOSE_HOST
}
case_host() { lose_host host 1; }
case_headhost() { lose_host headhost 0; }

case_ids() {
    local job id
    job=$(DRIVER='exit 7' submit)
    bringupd wait "$job" 2>/dev/null
    report ids "the code of wait for what the command printed ($job)" "$?" 7
    for id in $(ids "$job"); do
        report ids "the run of $id" "$(bringupd status --json "$id" | sed -n 's/^ *"run": "\(.*\)",/\1/p')" "$(run_name "$job")"
    done
}

case_over() {
    local job
    # shellcheck disable=SC2086  # options
    job=$(DRIVER=true submit $HOLD)
    cancel "$job"
    timeout 120 bringupd wait "$job" 2>"wait.over"
    report over "the code of wait for a job that was deleted from the queue" "$?" 64
}

finishes() { # CASE: a job of the environment ends with 0
    local job
    job=$(submit)
    await_end "$job"
    report "$1" "the result" "$(result "$(run_name "$job")")" 0
}

case_roles() {
    DRIVER='' BRINGUPD_CONFIG=$PWD/roles.yaml finishes roles
    report roles "the ranks that reached the server" "$(echo asked.*)" "asked.0 asked.1"
}

case_services() {
    cat >services.sh <<'END'
#!/bin/sh
exec ./ask.sh $(echo "$BRINGUPD_HOSTS," | sed 's/,/:18765 /g')
END
    chmod +x services.sh
    BRINGUPD_HEAD_CMD='exec sleep 600' BRINGUPD_WORKER_CMD='exec python3 -m http.server 18765' \
        BRINGUPD_WORKER_READY=tcp:18765 DRIVER=$PWD/services.sh finishes services
}

case_mpi() {
    [ -n "${MPI_PYTHON:-}" ] || { echo "skip  mpi: MPI_PYTHON, a Python with mpi4py, is not set"; return; }
    RANKS_PER_NODE=2 DRIVER="$MPI_PYTHON $PWD/mpi.py" finishes mpi
    report mpi "the ranks" "$(echo mpi.[0-9]*)" "mpi.0 mpi.1 mpi.2 mpi.3"
}

case_ray() {
    [ -n "${RAY_PYTHON:-}" ] || { echo "skip  ray: RAY_PYTHON, a Python with Ray, is not set"; return; }
    PATH=$(dirname "$RAY_PYTHON"):$PATH BRINGUPD_FRAMEWORK=ray DRIVER="$RAY_PYTHON $PWD/count.py" finishes ray
}

# A spare node takes the place of a lost host in the next attempt.
case_restart() {
    [ -n "${LOSE_HOST:-}" ] || { echo "skip  restart: LOSE_HOST is not set"; return; }
    local job
    job=$(NODES=3 NNODES=2:3 BRINGUPD_RESTARTS=1 DRIVER="$PWD/first.sh restart" submit)
    await_file ready.restart || return
    $LOSE_HOST "$(sed -n 's/.*"host": *"\([^"]*\)".*/\1/p' "$BRINGUPD_LOG_DIR/$(run_name "$job")"/nodes/*1.joined | head -n 1)"
    await_end "$job"
    report restart "the result of the first attempt" "$(result "$(run_name "$job")")" 76
    report restart "the result of the next one" "$(result "$(run_name "$job")-a1")" 0
}

case_rerun() {
    declare -F rerun >/dev/null || { echo "skip  rerun: this site has none"; return; }
    local job
    job=$(DRIVER="$PWD/first.sh rerun" submit)
    await_file ready.rerun || return
    allowed rerun rerun "$job" || return
    await_end "$job"
    report rerun "the result of the next attempt" "$(result "$(run_name "$job")-a1")" 0
}

allowed() { # CASE COMMAND...: skips the case if the user is no operator
    local said
    said=$("${@:2}" 2>&1) && return
    case $said in
    *[Uu]nauthorized*|*[Pp]ermission*) echo "skip  $1: $said" ;;
    *) report "$1" "what '${*:2}' says" "$said" nothing ;;
    esac
    cancel "$3"
    return 1
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

# The launcher kills what is left after its own grace period, which is shorter than --driver-grace.
case_ignore() {
    local job
    job=$(DRIVER='trap "" TERM; touch ready.ignore; while :; do sleep 1; done' submit)
    await_file ready.ignore || return
    cancel "$job"
    await_end "$job"
    report ignore "the result of a driver that ignores TERM" "$(result "$(run_name "$job")")" 143
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
    allowed suspend suspend "$job" || return
    sleep 20 && resume "$job"
    report suspend "the code of suspend and resume" "$?" 0
    await_end "$job"
    report suspend "the result" "$(result "$(run_name "$job")")" 0
}

run_cases() {
    local name
    for name in ${CASES:-codes ids over daemon cancel ignore limit array suspend roles services mpi ray rerun ${SITE_CASES:-} \
        restart host headhost}; do
        "case_$name"
    done
    echo "the files are in $work"
    exit "$failed"
}
