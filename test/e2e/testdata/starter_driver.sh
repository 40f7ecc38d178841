#!/bin/sh
# Prints the nodes of the run, and behaves as the argument says: "end with 42", or "hold".
echo "node $BRINGUPD_NODE_RANK of $BRINGUPD_NODE_COUNT: $BRINGUPD_HOSTS"
[ "$1" = hold ] && exec sleep 1000
exit "${1#end with }"
