package instances

import (
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// bindToGPUs returns how to bind a process to GPUs of a node, and the variables for that. gpus is
// nil for a process that is not bound, and empty for one that must see none. It is not bound if
// other daemons of the machine may use the same GPUs.
func bindToGPUs(cfg world.NodeConfig, gpus []int) (prepare func() (undo func(), err error),
	variables map[string]string) {
	if gpus == nil {
		return nil, nil
	}
	variables = map[string]string{"BRINGUPD_GPUS": textutil.FormatRanges(gpus)}
	node := cfg.Layout
	if len(node.GPUs) == 0 || cfg.Identity.LocalSize > 1 {
		return nil, variables
	}
	if len(gpus) == 0 {
		variables[node.GPUs[0].Vendor.EnvVariable()] = noGPUs
		return nil, variables
	}
	bound := node.BindGPUs(gpus, affinity.AllKinds())
	for _, entry := range bound.Environ(func(string) bool { return false }) {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	return func() (func(), error) {
		restore, _, err := bound.BindThread()
		return func() { _ = restore() }, err
	}, variables
}

// noGPUs is the value of a vendor's variable that hides all GPUs: it selects an index that does not
// exist. An empty value would remove the variable.
const noGPUs = "-1"
