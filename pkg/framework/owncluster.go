package framework

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// The interval between two looks for a cluster of the driver doubles from the first to the last.
const (
	minClusterLookInterval = time.Second
	maxClusterLookInterval = 30 * time.Second
)

// WatchOwnClusters calls warn once if a process below this one is that of a cluster of one of the
// frameworks, until ctx ends: the driver of several nodes has started the cluster itself, on one node
// only. The processes of a cluster may be children of this daemon, as daemons are.
func WatchOwnClusters(ctx context.Context, frameworks map[string]Framework, nodes int, warn func(string)) {
	for interval := minClusterLookInterval; ctxutil.SleepContext(ctx, interval); {
		interval = min(2*interval, maxClusterLookInterval)
		// Reading /proc may block at the end of ctx.
		tree, err := ctxutil.CallBounded(ctx, 0, func() ([]process.TreeProcess, error) {
			return process.ProcessTree(os.Getpid()), nil
		})
		if err != nil {
			return
		}
		for name, f := range frameworks {
			own := TraitsOf(f).OwnProcess
			isOwn := func(p process.TreeProcess) bool { return own != "" && p.Name == own }
			if at := slices.IndexFunc(tree, isOwn); at >= 0 {
				warn(fmt.Sprintf("the driver has started a %s cluster of its own (%s, process %d), which has "+
					"only this one of %d nodes: give --framework=%s, and let the driver connect to that cluster",
					name, own, tree[at].PID, nodes, name))
				return
			}
		}
	}
}
