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
	// leastFree (bytes) and fewFiles (inodes) are the minimum free space with which a service can
	// start.
	leastFree = 500 << 20
	fewFiles  = 1000
	// lowFree is the fraction of a disk that should be free. Less is only a warning, except in strict
	// mode: a tenth of a large disk is a lot, and a user's own machine often has less.
	lowFree = 0.10
)

// tempDir returns the directory for temporary files.
func (h *Host) tempDir() string { return cmp.Or(h.TempDir, os.TempDir()) }

// lookDisk checks the free space of the directory for temporary files and writes a byte to it.
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

// roomOf describes the free space and classifies it as Pass, Warn or Fail.
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

// part returns some as a fraction of whole, or 1 if whole is 0.
func part(some, whole uint64) float64 {
	if whole == 0 {
		return 1
	}
	return float64(some) / float64(whole)
}

// tempSetting returns the setting that has chosen the directory for temporary files, as the
// beginning of a finding. It is empty if the directory is the system's default.
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

// unwritten returns the reason and a hint for an error that writing a byte has returned. The reason
// does not contain the path, because the finding already has it.
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
	// smallShm is the fraction of the memory that /dev/shm should have at least. With less, frameworks
	// that share arrays in /dev/shm are slower; some use that fraction by default.
	smallShm = 0.30
	// usedShm is the fraction of /dev/shm that may be in use before the job starts. Files that dead
	// jobs have left there occupy memory that is never freed.
	usedShm = 0.50
)

// lookShm checks the size and the free space of /dev/shm.
func (h *Host) lookShm(s *Sheet) {
	const (
		enlarge = "enlarge it: mount -o remount,size=..., or what the container's runtime has for it (--shm-size)"
		leaving = "remove what earlier jobs left there, in an epilog"
	)
	// Collect the sizes: of /dev/shm, of the memory and of the object store.
	space, err := h.kernel.Space(s.Each.Source)
	memory, store := memoryOf(h.path("")), uint64(max(0, h.ObjectStore))
	used := space.Size - min(space.Free, space.Size)
	observed := fmt.Sprintf("%s, %s free", prose.Size(space.Size), prose.Size(space.Free))
	if memory > 0 {
		observed += fmt.Sprintf(", of %s of memory", prose.Size(memory))
	}
	// The object store is a requirement; the other limits only give warnings.
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
	// A clock offset above wrongClock misleads readers who compare the times of two nodes. An offset
	// above worseClock is a failure in strict mode. Other modes only warn, because no part of a run
	// compares the clocks of two nodes.
	wrongClock = 2 * time.Second
	worseClock = 30 * time.Second
)

// Share holds what is known about the shared file system of the log directory. Only pkg/signal
// accesses that file system; it supplies these facts.
type Share struct {
	Path     string
	Space    *signal.Space   // nil: not requested or not available
	SpaceErr error           // reason if Space is not available
	Offset   *time.Duration  // lead of the server's clock over the node's; nil: unknown
	Exposure signal.Exposure // possibilities for another user to replace the directory
}

// JudgeShare checks the space on the shared file system, the permissions of the directories above
// the log directory, and this node's clock. It skips what is unknown.
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

// judgeRoom only warns if the shared file system is nearly full: the daemons write little to it,
// and the driver's results may go elsewhere. It does not apply lowFree, because a tenth of a shared
// file system is more than a job needs.
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

// judgeClock checks the offset between this node's clock and the server's.
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
