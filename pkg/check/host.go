package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files/fsinfo"
)

// answerTimeout is how long one round of checks waits for the kernel. A dead disk or the firmware
// of a dead network card can block a system call for minutes or for ever.
const answerTimeout = 2 * time.Second

// slowAnswerTimeout is how long the checks wait for a missing answer before they fail. Load alone
// can delay an answer by that much: the fsync of a single byte waits for everything that other
// processes write to the same disk.
const slowAnswerTimeout = 30 * time.Second

// Host checks what every node has: memory, disks, limits and network cards. The zero Host checks
// the local machine. It keeps state between calls of [Host.Inspect], which must not run
// concurrently.
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
	// SurvivesNodeLoss reports that the job can go on after the loss of a node.
	SurvivesNodeLoss bool

	system   hostSystem               // nil: the local machine
	lastNICs []Attribute              // attributes of the network cards from the last inspection
	pending  map[string]*pendingCheck // checks that still wait for the kernel, by check id
	// first values of the error counters, by path; owned by their check
	errorBaselines map[string]int
}

// hostSystem answers the questions that reading files cannot answer.
type hostSystem interface {
	// FreeSpace returns the free space of the file system that contains path.
	FreeSpace(path string) (fsinfo.Space, error)
	// TestWrite writes one byte to a temporary file in a directory and syncs it to the disk. It leaves
	// no file behind.
	TestWrite(dir string) error
	// ResourceLimit returns a resource limit of this process.
	ResourceLimit(resource int) (unix.Rlimit, error)
}

// hostCheck is one check of the machine. Its function reads the state and adds findings to the
// sheet.
type hostCheck struct {
	id      string
	source  string
	inspect func(*FindingBuilder)
}

// listChecks returns the checks in the order of the report.
func (h *Host) listChecks() []hostCheck {
	return []hostCheck{
		{idIB, h.hostPath(ibClass), h.checkIB},
		{idIBErrors, h.hostPath(ibClass), h.checkIBErrors},
		{idShm, h.hostPath(shmDir), h.checkShm},
		{idDisk, h.tempDir(), h.checkDisk},
		{idLimits, limitsSource, h.checkLimits},
		{idStep, stepSource, h.checkStep},
	}
}

// pendingCheck is a probe that runs, or has run, in its own goroutine.
type pendingCheck struct {
	FindingBuilder
	startedAt time.Time
	done      chan struct{} // closed by the goroutine when the sheet is complete
}

// startCheck runs the probe in a goroutine of its own.
func (p hostCheck) startCheck() *pendingCheck {
	q := &pendingCheck{startedAt: time.Now(), done: make(chan struct{}), FindingBuilder: FindingBuilder{Template: Finding{ID: p.id, Source: p.source}}}
	go func() {
		defer close(q.done)
		p.inspect(&q.FindingBuilder)
	}()
	return q
}

// Inspect runs all checks of the host once, concurrently. It returns after at most 2 s or when ctx
// ends. A check that has not finished by then yields a finding that says so. There is one finding
// per check if all is well. The second parameter is unused.
func (h *Host) Inspect(ctx context.Context, _ func([]Finding)) (findings []Finding) {
	if h.system == nil {
		h.system = localSystem{}
	}
	if h.pending == nil {
		h.pending, h.errorBaselines = make(map[string]*pendingCheck), make(map[string]int)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	probes := h.listChecks()
	for _, p := range probes {
		// A check that hangs keeps its goroutine and thread. Do not start another one each time.
		if h.pending[p.id] == nil {
			h.pending[p.id] = p.startCheck()
		}
	}
	for _, p := range probes {
		findings = append(findings, h.awaitFindings(ctx, p)...)
	}
	return findings
}

// awaitFindings waits until the probe has finished or ctx ends, and returns its findings. If the
// probe hangs in the kernel, its goroutine stays behind, and answer returns a Wait.
func (h *Host) awaitFindings(ctx context.Context, p hostCheck) []Finding {
	q := h.pending[p.id]
	select {
	case <-q.done:
	case <-ctx.Done():
	}
	if ctxutil.AwaitDoneFor(q.done, 0) {
		delete(h.pending, p.id)
		if p.id == idIB {
			h.lastNICs = q.attributes
		}
		return q.Findings
	}
	silent := FindingBuilder{Template: Finding{ID: p.id, Source: p.source}}
	by := ClassNode
	if p.id == idDisk { // the job chooses the directory, which may be on a shared file system
		by = ClassEnvironment
	}
	silent.AddFinding(Wait, by, fmt.Sprintf("the kernel has not responded for %s", time.Since(q.startedAt).Round(time.Second/10)),
		fmt.Sprintf("a response within %s", answerTimeout),
		"drain the node and see the kernel log (dmesg): the disk, the mount or the device hangs").MaxWait = slowAnswerTimeout
	return silent.Findings
}

// hostPath returns the location below Root of an absolute path.
func (h *Host) hostPath(absolute string) string { return filepath.Join("/", h.Root, absolute) }

// readTrimmed returns the contents of a kernel file without surrounding white space.
func readTrimmed(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(text)), err
}

// ListIDs returns the ids of all checks in this package: the site's active commands, the host, the
// shared file system and the comparison of nodes.
func ListIDs(active []string) []string {
	ids := append(activeIDs(active), idShare, idClock, AttrFabric)
	for _, p := range new(Host).listChecks() {
		ids = append(ids, p.id)
	}
	for _, k := range attributeRules {
		ids = append(ids, k.id)
	}
	return ids
}
