package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// Host looks at what every node has: memory, disks, limits, network cards. The zero Host looks at this machine.
type Host struct {
	Root        string // where /proc and /sys are; empty: /
	TempDir     string // where services keep their files; empty: the system's
	ObjectStore int64  // bytes that the service keeps in /dev/shm; 0: none, or not known
	// GPUs says that the node has some: they talk over its network cards, all of which then matter.
	GPUs bool
	// Past is what earlier looks have seen; nil: this is the only one.
	Past *Past

	kernel kernel // nil: the machine's
}

// Past is what the looks at a host leave for the later ones. Its zero value is
// that of the first; its methods may be called from any goroutine.
type Past struct {
	mu      sync.Mutex
	pending map[string]*question // what the kernel has not answered yet, by check, guarded by mu
	errors  map[string]int       // counts of errors as first seen, by port and counter, guarded by mu
}

// question is something that the kernel was asked.
type question struct {
	asked    time.Time
	answered chan struct{} // closed by the goroutine that asks, once findings is there
	findings []Finding
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

func (p probe) sheet() *Sheet { return &Sheet{Each: Finding{ID: p.id, Source: p.source}} }

// Look makes all checks of the host once, side by side. It takes 2 s at most, or until ctx ends: a check that has no
// answer by then has a finding that says so. Each check has one finding where all is well.
func (h Host) Look(ctx context.Context) []Finding {
	if h.kernel == nil {
		h.kernel = machine{}
	}
	if h.Past == nil {
		h.Past = new(Past)
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	probes := h.probes()
	questions := make([]*question, len(probes))
	for i, p := range probes {
		questions[i] = h.Past.ask(p)
	}
	var findings []Finding
	for i, p := range probes {
		findings = append(findings, h.Past.answer(ctx, p, questions[i])...)
	}
	return findings
}

func (h Host) probes() []probe {
	return []probe{
		{idIB, h.path(ibClass), h.lookIB},
		{idIBErrors, h.path(ibClass), h.lookIBErrors},
		{idShm, h.path(shmDir), h.lookShm},
		{idDisk, h.tempDir(), h.lookDisk},
		{idLimits, limitsSource, h.lookLimits},
	}
}

// path returns where an absolute path of the machine is.
func (h Host) path(absolute string) string { return filepath.Join("/", h.Root, absolute) }

// ask begins a probe, unless it is still under way since an earlier look: what
// hangs must not take one more goroutine, and its thread, with each look.
func (p *Past) ask(one probe) *question {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q, asked := p.pending[one.id]; asked {
		return q
	}
	if p.pending == nil {
		p.pending = make(map[string]*question)
	}
	q := &question{asked: time.Now(), answered: make(chan struct{})}
	p.pending[one.id] = q
	go func() {
		defer close(q.answered)
		s := one.sheet()
		one.look(s)
		q.findings = s.Found
	}()
	return q
}

// answer waits for the probe's findings until ctx ends. Its goroutine is left
// behind then, for the kernel won't let go of it.
func (p *Past) answer(ctx context.Context, one probe, q *question) []Finding {
	select {
	case <-q.answered:
	case <-ctx.Done():
	}
	if !pause.Until(q.answered, 0) {
		s := one.sheet()
		s.Say(Wait, Node, fmt.Sprintf("the kernel has not answered for %s", time.Since(q.asked).Round(time.Second/10)),
			fmt.Sprintf("an answer within %s", answerLimit),
			"drain the node and look at the kernel's log (dmesg): the disk, the mount or the device hangs").Patience = patienceForAnswers
		return s.Found
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending[one.id] == q {
		delete(p.pending, one.id)
	}
	return q.findings
}

// readText returns what a file of the kernel's has, without blanks around it.
func readText(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(text)), err
}
