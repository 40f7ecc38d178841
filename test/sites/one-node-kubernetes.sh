#!/bin/bash
# Runs a command, such as kubernetes.sh, with a Kubernetes of one node on this machine: README.md.
# Kubernetes, etcd and the JobSet controller are built from Go modules, containerd and runc are
# Debian's, unpacked and not installed. All of it runs in namespaces of its own and ends with the
# command.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "cannot start a Kubernetes: this needs root" >&2; exit 77; }
version=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' "$root/test/kubernetes/go.mod")
etcd=$(sed -n 's/^\tgo.etcd.io\/etcd\/client\/v3 \(v[0-9.]*\).*/\1/p' "$root/test/kubernetes/go.mod")
folders='/var/lib/kubelet /var/log/containers /run/containerd' # their paths cannot be chosen
cache=${XDG_CACHE_HOME:-$HOME/.cache}/bringupd-test/kubernetes-$version

# build: builds the programs once, which takes 20 minutes on two cores, and unpacks Debian's.
build() {
    [ ! -e "$cache/complete" ] || return 0
    rm -rf "$cache"
    mkdir -p "$cache/bin" "$cache/debian" "$cache/module/etcd"
    (. "$root/test/setup.sh" && cd "$cache/debian" && unpack_debian containerd runc containernetworking-plugins busybox-static)
    sed "s|=> \.\./\.\.$|=> $root|" "$root/test/kubernetes/go.mod" >"$cache/module/go.mod"
    cp "$root/test/kubernetes/go.sum" "$cache/module"
    printf 'package main\n\nimport (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)\n\nfunc main() { etcdmain.Main(os.Args) }\n' \
        >"$cache/module/etcd/main.go"
    cd "$cache/module"
    export CGO_ENABLED=0 GOFLAGS=-mod=mod # the checksums of some modules are not in go.sum
    go get "go.etcd.io/etcd/server/v3@$etcd"
    go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$cache/bin/" ./etcd \
        k8s.io/kubernetes/cmd/kube-{apiserver,controller-manager,scheduler} k8s.io/kubernetes/cmd/{kubelet,kubectl}
    go build -ldflags '-s -w' -o "$cache/bin/jobset-controller" sigs.k8s.io/jobset
    go list -m -f '{{.Dir}}' sigs.k8s.io/jobset >"$cache/complete"
}

# image NAME FOLDER COMMAND...: writes a Docker archive with the folder as its only layer.
image() {
    python3 - "$@" <<'END'
import hashlib, io, json, sys, tarfile
name, folder, *command = sys.argv[1:]
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as tar:
    tar.add(folder, ".")
digest = "sha256:" + hashlib.sha256(layer.getvalue()).hexdigest()
config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest]},
          "config": {"Env": ["PATH=/bin"], "Cmd": command}}
manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
with tarfile.open(folder + ".tar", "w") as tar:
    for path, data in (("layer.tar", layer.getvalue()), ("config.json", json.dumps(config).encode()),
                       ("manifest.json", json.dumps(manifest).encode())):
        entry = tarfile.TarInfo(path)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
END
}

# prepare: makes the images localhost/bringupd:1 and localhost/pause:1, keys and configurations.
prepare() {
    mkdir -p "$work"/{certs,cni,jobset,log,image/bin,image/tmp} "$work/share"
    chmod 1777 "$work/image/tmp"
    cp "$cache/debian/bin/busybox" "$work/image/bin"
    "$cache/debian/bin/busybox" --list | grep -vx busybox | while read -r name; do ln -sf busybox "$work/image/bin/$name"; done
    make -s -C "$root" static BIN="$work/image/bin"
    image localhost/bringupd:1 "$work/image"
    cp -a "$work/image" "$work/pause"
    image localhost/pause:1 "$work/pause" /bin/sleep infinity
    chown 1000:1000 "$work/share"
    chmod 700 "$work/share"
    openssl genrsa -out "$work/accounts.key" 2048 2>/dev/null
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/jobset/tls.key" -out "$work/jobset/tls.crt" -days 2 -subj /CN=jobset \
        -addext subjectAltName=IP:127.0.0.1 2>/dev/null
    echo "token,admin,admin,system:masters" >"$work/tokens"
    cat >"$work/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: here, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: token}}]
contexts: [{name: here, context: {cluster: here, user: admin}}]
current-context: here
END
    cat >"$work/cni/10-bridge.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods", "isGateway": true,
 "ipam": {"type": "host-local", "dataDir": "$work/ipam", "ranges": [[{"subnet": "10.98.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
    # restrict_oom_score_adj: a container may lack the capability that makes pods more important.
    cat >"$work/containerd.toml" <<END
version = 2
root = "$work/containerd"
state = "/run/containerd"
[plugins."io.containerd.internal.v1.opt"]
path = "$work/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/pause:1"
disable_apparmor = true
restrict_oom_score_adj = true
cni = {bin_dir = "$cache/debian/usr/lib/cni", conf_dir = "$work/cni"}
END
    # A mapping in braces at the top would be read as JSON.
    cat >"$work/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.99.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
podLogsDir: $work/pods
END
    cat >"$work/jobset/config.yaml" <<END
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
webhook: {certDir: $work/jobset}
metrics: {certDir: $work/jobset, bindAddress: "127.0.0.1:8443"}
health: {healthProbeBindAddress: "127.0.0.1:8081"}
END
    cat >"$work/share.yaml" <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: share}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteMany], hostPath: {path: $work/share}, storageClassName: ""}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: share}
spec: {accessModes: [ReadWriteMany], storageClassName: "", volumeName: share, resources: {requests: {storage: 1Gi}}}
END
}

# until_true COMMAND...: waits for up to two minutes until the command succeeds.
until_true() {
    for _ in $(seq 120); do
        "$@" >/dev/null 2>&1 && return
        sleep 1
    done
    echo "cannot start the cluster: '$*' has not succeeded within two minutes; the logs are in $work/log" >&2
    exit 1
}

# inside COMMAND...: starts the cluster and runs the command. Called in the new namespaces.
inside() {
    local folder
    for folder in $folders; do
        mkdir -p "$folder"
        mount -t tmpfs none "$folder"
    done
    # The kubelet sets values of the kernel: it gets copies of these files.
    local name copy
    for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
        copy=$work/${name//\//.}
        cat "/proc/sys/$name" >"$copy"
        mount --bind "$copy" "/proc/sys/$name"
    done
    ip link set lo up
    ip link add node type bridge
    ip address add 10.99.0.1/24 dev node
    ip link set node up
    ip route add default via 10.99.0.254 dev node
    echo 1 >/proc/sys/net/ipv4/ip_forward
    export KUBECONFIG=$work/kubeconfig PATH=$cache/bin:$cache/debian/usr/sbin:$cache/debian/usr/bin:$PATH

    containerd --config "$work/containerd.toml" >"$work/log/containerd" 2>&1 &
    etcd --data-dir "$work/etcd" >"$work/log/etcd" 2>&1 &
    kube-apiserver --etcd-servers=http://127.0.0.1:2379 --cert-dir="$work/certs" --service-account-issuer=https://kubernetes \
        --service-account-key-file="$work/accounts.key" --service-account-signing-key-file="$work/accounts.key" \
        --service-cluster-ip-range=10.97.0.0/16 --token-auth-file="$work/tokens" --authorization-mode=AlwaysAllow \
        --bind-address=127.0.0.1 --advertise-address=10.99.0.1 --kubelet-preferred-address-types=InternalIP >"$work/log/apiserver" 2>&1 &
    until_true ctr version
    for name in pause image; do ctr -n k8s.io images import "$work/$name.tar" >/dev/null; done
    until_true kubectl get --raw /readyz
    kube-controller-manager --kubeconfig="$KUBECONFIG" --service-account-private-key-file="$work/accounts.key" \
        --root-ca-file="$work/certs/apiserver.crt" --leader-elect=false >"$work/log/controllers" 2>&1 &
    kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false >"$work/log/scheduler" 2>&1 &
    kubelet --config="$work/kubelet.yaml" --kubeconfig="$KUBECONFIG" --cert-dir="$work/certs" --node-ip=10.99.0.1 --hostname-override=node \
        >"$work/log/kubelet" 2>&1 &

    # The JobSet controller, with its webhooks at an address in place of a service.
    local jobset bundle
    jobset=$(cat "$cache/complete")/config/components
    bundle=$(base64 -w 0 <"$work/jobset/tls.crt")
    kubectl create --validate=false -f "$jobset/crd/bases/jobset.x-k8s.io_jobsets.yaml" >/dev/null
    jobset-controller --config="$work/jobset/config.yaml" >"$work/log/jobset" 2>&1 &
    until_true grep -q 'Starting workers' "$work/log/jobset"
    sed "/^ *service:$/d; /^ *name: webhook-service$/d; /^ *namespace: system$/d; s|^ *path: \(.*\)|    url: https://127.0.0.1:9443\1\n    caBundle: $bundle|" \
        "$jobset/webhook/manifests.yaml" | kubectl create -f - >/dev/null

    kubectl create -f "$work/share.yaml" >/dev/null
    until_true kubectl wait --for=condition=Ready node/node --timeout=1s
    "$@"
}

if [ "${1:-}" = --inside ]; then
    work=$2
    shift 2
    cd "$root"
    inside "$@"
    exit
fi
build
cd "$root"
work=$(mktemp -d /tmp/bringupd-kubernetes.XXXXXX)
chmod 755 "$work" # pods reach the share as another user
# shellcheck disable=SC2329 # the trap calls it
# tidy removes what the namespaces leave behind: files, and folders and control groups that are empty.
tidy() {
    rm -rf "$work"
    # shellcheck disable=SC2086 # several folders
    rmdir $folders 2>/dev/null || true
    find /sys/fs/cgroup -depth -type d -path '*/k8s.io*' -exec rmdir {} + 2>/dev/null || true
}
trap tidy EXIT
prepare
code=0
# The command's end is that of the namespace of processes, and so of all that it has started.
unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" --inside "$work" "$@" || code=$?
exit "$code"
