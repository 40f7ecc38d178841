package check

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

const idDisk = "host.disk"

const (
	// leastFree and fewFiles are what a service needs to begin at all.
	leastFree = 500 << 20
	fewFiles  = 1000
	// lowFree is the part of a disk that should be free. It is only told of, but where strict: a tenth of a large disk
	// is a lot, and a user's own machine may well have less.
	lowFree = 0.10
)

func (h *Host) tempDir() string { return cmp.Or(h.TempDir, os.TempDir()) }

func (h *Host) lookDisk(s *Sheet) {
	space, err := h.kernel.Space(s.Each.Source)
	wrong := h.kernel.Prove(s.Each.Source)
	observed, verdict := roomOf(space)
	expected := fmt.Sprintf("%s and %.0f %% free, and a byte can be written", prose.Size(leastFree), 100*lowFree)
	const room = "remove what earlier jobs left there, or drain the node"
	switch {
	case wrong != nil:
		why, hint := unwritten(wrong)
		s.Fail(Environment, fmt.Sprintf("%sa byte could not be written: %s", h.tempSetting(), why), expected, hint)
	case err != nil:
		s.unread(err)
	case verdict == Fail:
		s.Fail(Environment, h.tempSetting()+observed, expected, room)
	case verdict == Warn:
		s.Warn(Environment, observed, expected, room).Strict = true
	default:
		s.Pass(observed)
	}
}

// roomOf says how much room there is, and whether it is enough.
func roomOf(s signal.Space) (observed string, verdict Verdict) {
	verdict = Pass
	observed = fmt.Sprintf("%s of %s free (%.0f %%)", prose.Size(s.Free), prose.Size(s.Size), 100*part(s.Free, s.Size))
	switch {
	case s.Files > 0 && s.FreeFiles < fewFiles:
		return fmt.Sprintf("%d of %d inodes free", s.FreeFiles, s.Files), Fail
	case s.Free < leastFree:
		verdict = Fail
	case part(s.Free, s.Size) < lowFree:
		verdict = Warn
	}
	return observed, verdict
}

// part is the part of whole that some is; 1 where whole is 0.
func part(some, whole uint64) float64 {
	if whole == 0 {
		return 1
	}
	return float64(some) / float64(whole)
}

// tempSetting names the setting that has chosen the directory for temporary files, to begin a
// finding; empty if nobody has.
func (h *Host) tempSetting() string {
	dir := h.tempDir()
	switch value := os.Getenv("TMPDIR"); {
	case value == dir:
		return "TMPDIR=" + value + ": "
	case value != "" || dir != os.TempDir():
		return "--temp-dir=" + dir + ": "
	}
	return ""
}

// unwritten tells, of an error of writing a byte, what it is without the path, which the finding
// has, and how to mend it.
func unwritten(err error) (why, hint string) {
	number, known := errors.AsType[syscall.Errno](err)
	if why = err.Error(); known {
		why = number.Error()
	}
	switch number {
	case syscall.EROFS:
		return why, "drain the node: its kernel makes a file system read-only when the disk gives errors (dmesg)"
	case syscall.ENOENT, syscall.ENOTDIR:
		return why, "give a directory that is on every node: --temp-dir, or TMPDIR; if other nodes have it, its disk is not mounted there"
	case syscall.EACCES, syscall.EPERM:
		return why, "give a directory that you can write to: --temp-dir, or TMPDIR"
	case syscall.EDQUOT:
		return why, "free some of your quota there"
	case syscall.ENOSPC:
		return why, "remove what earlier jobs left there, or drain the node"
	default:
		return why, "drain the node and look at the kernel's log (dmesg)"
	}
}

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

func (h *Host) lookShm(s *Sheet) {
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
		if f := s.Warn(Environment, "it is not there", "a tmpfs", mount); store > 0 {
			f.Verdict = Fail
		}
	case err != nil:
		s.unread(err)
	case space.Size < store:
		s.Fail(Environment, observed, prose.Size(store)+" for the object store", "give a smaller object store, or "+enlarge)
	case space.Free < store:
		s.Fail(Environment, observed, prose.Size(store)+" free for the object store", leaving)
	case part(used, space.Size) > usedShm && space.Size > 0:
		s.Warn(Environment, observed, fmt.Sprintf("less than %.0f %% used before the job", 100*usedShm), leaving)
	case float64(space.Size) < smallShm*float64(memory):
		s.Warn(Environment, observed, fmt.Sprintf("%.0f %% of the memory", 100*smallShm), enlarge)
	default:
		s.Pass(observed)
	}
}

const (
	idShare = "host.share"
	idClock = "host.clock"
)

const (
	// An offset above wrongClock misleads people who read the times of two nodes side by side; one above worseClock
	// fails where strict. It never fails otherwise: no part of a run compares the clocks of two nodes.
	wrongClock = 2 * time.Second
	worseClock = 30 * time.Second
)

// Share is what is known of the log directory's share. Only pkg/signal looks at it: these facts come from there.
type Share struct {
	Path     string
	Space    *signal.Space  // nil: not asked, or not told
	SpaceErr error          // why it was not told
	Offset   *time.Duration // by how much the server's clock is ahead; nil: not known
	Exposure signal.Exposure
}

// JudgeShare judges the room on the share, who could replace the directory, and this node's clock, as far as they are
// known.
func JudgeShare(share Share) []Finding {
	s := Sheet{Each: Finding{ID: idShare, Source: share.Path}}
	share.judgeRoom(&s)
	if share.Exposure.Seen != "" {
		s.Warn(User, share.Exposure.Seen, "directories above that only you and root can change", share.Exposure.Mend)
	}
	s.Each.ID = idClock
	share.judgeClock(&s)
	return s.Found
}

// judgeRoom only warns of a share that is nearly full: the daemons write little to it, and the driver's results may go
// elsewhere. A tenth of a share is more than a job needs.
func (share Share) judgeRoom(s *Sheet) {
	if share.SpaceErr != nil {
		s.unread(share.SpaceErr)
		return
	}
	if share.Space == nil {
		return
	}
	observed, verdict := roomOf(*share.Space)
	if verdict != Fail {
		s.Pass(observed)
		return
	}
	s.Warn(User, observed, fmt.Sprintf("%s and %d inodes free", prose.Size(leastFree), fewFiles),
		"free space there, or give another --log-dir").Strict = true
}

func (share Share) judgeClock(s *Sheet) {
	if share.Offset == nil {
		return
	}
	apart := share.Offset.Abs()
	if apart <= wrongClock {
		s.Pass(fmt.Sprintf("within %s of the share's clock", wrongClock))
		return
	}
	way := "behind"
	if *share.Offset < 0 {
		way = "ahead of"
	}
	s.Warn(Environment, fmt.Sprintf("%s %s the share's clock", apart.Round(time.Second/10), way), fmt.Sprintf("within %s of it", wrongClock),
		"see whether chronyd or ntpd runs on the node; times in its logs are off by as much").Strict = apart > worseClock
}
