package check

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	idShm  = "host.shm"
	shmDir = "/dev/shm"
)

const (
	// smallShm is the part of the memory below which frameworks that share
	// arrays in /dev/shm do worse: some keep as much in it by themselves.
	smallShm = 0.30
	// usedShm is the part of /dev/shm that is used before anything of this job
	// runs: what dead jobs have left there is memory that nobody gives back.
	usedShm = 0.50
)

func (h Host) lookShm(s *Sheet) {
	const (
		enlarge = "enlarge it: mount -o remount,size=..., or what the container's runtime has for it (--shm-size)"
		leaving = "remove what earlier jobs left there, in an epilog"
	)
	space, err := h.kernel.Space(s.Each.Source)
	memory, store := memoryOf(h.path("")), uint64(max(0, h.ObjectStore))
	used := space.Size - min(space.Free, space.Size)
	observed := fmt.Sprintf("%s, %s free", prose.Size(space.Size), prose.Size(space.Free))
	if memory > 0 {
		observed += fmt.Sprintf(", of %s of memory", prose.Size(memory))
	}
	switch {
	case errors.Is(err, syscall.ENOENT):
		const mount = "mount it, or have the container's runtime do so"
		if f := s.Warn(Node, "it is not there", "a tmpfs", mount); store > 0 {
			f.Verdict = Fail
		}
	case err != nil:
		s.unread(err)
	case space.Size < store:
		s.Fail(User, observed, prose.Size(store)+" for the object store", "give a smaller object store, or "+enlarge)
	case space.Free < store:
		s.Fail(Node, observed, prose.Size(store)+" free for the object store", leaving)
	case part(used, space.Size) > usedShm && space.Size > 0:
		s.Warn(Node, observed, fmt.Sprintf("less than %.0f %% used before the job", 100*usedShm), leaving)
	case float64(space.Size) < smallShm*float64(memory):
		s.Warn(Node, observed, fmt.Sprintf("%.0f %% of the memory", 100*smallShm), enlarge)
	default:
		s.Pass(observed)
	}
}
