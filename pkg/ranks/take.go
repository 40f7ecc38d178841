package ranks

import (
	"errors"
	"fmt"
	"os"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Take binds the calling thread, which must be locked to its goroutine, for a rank that another
// launcher has started. A binding by the launcher is kept. restore undoes the binding. differences
// are sentences that describe what is wrong with it. The error is a *roles.LaunchError.
func Take(rank roles.StartedRank, gpus gpu.Topology, kinds binding.Kinds) (place binding.Place, restore func() error, differences []string, err error) {
	task := binding.Task{By: rank.By, Local: rank.Local, Locals: rank.Locals, CPUs: rank.CPUs, OwnGPUs: rank.OwnGPUs}
	found, err := binding.Find(gpus, os.LookupEnv)
	if err == nil {
		place, differences = task.Place(found, kinds)
		restore, _, err = place.Prepare()
	}
	if err != nil {
		return place, nil, nil, &roles.LaunchError{Problem: fmt.Sprintf("cannot bind rank %d: %v", rank.Rank, err), Mend: "give --bind=none to start it nevertheless"}
	}
	read, err := place.Differences(os.Getpid())
	if err != nil && !errors.Is(err, binding.ErrUnavailable) {
		read = append(read, err.Error())
	}
	return place, restore, append(differences, read...), nil
}
