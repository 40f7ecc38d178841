package framework

import (
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/process"
)

// LookForOwnCluster returns a function that finds the process of a cluster of one of the frameworks:
// the driver of several nodes has started the cluster itself, on one node only. The processes of a
// cluster may be children of this daemon, as daemons are.
func LookForOwnCluster(frameworks map[string]Framework, nodes int) process.Look {
	return func(tree []process.TreeProcess) string {
		for name, f := range frameworks {
			own := TraitsOf(f).OwnProcess
			isOwn := func(p process.TreeProcess) bool { return own != "" && p.Name == own }
			if at := slices.IndexFunc(tree, isOwn); at >= 0 {
				return fmt.Sprintf("the driver has started a %s cluster of its own (%s, process %d), which has "+
					"only this one of %d nodes: give --framework=%s, and let the driver connect to that cluster",
					name, own, tree[at].PID, nodes, name)
			}
		}
		return ""
	}
}
