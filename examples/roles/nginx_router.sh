#!/bin/sh
# A role that runs nginx in front of the instances of another role, and keeps its list of servers up
# to date: an instance is in the list while it is ready. In the file of the roles:
#
#   - name: router
#     nodes: head
#     ports: {http: 8080}
#     ready: tcp:$BRINGUPD_PORT
#     command: exec examples/roles/nginx_router.sh judge
set -eu
role=$1
# A directory that the run removes at its end, as it does the file of endpoints.
eval "endpoints=\$BRINGUPD_ENDPOINTS_FILE_$(echo "$role" | tr a-z- A-Z_)"
dir=$(mktemp -d "${endpoints%/*/*}/router.XXXXXX")

# Write the list of servers. With none, nginx answers 502.
write_servers() {
    echo "upstream servers { ${1:-server 127.0.0.1:1 down;} }" >"$dir/servers.new"
    mv "$dir/servers.new" "$dir/servers.conf"
}

cat >"$dir/nginx.conf" <<EOF
pid $dir/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path $dir/body;
    proxy_temp_path $dir/proxy;
    fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi;
    scgi_temp_path $dir/scgi;
    include $dir/servers.conf;
    server {
        listen $BRINGUPD_PORT;
        client_max_body_size 0;
        location / {
            proxy_pass http://servers;
            proxy_buffering off;
            proxy_read_timeout 1h;
            proxy_next_upstream error timeout;
        }
    }
}
EOF

# Reload nginx at each change. It starts when the first server is ready.
bringupd roles --watch --format='server %a;' "$role" | while read -r servers; do
    started=$(test -e "$dir/servers.conf" && echo yes) || true
    write_servers "$servers"
    test -z "$started" || nginx -c "$dir/nginx.conf" -s reload || true
done &
while ! test -e "$dir/servers.conf"; do
    kill -0 $! || exit 1 # the watch has failed, for example because there is no such role
    sleep 0.1
done
exec nginx -c "$dir/nginx.conf" -g 'daemon off;'
