package readiness

import (
	"path"
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// IDs are those of all checks that there are, in order: the built-in ones and
// those of a site's own commands.
func IDs(active []string) []string {
	ids := slices.Concat(gpu.IDs(), check.IDs(), check.ActiveIDs(active))
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Means tells whether a rule is for any check that there is.
func Means(rule check.Rule, active []string) bool {
	return slices.ContainsFunc(IDs(active), func(id string) bool {
		match, _ := path.Match(rule.Pattern, id)
		return match
	})
}
