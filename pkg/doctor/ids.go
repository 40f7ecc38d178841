package doctor

import (
	"path"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
)

// ids are those of the report's lines that are no checks of a node's own.
var ids = []string{
	"clock", "framework", "framework.version", "gpus", "head.address", "head.name", "launch",
	"left.processes", "left.runs", "left.shm", "left.temp", "node.answer", "node.name", "node.twins", "ports", "ports.given",
	"share.delay", "share.inotify", "share.kind", "share.links", "share.record", "share.rename", "share.seen", "x.alike",
}

// Means tells whether a rule is for any line of the report that is no check of a
// node's own.
func Means(rule check.Rule) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		match, _ := path.Match(rule.Pattern, id)
		return match
	})
}
