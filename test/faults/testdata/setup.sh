# The setup command of every node: it says that it runs, and waits to be let go.
echo "check $BRINGUPD_NODE_RANK" >"$FAULTS/said"
read -r _ <>"$FAULTS/check.$BRINGUPD_NODE_RANK"
