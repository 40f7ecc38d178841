# The service of every node. When it is told to end it says so, and waits to be
# let go. A line in its own file ends it like a crash.
end() {
    echo "drain $BRINGUPD_NODE_RANK" >"$FAULTS/said"
    read -r _ <>"$FAULTS/drain.$BRINGUPD_NODE_RANK"
    exit 0
}
trap end TERM
echo "workers $BRINGUPD_NODE_RANK" >"$FAULTS/said"
read -r _ <>"$FAULTS/crash.$BRINGUPD_NODE_RANK"
echo "the service has had enough"
exit 3
