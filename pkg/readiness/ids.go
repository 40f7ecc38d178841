package readiness

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// IDs are those of all checks that there are, in order: the built-in ones and those of a site's own commands.
func IDs(active []string) []string {
	ids := slices.Concat(gpu.IDs(), check.IDs(active))
	slices.Sort(ids)
	return slices.Compact(ids)
}
