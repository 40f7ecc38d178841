#!/bin/bash
# Runs a command, such as pbs.sh, as an ordinary user with an OpenPBS of several hosts on this machine:
# README.md. It is built from the given source.
# Usage: one-machine-pbs.sh SOURCE COMMAND [ARGUMENT...]
# shellcheck source=test/sites/hosts.sh
. "$(dirname "$0")/hosts.sh"

# shellcheck disable=SC2329 # build calls it
build_pbs() { # PREFIX FOLDER
    packages autoconf automake libtool make pkg-config g++ swig libhwloc-dev libx11-dev libxt-dev libxext-dev libxft-dev \
        libedit-dev libical-dev libncurses-dev libexpat-dev libssl-dev libcjson-dev zlib1g-dev python3-dev tcl-dev tk-dev \
        postgresql postgresql-contrib postgresql-server-dev-all
    ./autogen.sh
    ./configure --prefix="$1" CFLAGS='-O1 -w'
    make -j "$(nproc)"
    make install DESTDIR="$2"
}
if [ "${1:-}" != --inside ]; then
    build pbs "$1"
    enter "${@:2}"
fi
work=$2 built=$3
shift 3
compute='n1 n2 n3 n4'
# shellcheck disable=SC2086 # several hosts
make_hosts pbs n0 $compute
chmod u+s /opt/pbs/sbin/pbs_iff /opt/pbs/sbin/pbs_rcp

start_pbs() { # HOST COMPONENT: the programs of the server, or of an execution host
    local server=0 mom=1
    if [ "$2" = server ]; then server=1 mom=0; fi
    cat >"$work/log/pbs.conf.$1" <<END
PBS_EXEC=/opt/pbs
PBS_HOME=/var/spool/pbs
PBS_SERVER=n0
PBS_START_SERVER=$server
PBS_START_SCHED=$server
PBS_START_COMM=$server
PBS_START_MOM=$mom
PBS_CORE_LIMIT=unlimited
PBS_SCP=/bin/false
END
    touch /etc/pbs.conf
    on "$1" mount --bind "$work/log/pbs.conf.$1" /etc/pbs.conf
    {
        on "$1" /opt/pbs/libexec/pbs_postinstall "$2" "$(/opt/pbs/bin/qstat --version | sed 's/.* = //')" /opt/pbs /var/spool/pbs '' sameconf
        if [ "$mom" = 1 ]; then
            on "$1" sh -c 'printf "%s\n" "\$clienthost n0" "\$usecp *:/ /" "\$tmpdir /tmp" >/var/spool/pbs/mom_priv/config'
        fi
        on "$1" /opt/pbs/libexec/pbs_init.d start
    } >"$work/log/pbs.$1" 2>&1
}
on n0 install -d -o postgres /run/postgresql # the server's database
start_pbs n0 server
for host in $compute; do start_pbs "$host" execution; done
{
    echo 'set server job_history_enable = True'
    echo 'set server flatuid = True'
    echo "set server operators = $user@*"
    for host in $compute; do
        echo "create node $host resources_available.ncpus=4"
    done
} | on n0 /opt/pbs/bin/qmgr >"$work/log/qmgr" 2>&1
# shellcheck disable=SC2329 # until_true calls it
are_free() { [ "$(on n0 /opt/pbs/bin/pbsnodes -a | grep -c 'state = free')" = "$(wc -w <<<"$compute")" ]; }
until_true 60 are_free
as_user n0 PATH=/opt/bringupd/bin:/opt/pbs/bin:/usr/bin:/bin "$@"
