# The service of every node. On TERM it reports the signal, and waits until the test releases it. A
# line in its own file makes it fail.
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
