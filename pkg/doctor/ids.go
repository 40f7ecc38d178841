package doctor

// IDs are those of the report's lines that are no checks of a node's own.
func IDs() []string {
	return []string{
		"clock", "framework", "framework.version", "gpus", "head.address", "head.name", "launch",
		"left.processes", "left.runs", "left.shm", "left.temp", "node.answer", "node.name", "node.twins", "ports", "ports.given",
		"share.delay", "share.inotify", "share.kind", "share.links", "share.record", "share.rename", "share.seen", "x.alike",
	}
}
