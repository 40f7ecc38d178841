package check

// IDs are those of all checks of the host, of the share, and of nodes side by
// side.
func IDs() []string {
	ids := []string{idShare, idClock, Fabric}
	for _, p := range (Host{}).probes() {
		ids = append(ids, p.id)
	}
	for _, k := range kinds {
		ids = append(ids, k.id)
	}
	return ids
}

// ActiveIDs are those of active checks, in their order.
func ActiveIDs(commands []string) []string { return activeIDs(commands) }
