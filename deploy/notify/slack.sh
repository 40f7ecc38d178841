#!/bin/sh
# Usage: bringupd --on-end=/path/to/slack.sh …
#        bringupd --on-end='/path/to/slack.sh always' …
# Sends Slack how a run has ended, its nodes to avoid and what to do: a failure or, with "always",
# every end. The address of the incoming webhook is a secret: it is the only line of the file
# ~/.config/bringupd/slack-webhook, or of the file that SLACK_WEBHOOK_FILE names. The address and the
# message reach curl by its standard input, so that no list of processes has them. It needs curl and jq
# on the node of the head, and a way from there to Slack, such as the variable https_proxy.

[ "$BRINGUPD_EXIT_CODE" != 0 ] || [ "${1-}" = always ] || exit 0
file=${SLACK_WEBHOOK_FILE:-$HOME/.config/bringupd/slack-webhook}
read -r url <"$file" || exit 1
data=$(jq --raw-output '
    def escaped: gsub("&"; "&amp;") | gsub("<"; "&lt;") | gsub(">"; "&gt;");
    {text: ([
        "*Run \(.run)* on \(.size) nodes ended with \(.code) (\(.word)): \(.why)",
        (.bad_nodes // [] | select(length > 0) | "Nodes to avoid: " + join(", ")),
        (select(.next_attempt // 0 > 0) | "Attempt \(.next_attempt + 1) follows."),
        (.advice // [] | .[] | "Next: " + .)
    ] | join("\n") | escaped)} | tojson | "data = " + tojson') || exit 1 # quoted for curl
printf 'url = "%s"\n%s\n' "$url" "$data" | curl --config - --silent --show-error --fail --max-time 15 \
    --output /dev/null --header 'Content-Type: application/json'
