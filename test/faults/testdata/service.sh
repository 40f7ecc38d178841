# A sandbox or the head's service: it says that it runs. What proves it ready is
# a file that the test makes.
echo "$1 $BRINGUPD_NODE_RANK" >"$FAULTS/said"
read -r _ <>"$FAULTS/never"
