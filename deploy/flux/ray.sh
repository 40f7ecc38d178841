#!/bin/bash
#flux: --nodes=4
#flux: --exclusive
#flux: --time-limit=1h
#flux: --job-name=ray

# Usage: flux batch ray.sh python train.py [args]
# The driver finds the cluster through RAY_ADDRESS if it calls ray.init() without arguments.
# Without a driver, the job runs until it is ended by bringupd stop.

nodes=$(flux resource list -n -o '{nnodes}')
flux run -N "$nodes" --tasks-per-node=1 --exclusive \
    bringupd --framework=ray --log-dir="${LOG_DIR:-$PWD/bringupd-logs}" \
    ${1+-- "$@"}
