package affinity

import (
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// HiddenGPUs is the value of a vendor's variable that hides all GPUs: it selects an index that does not
// exist. An empty value would remove the variable.
const HiddenGPUs = "-1"

// LimitProcess returns how to bind a process to GPUs of the node, and the variables for that. indices is
// nil for a process that is not bound, and empty for one that must see none. It is not bound if the GPUs
// of the node are unknown, or other daemons of the machine may use them.
func (n Node) LimitProcess(indices []int, isShared bool) (
	prepare func() (undo func(), err error), variables map[string]string,
) {
	if indices == nil {
		return nil, nil
	}
	variables = map[string]string{"BRINGUPD_GPUS": textutil.FormatRanges(indices)}
	if len(n.GPUs) == 0 || isShared {
		return nil, variables
	}
	if len(indices) == 0 {
		variables[n.GPUs[0].Vendor.EnvVariable()] = HiddenGPUs
		return nil, variables
	}
	bound := n.BindGPUs(indices, AllKinds())
	for _, entry := range bound.Environ(func(string) bool { return false }) {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	return func() (func(), error) {
		restore, _, err := bound.BindThread()
		return func() { _ = restore() }, err
	}, variables
}
