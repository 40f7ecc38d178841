#!/bin/bash
#flux: --nodes=4
#flux: --exclusive
#flux: --time-limit=1h
#flux: --job-name=ray
# Your site: add queue and account to the command (flux batch --queue=QUEUE --bank=ACCOUNT). With
# --exclusive the job has all GPUs of its nodes. Remove the # from the lines that you need:
# module load cuda
# source "$HOME/venv/bin/activate"
# eval "$(conda shell.bash hook)" && conda activate ENVIRONMENT

# Usage: flux batch ray.sh python train.py [args]
# The driver finds the cluster through RAY_ADDRESS if it calls ray.init() without arguments.
# Without a driver, the job runs until it is ended by bringupd stop.
# Flux sends KILL 5 s after the time limit or flux cancel, so the driver has 2.5 s to save its work.

nodes=$(flux resource list -n -o '{nnodes}')
flux run -N "$nodes" --tasks-per-node=1 --exclusive \
    bringupd --framework=ray --log-dir="${LOG_DIR:-$PWD/bringupd-logs}" \
    ${1+-- "$@"}
