# A sandbox or the head's service reports that it runs. It counts as ready when the test creates a
# file.
echo "$1 $BRINGUPD_NODE_RANK" >"$FAULTS/said"
read -r _ <>"$FAULTS/never"
