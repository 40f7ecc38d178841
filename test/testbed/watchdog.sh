# Arguments: the folder of all beds, the folder of this bed, its tag, its link on the host.
# Waits until the owner of the bed is gone, which closes standard input, and removes what it left.
trap '' HUP INT TERM
root=$1 dir=$2 tag=$3 link=$4
read -r _

exec 9>"$root/.lock"
flock 9
# Somebody else may have removed the bed already, and a new one may have its place.
[ "$(cat "$dir/tag" 2>/dev/null)" = "$tag" ] || exit 0

# Killed parents may have forked meanwhile, hence the rounds.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	members=$(grep -ls " $tag-" /proc/[0-9]*/mountinfo | cut -d/ -f3)
	[ -n "$members" ] || break
	kill -KILL $members 2>/dev/null
	sleep 0.1
done
ip link delete "$link" 2>/dev/null
umount --lazy "$dir/share" 2>/dev/null
rm -rf --one-file-system "$dir"
