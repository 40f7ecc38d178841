#!/bin/sh
# Runs a command in a root of Debian 13, which has Slurm 24.11. The command sees this repository,
# Go, Go's caches, and the Python environments of Ray, Dask and JAX that are installed, at the same
# paths, and has mounts of its own.
# Usage: sh test/debian13.sh COMMAND [ARGUMENT...]
set -eu
cd "$(dirname "$0")/.."
. test/setup.sh
shared="$PWD $(go env GOROOT) $(go env GOMODCACHE) $(go env GOCACHE) /var/lib/bringupd-testbed"
for program in "$BRINGUPD_TEST_RAY" "$BRINGUPD_TEST_DASK" "$BRINGUPD_TEST_JAX"; do
    python=$(dirname "$program")/python
    [ ! -x "$python" ] || shared="$shared $(dirname "$(dirname "$program")") $(dirname "$(dirname "$(readlink -f "$python")")")"
done
mkdir -p /var/lib/bringupd-testbed
export PATH="$(go env GOROOT)/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The folders of the testbed must be the root's own file system for pivot_root, unlike a chroot,
# because nsenter starts at the root of the mount namespace.
exec unshare --mount --propagation private sh -euc '
root=$1 here=$PWD
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
for folder in run tmp; do mount -t tmpfs -o mode=1777 tmpfs "$root/$folder"; done
for folder in $2; do
    mkdir -p "$root$folder"
    case $folder in /root/*) chmod a+x "$root/root" ;; esac # for a user who is not root
    mount --rbind "$folder" "$root$folder"
done
cp /etc/hosts /etc/resolv.conf "$root/etc/"
mkdir -p "$root/old"
cd "$root"
pivot_root . old
umount --lazy /old
cd "$here"
shift 2
exec "$@"' sh "$BRINGUPD_TEST_DEBIAN13" "$shared" "$@"
