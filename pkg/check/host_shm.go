package check

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
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

// shm is what is known of /dev/shm.
type shm struct {
	path   string
	space  signal.Space
	err    error
	memory uint64 // that this process may use; 0: not known
	store  uint64 // that a service is to keep there; 0: none
}

func (h Host) lookShm() []Finding {
	s := shm{path: h.path(shmDir), memory: memoryOf(h.path("")), store: uint64(max(0, h.ObjectStore))}
	s.space, s.err = h.kernel.Space(s.path)
	return []Finding{judgeShm(s)}
}

func judgeShm(s shm) Finding {
	const (
		enlarge = "enlarge it: mount -o remount,size=..., or what the container's runtime has for it (--shm-size)"
		leaving = "remove what earlier jobs left there, in an epilog"
	)
	f := Finding{ID: idShm, Verdict: Warn, Class: Node, Source: s.path, Hint: enlarge}
	if s.err != nil {
		return judgeNoShm(f, s)
	}
	f.Observed = fmt.Sprintf("%s, %s free, of %s of memory", prose.Size(s.space.Size), prose.Size(s.space.Free), prose.Size(s.memory))
	if s.memory == 0 {
		f.Observed = fmt.Sprintf("%s, %s free", prose.Size(s.space.Size), prose.Size(s.space.Free))
	}
	used := s.space.Size - min(s.space.Free, s.space.Size)
	switch {
	case s.space.Size < s.store:
		f.Verdict, f.Class = Fail, User
		f.Expected = prose.Size(s.store) + " for the object store"
		f.Hint = "give a smaller object store, or " + enlarge
	case s.space.Free < s.store:
		f.Verdict = Fail
		f.Expected = prose.Size(s.store) + " free for the object store"
		f.Hint = leaving
	case part(used, s.space.Size) > usedShm && s.space.Size > 0:
		f.Expected = fmt.Sprintf("less than %.0f %% used before the job", 100*usedShm)
		f.Hint = leaving
	case s.memory > 0 && float64(s.space.Size) < smallShm*float64(s.memory):
		f.Expected = fmt.Sprintf("%.0f %% of the memory", 100*smallShm)
	default:
		return well(idShm, s.path, f.Observed)
	}
	return f
}

// judgeNoShm judges a machine whose /dev/shm can't be asked.
func judgeNoShm(f Finding, s shm) Finding {
	if !errors.Is(s.err, syscall.ENOENT) {
		return unread(idShm, s.path, s.err)
	}
	f.Observed, f.Expected = "it is not there", "a tmpfs"
	f.Hint = "mount it, or have the container's runtime do so"
	if s.store > 0 {
		f.Verdict = Fail
	}
	return f
}
