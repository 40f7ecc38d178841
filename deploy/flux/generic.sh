#!/bin/bash
#flux: --nodes=4
#flux: --exclusive
#flux: --time-limit=1h
#flux: --job-name=bringupd

# Usage: HEAD_CMD=… WORKER_CMD=… flux batch generic.sh ./driver.sh [args]
# HEAD_CMD runs on rank 0, WORKER_CMD on every node once the head is ready; each
# is proven by a probe: tcp:PORT, http://…, grpc://…, exec:CMD or file:/PATH.
# Without a driver the job stays up until bringupd stop.

nodes=$(flux resource list -n -o '{nnodes}')
flux run -N "$nodes" --tasks-per-node=1 --exclusive \
    bringupd --log-dir="${LOG_DIR:-$PWD/bringupd-logs}" \
    --head-cmd="${HEAD_CMD:-}" --head-ready="${HEAD_READY:-}" \
    --worker-cmd="${WORKER_CMD:-}" --worker-ready="${WORKER_READY:-}" \
    ${1+-- "$@"}
