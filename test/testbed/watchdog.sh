# Arguments: the folder of all testbeds, the folder of this testbed, its tag, its link on the host.
# Waits until the owner of the testbed has ended, which closes standard input, and removes the
# testbed.
trap '' HUP INT TERM
root=$1 dir=$2 tag=$3 link=$4
read -r _

exec 9>"$root/.lock"
flock 9
# The testbed may have been removed already, and a new one may use its folder.
[ "$(cat "$dir/tag" 2>/dev/null)" = "$tag" ] || exit 0

# Repeat, because processes may have forked before they were killed.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	members=$(grep -ls " $tag-" /proc/[0-9]*/mountinfo | cut -d/ -f3)
	[ -n "$members" ] || break
	kill -KILL $members 2>/dev/null
	sleep 0.1
done
ip link delete "$link" 2>/dev/null
umount --lazy "$dir/share" 2>/dev/null
rm -rf --one-file-system "$dir"
