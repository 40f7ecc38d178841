# shellcheck shell=bash
# Hosts on this machine for a batch system, sourced by one-machine-pbs.sh and one-machine-flux.sh.
# Each host is a set of namespaces (network, name, mounts), as in test/testbed. All are in a namespace
# of processes of their own, and end with the script. /etc is a copy, so that nothing changes outside.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo "cannot start hosts: this needs root" >&2; exit 77; }
# shellcheck source=test/setup.sh
. "$root/test/setup.sh"
cache=$CACHE
user=site # who runs the jobs

# unpack SOURCE FOLDER: SOURCE is a git directory, a folder, or an archive with one folder.
unpack() {
    mkdir -p "$2"
    if [ -e "$1/.git" ] || [ -e "$1/HEAD" ]; then
        git -C "$1" archive HEAD | tar x -C "$2"
    elif [ -d "$1" ]; then
        cp -a "$1/." "$2"
    else
        tar xf "$1" --strip-components=1 -C "$2"
    fi
}

# build NAME SOURCE: calls build_NAME PREFIX in the source's folder, once for each content of the
# source, and sets built to what it has installed for the prefix /opt/NAME.
build() {
    local name=$1 tree digest
    tree=$(mktemp -d)
    unpack "$2" "$tree"
    digest=$(cd "$tree" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c 1-12)
    built=$cache/$name-$digest
    if [ ! -e "$built/complete" ]; then
        rm -rf "$built"
        echo "building $name, which takes many minutes; the log is $built.log" >&2
        mkdir -p "$cache"
        if ! (cd "$tree" && PYTHON=/usr/bin/python3 "build_$name" "/opt/$name" "$built") >"$built.log" 2>&1; then
            echo "cannot build $name: see $built.log" >&2
            tail -n 5 "$built.log" >&2
            exit 1
        fi
        touch "$built/complete"
    fi
    rm -rf "$tree"
}

packages() { # installs Debian's packages, without a database of its own
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    debian 0 "$@"
}

# enter COMMAND...: calls the script again in new namespaces, and ends with its code.
enter() {
    local work code=0
    work=$(mktemp -d /var/tmp/bringupd-hosts.XXXXXX) # each host has a /tmp of its own
    chmod 755 "$work"
    make -s -C "$root" build BIN="$work/opt/bringupd/bin"
    env -u TMPDIR unshare --mount --net --pid --fork --kill-child --mount-proc bash "$0" --inside "$work" "$built" "$@" || code=$?
    if [ "$code" = 0 ]; then rm -rf "$work"; else echo "the files are in $work" >&2; fi
    exit "$code"
}

# make_hosts NAME...: starts the hosts, with the program's folder at /opt/$program.
declare -A holders
make_hosts() { # PROGRAM NAME...
    local program=$1 host number=0
    shift
    mkdir -p "$work"/{etc,home,log,repository} "$work/opt/$program"
    mount --bind "$built/opt/$program" "$work/opt/$program"
    mount --rbind "$work/opt" /opt
    mount --bind "$root" "$work/repository"
    mount -t tmpfs none "$work/etc"
    mkdir "$work"/etc/{etc,home}{,.work}
    mount -t overlay overlay -o "lowerdir=/etc,upperdir=$work/etc/etc,workdir=$work/etc/etc.work" /etc
    # The user reaches the Python environments of the tests.
    mount -t overlay overlay -o "lowerdir=$HOME,upperdir=$work/etc/home,workdir=$work/etc/home.work" "$HOME"
    chmod a+x "$HOME"
    echo "$user:x:12345:12345::$work/home:/bin/bash" >>/etc/passwd
    echo "$user:x:12345:" >>/etc/group
    chown 12345:12345 "$work/home"
    ip link set lo up
    ip link add lan type bridge
    ip link set lan up
    echo "127.0.0.1 localhost" >/etc/hosts
    for host; do echo "10.77.0.$((++number)) $host" >>/etc/hosts; done
    for host; do start_host "$host"; done
    mkfifo -m 666 "$work/lost"
    # An ordinary user asks for the loss of a host.
    cat >"$work/opt/bringupd/bin/lose-host" <<END
#!/bin/sh
echo "\$1" >"$work/lost" && until [ -e "$work/log/lost.\$1" ]; do sleep 0.1; done
END
    # All hosts have the same processes.
    printf '%s\n' '#!/bin/sh' '[ "$1" != -n ] || shift' shift 'exec "$@"' >"$work/opt/bringupd/bin/ssh"
    chmod +x "$work"/opt/bringupd/bin/{lose-host,ssh}
    (while read -r host; do lose "$host"; done <>"$work/lost") &
}

start_host() { # NAME
    unshare --net --uts --mount sh -ec 'hostname "$1"
        for folder in /tmp /dev/shm /run; do mount -t tmpfs -o mode=1777 none "$folder"; done
        mount -t tmpfs -o mode=755 none /var/spool
        touch "$2"
        exec sleep infinity' sh "$1" "$work/log/up.$1" &
    holders[$1]=$!
    disown # the shell says nothing of its end
    until [ -e "$work/log/up.$1" ]; do sleep 0.1; done
    ip link add "$1" type veth peer name eth0 netns "${holders[$1]}"
    ip link set "$1" master lan up
    on "$1" ip link set lo up
    on "$1" ip address add "$(awk -v host="$1" '$2 == host { print $1 }' /etc/hosts)/24" dev eth0
    on "$1" ip link set eth0 up
}

on() { # HOST COMMAND...
    nsenter --target "${holders[$1]}" --net --uts --mount -- "${@:2}"
}

# lose HOST: the host is silent, then gone, as if it had lost its power.
lose() {
    local process names
    names=$(readlink "/proc/${holders[$1]}/ns/uts")
    ip link set "$1" down
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/uts")" != "$names" ] || kill -9 "${process#/proc/}" 2>/dev/null || true
    done
    touch "$work/log/lost.$1"
}

# as_user HOST NAME=VALUE... COMMAND...: runs a command of the repository, or another one, as the user.
as_user() {
    local host=$1 variables=() ray=$cache/ray-$RAY_VERSION/bin/python
    shift
    [ ! -e "$ray" ] || variables+=("RAY_PYTHON=$ray")
    while [[ $1 == *=* ]]; do
        variables+=("$1")
        shift
    done
    [ ! -e "$root/$1" ] || set -- "$work/repository/$1" "${@:2}"
    on "$host" setpriv --reuid=12345 --regid=12345 --clear-groups env -i --chdir="$work/home" HOME="$work/home" USER="$user" \
        LOGNAME="$user" SHELL=/bin/bash LANG=C.UTF-8 CASES="${CASES:-}" LOSE_HOST=lose-host \
        MPI_PYTHON="$(/usr/bin/python3 -c 'import mpi4py; print("/usr/bin/python3")' 2>/dev/null)" "${variables[@]}" "$@"
}

# until_true SECONDS COMMAND...: waits until the command succeeds.
until_true() {
    local end=$((SECONDS + $1))
    until "${@:2}" >/dev/null 2>&1; do
        if ((SECONDS > end)); then
            echo "cannot start the hosts: '${*:2}' has not succeeded within $1 s; the logs are in $work/log" >&2
            exit 1
        fi
        sleep 1
    done
}
