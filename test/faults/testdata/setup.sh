# The setup command of every node reports that it runs, and waits until the test releases it.
echo "check $BRINGUPD_NODE_RANK" >"$FAULTS/said"
read -r _ <>"$FAULTS/check.$BRINGUPD_NODE_RANK"
