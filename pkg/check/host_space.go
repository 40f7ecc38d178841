package check

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	idDisk  = "host.disk"
	idShm   = "host.shm"
	idShare = "host.share"
	idClock = "host.clock"
	shmDir  = "/dev/shm"
)

const (
	// minFreeSpace (bytes) and minFreeInodes (inodes) are the minimum free space with which a service
	// can start.
	minFreeSpace  = 500 << 20
	minFreeInodes = 1000
	// lowFreeFraction is the fraction of a disk that should be free. Less is only a warning, except in
	// strict mode: a tenth of a large disk is a lot, and a user's own machine often has less.
	lowFreeFraction = 0.10
	// minShmSize is the size of /dev/shm, in bytes, below which data loaders of common frameworks fail
	// with bus errors. Container runtimes give 64 MiB by default.
	minShmSize = 1 << 30
	// maxShmUsed is the fraction of /dev/shm that may be in use before the job starts. Files that dead
	// jobs have left there occupy memory that is never freed.
	maxShmUsed = 0.50
	// A clock offset above clockWarnOffset misleads readers who compare the times of two nodes. An
	// offset above clockFailOffset is a failure in strict mode. Other modes only warn, because no part
	// of a run compares the clocks of two nodes.
	clockWarnOffset = 2 * time.Second
	clockFailOffset = 30 * time.Second
)

const (
	roomHint = "remove files of earlier jobs there, or drain the node"
	// smallHint is for a file system that is too small even if it is empty: that of a container, which
	// is no fault of the node.
	smallHint = "use a larger directory (--temp-dir or TMPDIR), or give the container one " +
		"(apptainer --contain: --workdir=DIR or --bind=/tmp; docker: --tmpfs=/tmp:size=…)"
)

// findRoomHint returns what to do about a lack of space.
func findRoomHint(space files.Space) string {
	if space.Size > 0 && space.Size < minFreeSpace {
		return smallHint
	}
	return roomHint
}

func (h *Host) tempDir() string { return cmp.Or(h.TempDir, os.TempDir()) }

// checkDisk checks the free space of the directory for temporary files and writes a byte to it.
func (h *Host) checkDisk(s *FindingBuilder) {
	space, err := h.system.FreeSpace(s.Template.Source)
	writeErr := h.system.TestWrite(s.Template.Source)
	observed, verdict := classifySpace(space)
	expected := fmt.Sprintf("%s and %.0f %% free, and writable",
		textutil.FormatSize(minFreeSpace), 100*lowFreeFraction)
	switch {
	case writeErr != nil:
		why, hint := writeErrorText(writeErr)
		if hint == roomHint && err == nil {
			hint = findRoomHint(space)
		}
		s.AddFailure(ClassEnvironment, h.tempDirSetting()+"a test write failed: "+why, expected, hint)
	case err != nil:
		s.addUnreadable(err)
	case verdict == Fail:
		s.AddFailure(ClassEnvironment, h.tempDirSetting()+observed, expected, findRoomHint(space))
	case verdict == Warn:
		s.AddWarning(ClassEnvironment, observed, expected, roomHint).Strict = true
	default:
		s.AddPass(observed)
	}
}

// classifySpace describes the free space and classifies it as Pass, Warn or Fail.
func classifySpace(s files.Space) (observed string, verdict Verdict) {
	free := fractionOf(s.Free, s.Size)
	observed = fmt.Sprintf("%s of %s free (%.0f %%)",
		textutil.FormatSize(s.Free), textutil.FormatSize(s.Size), 100*free)
	switch {
	case s.Files > 0 && s.FreeFiles < minFreeInodes:
		return fmt.Sprintf("%d of %d inodes free", s.FreeFiles, s.Files), Fail
	case s.Free < minFreeSpace:
		return observed, Fail
	case free < lowFreeFraction:
		return observed, Warn
	}
	return observed, Pass
}

func fractionOf(some, whole uint64) float64 {
	if whole == 0 {
		return 1
	}
	return float64(some) / float64(whole)
}

// tempDirSetting returns the setting that has chosen the directory for temporary files, as the
// beginning of a finding. It is empty if the directory is the system's default.
func (h *Host) tempDirSetting() string {
	dir := h.tempDir()
	switch value := os.Getenv("TMPDIR"); {
	case value == dir:
		return "TMPDIR=" + value + ": "
	case value != "" || dir != os.TempDir():
		return "--temp-dir=" + dir + ": "
	}
	return ""
}

const (
	missingHint = "use a directory that exists on every node (--temp-dir or TMPDIR); " +
		"if it exists on other nodes, its disk is not mounted on this one"
	accessHint = "use a directory that you can write to (--temp-dir or TMPDIR)"
)

var writeErrorHints = map[syscall.Errno]string{
	syscall.EROFS: "drain the node: the kernel remounts a file system read-only " +
		"after disk errors (dmesg)",
	syscall.ENOENT: missingHint, syscall.ENOTDIR: missingHint,
	syscall.EACCES: accessHint, syscall.EPERM: accessHint,
	syscall.EDQUOT: "your quota there is used up: delete files",
	syscall.ENOSPC: roomHint,
}

// writeErrorText returns the reason and a hint for an error that writing a byte has returned. The
// reason does not contain the path, because the finding already has it.
func writeErrorText(err error) (why, hint string) {
	number, known := errors.AsType[syscall.Errno](err)
	if why = err.Error(); known {
		why = number.Error()
	}
	return why, cmp.Or(writeErrorHints[number], "drain the node and see the kernel log (dmesg)")
}

// checkShm checks the size and the free space of /dev/shm. The size of the object store is a
// requirement; the other limits only give warnings.
func (h *Host) checkShm(s *FindingBuilder) {
	const (
		enlarge = "enlarge it: mount -o remount,size=..., or the container runtime's option (--shm-size)"
		leaving = "remove files of earlier jobs there, for example in an epilog"
		mount   = "mount it, or let the container runtime mount it"
	)
	space, err := h.system.FreeSpace(s.Template.Source)
	store := uint64(max(0, h.ObjectStore))
	used := space.Size - min(space.Free, space.Size)
	observed := textutil.FormatSize(space.Size) + ", " + textutil.FormatSize(space.Free) + " free"
	needed := textutil.FormatSize(store)
	switch {
	case errors.Is(err, syscall.ENOENT):
		if f := s.AddWarning(ClassEnvironment, "not mounted", "a tmpfs", mount); store > 0 {
			f.Verdict = Fail
		}
	case err != nil:
		s.addUnreadable(err)
	case space.Size < store:
		s.AddFailure(ClassEnvironment, observed, needed+" for the object store",
			"use a smaller object store, or "+enlarge)
	case space.Free < store:
		s.AddFailure(ClassEnvironment, observed, needed+" free for the object store", leaving)
	case space.Size < minShmSize:
		s.AddWarning(ClassEnvironment, observed, textutil.FormatSize(minShmSize), enlarge)
	case fractionOf(used, space.Size) > maxShmUsed && space.Size > 0:
		s.AddWarning(ClassEnvironment, observed,
			fmt.Sprintf("less than %.0f %% used before the job", 100*maxShmUsed), leaving)
	default:
		s.AddPass(observed)
	}
}

// ShareFacts holds what is known about the shared file system of the log directory. Only pkg/signal
// accesses that file system; it supplies these facts.
type ShareFacts struct {
	Path     string
	Space    *files.Space    // nil: not requested or not available
	SpaceErr error           // reason if Space is not available
	Offset   *time.Duration  // lead of the server's clock over the node's; nil: unknown
	Exposure signal.Exposure // possibilities for another user to replace the directory
}

// CheckShare checks the space on the shared file system, the permissions of the directories above
// the log directory, and this node's clock. It skips what is unknown.
func CheckShare(share ShareFacts) []Finding {
	s := FindingBuilder{Template: Finding{ID: idShare, Source: share.Path}}
	share.checkSpace(&s)
	if share.Exposure.Reason != "" {
		s.AddWarning(ClassUser, share.Exposure.Reason,
			"parent directories that only you and root can change", share.Exposure.Remedy)
	}
	s.Template.ID = idClock
	share.checkClock(&s)
	return s.Findings
}

// checkSpace only warns if the shared file system is nearly full: the daemons write little to it,
// and the driver's results may go elsewhere. It does not apply lowFreeFraction, because a tenth of
// a shared file system is more than a job needs.
func (share ShareFacts) checkSpace(s *FindingBuilder) {
	if share.SpaceErr != nil {
		s.addUnreadable(share.SpaceErr)
		return
	}
	if share.Space == nil {
		return
	}
	observed, verdict := classifySpace(*share.Space)
	if verdict != Fail {
		s.AddPass(observed)
		return
	}
	expected := fmt.Sprintf("%s and %d inodes free", textutil.FormatSize(minFreeSpace), minFreeInodes)
	s.AddWarning(ClassUser, observed, expected, "free space there, or use another --log-dir").Strict = true
}

func (share ShareFacts) checkClock(s *FindingBuilder) {
	if share.Offset == nil {
		return
	}
	apart := share.Offset.Abs()
	if apart <= clockWarnOffset {
		s.AddPass(fmt.Sprintf("within %s of the shared file system's clock", clockWarnOffset))
		return
	}
	direction := "behind"
	if *share.Offset < 0 {
		direction = "ahead of"
	}
	s.AddWarning(ClassEnvironment,
		fmt.Sprintf("%s %s the shared file system's clock", apart.Round(time.Second/10), direction),
		fmt.Sprintf("within %s of it", clockWarnOffset), "check that chronyd or ntpd runs on the node; "+
			"timestamps in its logs are wrong by this much").Strict = apart > clockFailOffset
}
