#!/bin/sh
# Says what the driver sees of its run, and ends as the one argument says: "end with 42", or "hold".
echo "rank $BRINGUPD_NODE_RANK of $BRINGUPD_NODE_COUNT: $BRINGUPD_HOSTS"
[ "$1" = hold ] && exec sleep 1000
exit "${1#end with }"
