#!/bin/bash
# prolog.sh: checks a node before a job starts there, and drains it if it is not fit.
# An example for administrators. On all nodes, as root, with mode 755, and with slurm.conf:
#   install -D -m 755 prolog.sh /etc/slurm/prolog.d/50-bringupd
#   Prolog=/etc/slurm/prolog.d/*
#   PrologFlags=Alloc,DeferBatch               # all nodes of a job are checked before its script starts
#   SchedulerParameters=nohold_on_prolog_fail  # without it, a requeued job is held
#
# If it exits with 1, Slurm drains the node and requeues a batch job. It exits with 0 if the node is
# fit, and if that is unknown: a wrong flag, no bringupd, no answer in time. A prolog must be quick
# (less than MessageTimeout, 10 s), and should call no command of Slurm. This one calls scontrol
# only to drain a node, because Slurm's own reason would only be "Prolog error". What a prolog
# prints is lost: see journalctl -t bringupd-prolog.

# Your site: what each node must have, and whether no answer in time drains it.
bringupd=${BRINGUPD:-/usr/bin/bringupd}
checks=(--gpu-check=require --gpus-per-node=8)
checks+=('--check=host.*=off' '--check=net.*=off' '--check=node.*=off')
#checks+=(--check=gpu.busy=off)                                # if jobs share nodes
#checks+=(--active-check='ls -d /scratch/users || exit 2')     # a share that must be mounted
limit=5        # seconds
drain_late=no  # yes: no answer within the limit drains the node

export PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # Slurm sets none
# The job's variables, such as CUDA_VISIBLE_DEVICES, would limit the check to its own GPUs.
report=$(env -i PATH="$PATH" LC_ALL=C timeout --kill-after=1 "$limit" \
    "$bringupd" check --start-timeout=$((limit - 2))s "${checks[@]}" 2>&1)
code=$? reason=
case $code in
[01]) exit 0 ;; # 1: warnings
2) reason=$(printf '%s\n' "$report" | sed -n 's/^  FAIL  *//p' | head -n 1) ;; # none: WAIT, not ready yet
esac
timeout 1 logger -t bringupd-prolog -- "job ${SLURM_JOB_ID:-?}: exit code $code: $report"
case $code:$reason:$drain_late in
2::yes | 124::yes | 137::yes) reason="not ready within $limit s" ;; # 124 and 137 are those of timeout
2:?*:*) ;;
*) exit 0 ;;
esac
reason=$(printf '%s' "$reason" | tr -cd '[:alnum:] .,:;()_/%+-' | cut -c 1-200)
timeout 3 scontrol update nodename="${SLURMD_NODENAME:?}" state=drain reason="bringupd: $reason"
exit 1
