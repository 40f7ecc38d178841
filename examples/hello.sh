#!/bin/sh
# A driver that prints the information that it receives from bringupd. Try it with:
#   go run ./cmd/bringupd local --nodes=4 -- ./examples/hello.sh
echo "hello from the driver on $BRINGUPD_NODE_HOST, node $BRINGUPD_NODE_RANK of $BRINGUPD_NODE_COUNT"
echo "run:         $BRINGUPD_RUN"
echo "nodes:       $BRINGUPD_HOSTS"
echo "records in:  $BRINGUPD_RUN_DIR"
for record in "$BRINGUPD_RUN_DIR"/nodes/*; do
    echo "             ${record##*/}"
done
