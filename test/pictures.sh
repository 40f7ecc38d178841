#!/bin/sh
# Makes the pictures of docs/pictures again, from a run of three nodes on this machine, whose third
# worker is late and later dies: make pictures.
set -eu
cd "$(dirname "$0")/.."
. test/setup.sh
have_browser
work=$(mktemp -d)
run=
trap '[ -z "$run" ] || kill "$run" 2>/dev/null || true; rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -o "$work/bringupd" ./cmd/bringupd
# The worker of node 2 answers only after the file `loaded` exists, and dies when `die` exists.
cat >"$work/serve.sh" <<'SERVE'
echo "serving shard $BRINGUPD_NODE_RANK of $BRINGUPD_NODE_COUNT"
[ "$BRINGUPD_NODE_RANK" != 2 ] || { echo "loading the index: 61 %"; until [ -e loaded ]; do sleep 0.1; done; }
touch "ready.$BRINGUPD_NODE_RANK"
until [ -e die ] && [ "$BRINGUPD_NODE_RANK" = 2 ]; do sleep 0.1; done
echo "Error: shard 2 is corrupt"
exit 3
SERVE
cd "$work"
./bringupd local --nodes=3 --job-id=demo --worker-cmd='exec sh serve.sh' \
    --worker-ready='exec:sh -c "test -e ready.$BRINGUPD_NODE_RANK"' -- sleep 600 >run.log 2>&1 &
run=$!
until [ -e ready.0 ] && [ -e ready.1 ] && ./bringupd status 2>/dev/null | grep -q '2/3 ready, 1 starting'; do sleep 0.2; done
sleep 5 # the picture shows a node that is late, not one that has just begun
./bringupd status >status.txt || true # its code says that the run goes on
touch loaded
until ./bringupd status | grep -q '^UP '; do sleep 0.2; done
sleep 3 # the timeline of the report needs a phase of some length
touch die
wait "$run" || true
run=
./bringupd report bringupd-logs -o report.html >/dev/null
chromium-headless-shell --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,1000 \
    --screenshot="$work/report.png" "file://$work/report.html" 2>chromium.log ||
    { cat chromium.log >&2; exit 1; }
cd - >/dev/null
mkdir -p docs/pictures
cp "$work/report.png" docs/pictures/report.png
{
    columns=$(awk '{ if (length > n) n = length } END { print n }' "$work/status.txt")
    lines=$(($(wc -l <"$work/status.txt") + 1))
    printf '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="monospace" font-size="13">\n' \
        $((columns * 8 + 24)) $((lines * 18 + 24))
    echo '<rect width="100%" height="100%" rx="6" fill="#1b1f24"/>'
    { echo '$ bringupd status'; cat "$work/status.txt"; } | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g' |
        awk '{ printf "<text x=\"12\" y=\"%d\" fill=\"#e6edf3\" xml:space=\"preserve\">%s</text>\n", NR * 18 + 8, $0 }'
    echo '</svg>'
} >docs/pictures/status.svg
ls -l docs/pictures
