package ranks

import (
	"fmt"
	"os"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// BindSelf binds the calling thread, which must be locked to its goroutine, for a rank that another
// launcher has started. A binding by the launcher is kept. restore undoes the binding. differences
// are sentences that describe what is wrong with it. The error is a *launcher.LaunchError.
func BindSelf(rank launcher.StartedRank, gpus gpu.Topology,
	kinds affinity.ResourceKinds) (place affinity.Affinity, restore func() error, differences []string, err error) {
	task := affinity.LaunchedTask{Launcher: rank.LauncherTitle, Local: rank.LocalRank,
		LocalCount: rank.LocalCount, NodeCPUs: rank.CPUs, OwnGPUs: rank.OwnGPUs}
	found, err := affinity.DiscoverForTask(gpus, os.LookupEnv)
	if err == nil {
		place, differences = task.TaskAffinity(found, kinds)
		restore, _, err = place.BindThread()
	}
	if err != nil {
		return place, nil, nil, &launcher.LaunchError{Problem: fmt.Sprintf("cannot bind rank %d: %v", rank.Rank,
			err), Fix: "give --bind=none to start it without binding"}
	}
	difference, err := place.CompareProcess(os.Getpid())
	if err != nil {
		difference = err.Error()
	}
	if difference != "" {
		differences = append(differences, difference)
	}
	return place, restore, differences, nil
}
