package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
)

// answerLimit is for how long a look waits for the kernel: a dead disk or the
// firmware of a dead network card blocks who asks, for minutes or for good.
const answerLimit = 2 * time.Second

// patienceForAnswers is for how long a missing answer may be due to load alone: the fsync of one byte waits for all
// that others write to the same disk.
const patienceForAnswers = 30 * time.Second

// Host looks at what every node has: memory, disks, limits, network cards. The zero Host looks at this machine. It
// remembers what its earlier looks have seen; there is one look at a time.
type Host struct {
	Root        string // where /proc and /sys are; empty: /
	TempDir     string // where services keep their files; empty: the system's
	ObjectStore int64  // bytes that the service keeps in /dev/shm; 0: none, or not known
	Tasks       uint64 // processes and threads that the services need; 0: none, or not known
	GPUs        bool   // the job may use GPUs, where the node has some

	// Environ is what the driver is to have, which says over what it talks to the other nodes; nil: not known.
	Environ []string
	Nodes   int // of the job; 0: not known

	kernel  kernel               // nil: the machine's
	nics    []Trait              // what the last look has seen of the network cards
	pending map[string]*question // what the kernel has not answered yet, by check
	errors  map[string]int       // counts of errors as first seen, by counter; owned by the check that counts them
}

// kernel is what a look asks of the machine otherwise than by reading files.
type kernel interface {
	// Space returns the room of the file system that has the path.
	Space(path string) (signal.Space, error)
	// Prove writes a byte to a file of its own in a directory, through to the disk, and leaves nothing.
	Prove(dir string) error
	// Limit returns a limit of this process.
	Limit(resource int) (unix.Rlimit, error)
}

// probe is one check: it asks, and judges what was answered.
type probe struct {
	id     string
	source string
	look   func(*Sheet)
}

func (h *Host) probes() []probe {
	return []probe{
		{idIB, h.path(ibClass), h.lookIB},
		{idIBErrors, h.path(ibClass), h.lookIBErrors},
		{idShm, h.path(shmDir), h.lookShm},
		{idDisk, h.tempDir(), h.lookDisk},
		{idLimits, limitsSource, h.lookLimits},
		{idStep, stepSource, h.lookStep},
	}
}

// question is a probe under way.
type question struct {
	Sheet
	asked    time.Time
	answered chan struct{} // closed by the goroutine that asks, once the sheet is written
}

func (p probe) ask() *question {
	q := &question{asked: time.Now(), answered: make(chan struct{}), Sheet: Sheet{Each: Finding{ID: p.id, Source: p.source}}}
	go func() {
		defer close(q.answered)
		p.look(&q.Sheet)
	}()
	return q
}

// Look makes all checks of the host once, side by side. It takes 2 s at most, or until ctx ends: a check that has no
// answer by then has a finding that says so. Each check has one finding where all is well.
func (h *Host) Look(ctx context.Context, _ func([]Finding)) (findings []Finding) {
	if h.kernel == nil {
		h.kernel = machine{}
	}
	if h.pending == nil {
		h.pending, h.errors = make(map[string]*question), make(map[string]int)
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	probes := h.probes()
	for _, p := range probes {
		// What hangs must not take one more goroutine, and its thread, with each look.
		if h.pending[p.id] == nil {
			h.pending[p.id] = p.ask()
		}
	}
	for _, p := range probes {
		findings = append(findings, h.answer(ctx, p)...)
	}
	return findings
}

// answer waits for the probe's findings until ctx ends. Its goroutine is left behind then, for the kernel won't let go
// of it.
func (h *Host) answer(ctx context.Context, p probe) []Finding {
	q := h.pending[p.id]
	select {
	case <-q.answered:
	case <-ctx.Done():
	}
	if pause.Until(q.answered, 0) {
		delete(h.pending, p.id)
		if p.id == idIB {
			h.nics = q.traits
		}
		return q.Found
	}
	silent := Sheet{Each: Finding{ID: p.id, Source: p.source}}
	by := Node
	if p.id == idDisk { // the job chooses the directory, which may be on a share
		by = Environment
	}
	silent.Say(Wait, by, fmt.Sprintf("the kernel has not answered for %s", time.Since(q.asked).Round(time.Second/10)),
		fmt.Sprintf("an answer within %s", answerLimit),
		"drain the node and look at the kernel's log (dmesg): the disk, the mount or the device hangs").Patience = patienceForAnswers
	return silent.Found
}

// path returns where an absolute path of the machine is.
func (h *Host) path(absolute string) string { return filepath.Join("/", h.Root, absolute) }

// readText returns what a file of the kernel's has, without blanks around it.
func readText(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(text)), err
}

// IDs are those of all checks of the host, of the share, of nodes side by side,
// and of a site's own commands, in the order of these.
func IDs(active []string) []string {
	ids := append(activeIDs(active), idShare, idClock, Fabric)
	for _, p := range new(Host).probes() {
		ids = append(ids, p.id)
	}
	for _, k := range kinds {
		ids = append(ids, k.id)
	}
	return ids
}
