package check

// IDs are those of all checks of the host, of the share, of nodes side by side,
// and of a site's own commands, in the order of these.
func IDs(active []string) []string {
	ids := append(activeIDs(active), idShare, idClock, Fabric)
	for _, p := range (Host{}).probes() {
		ids = append(ids, p.id)
	}
	for _, k := range kinds {
		ids = append(ids, k.id)
	}
	return ids
}
