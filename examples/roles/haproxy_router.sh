#!/bin/sh
# A role that runs HAProxy in front of the instances of another role, and keeps its list of servers
# up to date, as nginx_router.sh does with nginx. HAProxy also probes the servers itself, and sends a
# request to the one with the fewest. In the file of the roles:
#
#   - name: router
#     nodes: head
#     ports: {http: 8080}
#     ready: tcp:$BRINGUPD_PORT
#     command: exec examples/roles/haproxy_router.sh judge
set -eu
role=$1
# A directory that the run removes at its end, as it does the file of endpoints.
eval "endpoints=\$BRINGUPD_ENDPOINTS_FILE_$(echo "$role" | tr a-z- A-Z_)"
dir=$(mktemp -d "${endpoints%/*/*}/router.XXXXXX")

# Write the configuration with a list of servers, each as INDEX=ADDRESS.
write_config() {
    {
        cat <<EOF
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend all
    bind :$BRINGUPD_PORT
    default_backend servers
backend servers
    balance leastconn
EOF
        for server in $1; do
            echo "    server $role-${server%%=*} ${server#*=} check"
        done
    } >"$dir/haproxy.new"
    mv "$dir/haproxy.new" "$dir/haproxy.cfg"
}

# Reload HAProxy at each change. It starts when the first server is ready; $$ becomes its master.
bringupd roles --watch --format='%i=%a' "$role" | while read -r servers; do
    started=$(test -e "$dir/haproxy.cfg" && echo yes) || true
    write_config "$servers"
    test -z "$started" || kill -USR2 $$
done &
while ! test -e "$dir/haproxy.cfg"; do
    kill -0 $! || exit 1 # the watch has failed, for example because there is no such role
    sleep 0.1
done
exec haproxy -W -f "$dir/haproxy.cfg"
