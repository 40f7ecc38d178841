#!/bin/sh
# The driver: it says that it runs, waits to be let go, and ends with the code
# that the test wants of it. When it is told to end it says so, and does.
end() {
    echo "term $BRINGUPD_NODE_RANK" >"$FAULTS/said"
    exit "$CODE"
}
trap end TERM
echo "the driver's own line"
echo "driver $BRINGUPD_NODE_RANK" >"$FAULTS/said"
read -r _ <>"$FAULTS/driver.$BRINGUPD_NODE_RANK"
exit "$CODE"
