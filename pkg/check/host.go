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

// answerLimit is how long one round of checks waits for the kernel. A dead disk or the firmware of
// a dead network card can block a system call for minutes or for ever.
const answerLimit = 2 * time.Second

// patienceForAnswers is how long the checks wait for a missing answer before they fail. Load alone
// can delay an answer by that much: the fsync of a single byte waits for everything that other
// processes write to the same disk.
const patienceForAnswers = 30 * time.Second

// Host checks what every node has: memory, disks, limits and network cards. The zero Host checks
// the local machine. It keeps state between calls of [Host.Look], which must not run concurrently.
type Host struct {
	Root        string // directory that contains /proc and /sys; empty: /
	TempDir     string // directory for the services' temporary files; empty: the system's
	ObjectStore int64  // bytes that the service keeps in /dev/shm; 0: none or unknown
	Tasks       uint64 // processes and threads that the services need; 0: none or unknown
	GPUs        bool   // the job uses the node's GPUs, if it has any

	// Environ is the driver's environment, which defines the interfaces that the job uses to reach
	// other nodes; nil: unknown.
	Environ []string
	Nodes   int // number of nodes of the job; 0: unknown

	kernel  kernel               // nil: the local machine
	nics    []Trait              // attributes of the network cards from the last inspection
	pending map[string]*question // checks that still wait for the kernel, by check id
	errors  map[string]int       // first values of the error counters, by path; owned by their check
}

// kernel answers the questions that reading files cannot answer.
type kernel interface {
	// Space returns the free space of the file system that contains path.
	Space(path string) (signal.Space, error)
	// Prove writes one byte to a temporary file in a directory and syncs it to the disk. It leaves no
	// file behind.
	Prove(dir string) error
	// Limit returns a resource limit of this process.
	Limit(resource int) (unix.Rlimit, error)
}

// probe is one check of the machine. Its function reads the state and adds findings to the sheet.
type probe struct {
	id     string
	source string
	look   func(*Sheet)
}

// probes returns the checks in the order of the report.
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

// question is a probe that runs, or has run, in its own goroutine.
type question struct {
	Sheet
	asked    time.Time
	answered chan struct{} // closed by the goroutine when the sheet is complete
}

// ask runs the probe in a goroutine of its own.
func (p probe) ask() *question {
	q := &question{asked: time.Now(), answered: make(chan struct{}), Sheet: Sheet{Each: Finding{ID: p.id, Source: p.source}}}
	go func() {
		defer close(q.answered)
		p.look(&q.Sheet)
	}()
	return q
}

// Look runs all checks of the host once, concurrently. It returns after at most 2 s or when ctx
// ends. A check that has not finished by then yields a finding that says so. There is one finding
// per check if all is well. The second parameter is unused.
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
		// A check that hangs keeps its goroutine and thread. Do not start another one each time.
		if h.pending[p.id] == nil {
			h.pending[p.id] = p.ask()
		}
	}
	for _, p := range probes {
		findings = append(findings, h.answer(ctx, p)...)
	}
	return findings
}

// answer waits until the probe has finished or ctx ends, and returns its findings. If the probe
// hangs in the kernel, its goroutine stays behind, and answer returns a Wait.
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
	if p.id == idDisk { // the job chooses the directory, which may be on a shared file system
		by = Environment
	}
	silent.Say(Wait, by, fmt.Sprintf("the kernel has not answered for %s", time.Since(q.asked).Round(time.Second/10)),
		fmt.Sprintf("an answer within %s", answerLimit),
		"drain the node and look at the kernel's log (dmesg): the disk, the mount or the device hangs").Patience = patienceForAnswers
	return silent.Found
}

// path returns the location below Root of an absolute path.
func (h *Host) path(absolute string) string { return filepath.Join("/", h.Root, absolute) }

// readText returns the contents of a kernel file without surrounding white space.
func readText(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(text)), err
}

// IDs returns the ids of all checks in this package: the site's active commands, the host, the
// shared file system and the comparison of nodes.
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
