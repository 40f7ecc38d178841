package readiness

import (
	"github.com/bringupd/bringupd/pkg/check"
)

// Host is the machine around the GPUs: a Part.
type Host struct{ check.Host }

// Traits are those of the machine.
func (h Host) Traits() []check.Trait { return check.HostTraits(h.Root) }
