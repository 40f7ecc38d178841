#!/bin/bash
#flux: --nodes=4
#flux: --exclusive
#flux: --time-limit=1h
#flux: --job-name=bringupd
# Your site: add queue and account to the command (flux batch --queue=QUEUE --bank=ACCOUNT). With
# --exclusive the job has all GPUs of its nodes. Remove the # from the lines that you need:
# module load cuda
# source "$HOME/venv/bin/activate"
# eval "$(conda shell.bash hook)" && conda activate ENVIRONMENT

# Usage: HEAD_CMD=… WORKER_CMD=… flux batch generic.sh ./driver.sh [args]
# HEAD_CMD runs on the head (node 0), and WORKER_CMD on every node after the head is ready.
# HEAD_READY and WORKER_READY are their readiness probes: tcp:PORT, http://…, exec:CMD
# or file:/PATH.
# RANKS_PER_NODE=gpu, or a number, runs the driver as ranks.
# Without a driver, the job runs until it is ended by bringupd stop.
# Flux sends KILL 5 s after the time limit or flux cancel, so the driver has 2.5 s to save its work.

nodes=$(flux resource list -n -o '{nnodes}')
flux run -N "$nodes" --tasks-per-node=1 --exclusive \
    bringupd --log-dir="${LOG_DIR:-$PWD/bringupd-logs}" \
    --head-cmd="${HEAD_CMD:-}" --head-ready="${HEAD_READY:-}" \
    --worker-cmd="${WORKER_CMD:-}" --worker-ready="${WORKER_READY:-}" \
    ${RANKS_PER_NODE:+--ranks-per-node="$RANKS_PER_NODE"} \
    ${1+-- "$@"}
