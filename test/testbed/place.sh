# Arguments: the host name, the marker, its mount point, the hosts file, the options of /proc, the
# private folders.
# Runs in new namespaces, sets them up, prints "ready", and sleeps to keep them alive.
set -e
hostname "$1"
mount -t tmpfs -o size=64k "$2" "$3"
mount --bind "$4" /etc/hosts
[ -z "$5" ] || mount -t proc -o "$5" proc /proc
shift 5
for folder in "$@"; do
	mount -t tmpfs -o mode=1777 tmpfs "$folder"
done
echo ready
exec sleep infinity >&2
