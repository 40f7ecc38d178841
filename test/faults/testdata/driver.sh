#!/bin/sh
# The driver reports that it runs, waits until the test releases it, and exits with the code that
# the test has chosen. On TERM it reports the signal and exits.
end() {
    echo "term $BRINGUPD_NODE_RANK" >"$FAULTS/said"
    exit "$CODE"
}
trap end TERM
echo "the driver's own line"
echo "driver $BRINGUPD_NODE_RANK" >"$FAULTS/said"
read -r _ <>"$FAULTS/driver.$BRINGUPD_NODE_RANK"
exit "$CODE"
