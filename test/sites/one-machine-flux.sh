#!/bin/bash
# Runs a command, such as flux.sh, as an ordinary user in a Flux of several hosts on this machine:
# README.md. It is built from the given source.
# Usage: one-machine-flux.sh SOURCE COMMAND [ARGUMENT...]
# shellcheck source=test/sites/hosts.sh
. "$(dirname "$0")/hosts.sh"

# shellcheck disable=SC2329 # build calls it
build_flux() { # PREFIX FOLDER
    packages autoconf automake libtool make pkg-config g++ uuid-dev libzmq3-dev libjansson-dev liblz4-dev libarchive-dev \
        libhwloc-dev libsqlite3-dev lua5.1 liblua5.1-dev lua-posix python3-dev python3-cffi python3-ply \
        python3-setuptools python3-yaml
    FLUX_VERSION=$(sed -n '1s/.* version \([0-9.]*\).*/\1/p' NEWS.md)
    export FLUX_VERSION # of a source without tags
    ./autogen.sh
    ./configure --prefix="$1" --disable-docs
    make -j "$(nproc)"
    make install DESTDIR="$2"
}
if [ "${1:-}" != --inside ]; then
    build flux "$1"
    enter "${@:2}"
fi
work=$2 built=$3
shift 3
make_hosts flux n0 n1 n2 n3 n4
path=/opt/bringupd/bin:/opt/flux/bin:/usr/bin:/bin

# No job runs on n0, the login node.
cat >"$work/log/flux.toml" <<END
[bootstrap]
curve_cert = "$work/home/cert"
default_port = 8050
default_bind = "tcp://eth0:%p"
default_connect = "tcp://%h:%p"
hosts = [{ host = "n[0-4]" }]
[resource]
path = "$work/home/resources"
noverify = true
exclude = "0"
END
as_user n0 PATH="$path" flux keygen "$work/home/cert"
as_user n0 PATH="$path" flux R encode -r 0-4 -c "0-$(($(nproc) - 1))" -H 'n[0-4]' >"$work/home/resources"
uri=local:///tmp/flux/local
for host in n0 n1 n2 n3 n4; do
    as_user "$host" PATH=/usr/bin:/bin mkdir /tmp/flux
    as_user "$host" PATH="$path" flux broker --config-path="$work/log/flux.toml" -Slocal-uri="$uri" -Slog-stderr-level=5 -Sbroker.boot-method=config \
        sleep infinity >"$work/log/flux.$host" 2>&1 &
done
# shellcheck disable=SC2329 # until_true calls it
are_up() { [ "$(as_user n0 PATH="$path" FLUX_URI="$uri" flux overlay status --summary)" = full ]; }
until_true 60 are_up
as_user n0 PATH="$path" FLUX_URI="$uri" "$@"
