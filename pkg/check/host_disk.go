package check

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"

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

func (h Host) tempDir() string {
	return cmp.Or(h.TempDir, os.TempDir())
}

func (h Host) lookDisk(s *Sheet) {
	space, err := h.kernel.Space(s.Each.Source)
	wrong := h.kernel.Prove(s.Each.Source)
	observed, verdict := roomOf(space)
	expected := fmt.Sprintf("%s and %.0f %% free, and a byte can be written", prose.Size(leastFree), 100*lowFree)
	const room = "remove what earlier jobs left there, or drain the node"
	switch {
	case wrong != nil:
		by, hint := mendWrite(wrong)
		s.Fail(by, fmt.Sprintf("a byte could not be written: %v", reason(wrong)), expected, hint)
	case err != nil:
		s.unread(err)
	case verdict == Fail:
		s.Fail(Node, observed, expected, room)
	case verdict == Warn:
		s.Warn(Node, observed, expected, room).Strict = true
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

// mendWrite tells who can mend that a byte could not be written, and how.
func mendWrite(err error) (Class, string) {
	switch {
	case errors.Is(err, syscall.EROFS):
		return Node, "drain the node: its kernel makes a file system read-only when the disk gives errors (dmesg)"
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		// Where other nodes have it, its disk is not mounted here.
		return Node, "see whether the node-local disk is mounted there, or give a directory that is on every node: --temp-dir"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return User, "give a directory that you can write to: --temp-dir, or TMPDIR"
	case errors.Is(err, syscall.EDQUOT):
		return User, "free some of your quota there"
	case errors.Is(err, syscall.ENOSPC):
		return Node, "remove what earlier jobs left there, or drain the node"
	default:
		return Node, "drain the node and look at the kernel's log (dmesg)"
	}
}

// reason strips an error of the path, which the finding has.
func reason(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return err
}
