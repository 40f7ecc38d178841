#!/bin/bash
# Runs cases with Kubernetes: README.md. The Jobs are those of deploy/kubernetes/job.yaml, or with a
# second argument jobset the JobSets of jobset.yaml, with two pods and the given image.
# shellcheck disable=SC2016  # the commands are expanded in the pods
root=$(cd "$(dirname "$0")/../.." && pwd) || exit
image=${1:?give an image that contains bringupd and sh}
kind=${2:-job}
failed=0
case $kind in
job) label=job-name completed=Complete ;;
jobset) label=jobset.sigs.k8s.io/jobset-name completed=Completed ;;
*) echo "cannot run a $kind: give job or jobset" >&2; exit 64 ;;
esac

report() { # CASE WHAT GOT WANT
    if [ "$3" = "$4" ]; then
        echo "ok    $1: $2"
    else
        echo "FAIL  $1: $2 is '$3', want '$4'"
        failed=1
    fi
}

start() { # NAME DRIVER; & is special in the text of sed
    sed -e "s/train/$1/g" -e "s|registry.example/$1:1|$image|" -e '/nvidia.com/d' -e 's/: 4$/: 2/' \
        -e 's/--nnodes=4, --gpus-per-node=8,/--nnodes=2,/' -e "s/--ranks-per-node=gpu, --, python, $1.py\]/--, sh, -c, '${2//&/\\&}']/" \
        "$root/deploy/kubernetes/$kind.yaml" | kubectl create -f - >/dev/null
}
await() { kubectl wait --timeout=10m "--for=condition=$2" "$kind/$1" >/dev/null; }
remove() { # a JobSet deletes its Service
    kubectl delete --wait "$kind/$1" >/dev/null
    [ "$kind" = jobset ] || kubectl delete "service/$1" >/dev/null
}
state() { kubectl get "$kind" "$1" -o 'jsonpath={.status.conditions[?(@.status=="True")].type}' | tr ' ' '\n' | grep -x "$completed\|Failed"; }
pods() { echo "$label=$1,batch.kubernetes.io/job-completion-index=$2"; } # NAME INDEX
head_pod() { kubectl get pod -l "$(pods "$1" 0)" -o 'jsonpath={.items[0].metadata.name}'; }
await_ready() { # a wait for a condition fails if there is no pod yet
    kubectl wait --timeout=10m --for=create pod -l "$(pods "$1" 0)" >/dev/null &&
        kubectl wait --timeout=10m --for=condition=Ready pod -l "$(pods "$1" 0)" >/dev/null
}

for code in 0 42 65 76 127 137 143; do
    case $code in
    0) want=$completed ;;
    *) want=Failed ;;
    esac
    start "code$code" "exit $code"
    await "code$code" "$want"
    report codes "the $kind of a driver that ends with $code" "$(state "code$code")" "$want"
    remove "code$code"
done

start lost '[ "$BRINGUPD_ATTEMPT" = 1 ] || sleep 600'
await_ready lost
kubectl delete --force --grace-period=0 pod -l "$(pods lost 1)" >/dev/null 2>&1
await lost "$completed"
report pod "the $kind that has lost a pod, in its second attempt" "$(state lost)" "$completed"
remove lost

start stopped 'sleep 600'
await_ready stopped
kubectl exec "$(head_pod stopped)" -- bringupd report >/dev/null
report stop "the code of report in a pod" "$?" 0
kubectl exec "$(head_pod stopped)" -- bringupd stop >/dev/null
await stopped "$completed"
report stop "the stopped $kind" "$(state stopped)" "$completed"
remove stopped

start cancelled 'trap "echo saved; exit 143" TERM; sleep 600 & wait'
await_ready cancelled
kubectl logs -f "$(head_pod cancelled)" >"/tmp/cancelled.$$" &
remove cancelled
wait
report cancel "the driver's last line" "$(grep -cx saved "/tmp/cancelled.$$")" 1
rm -f "/tmp/cancelled.$$"
exit "$failed"
