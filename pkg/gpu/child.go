package gpu

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

const (
	// ChildCommand is the subcommand that asks NVML, and says what it has answered.
	ChildCommand = "gpu-child"
	// ProbeDeadline is Child.Deadline where it is 0. A driver without persistence mode attaches its GPUs one after the
	// other: more than 25 s were seen with A100s in a virtual machine (Azure/AgentBaker#2829), and with 8 B200 under
	// confidential computing, where a KILL in the middle left GPUs that needed a reset (tinfoilsh/cvmimage#363). A call
	// to a GPU's own processor (GSP) that gets no answer returns after 45 s (NVIDIA/open-gpu-kernel-modules#446).
	ProbeDeadline = 120 * time.Second
	// beginDeadline is how long the number of GPUs is waited for, before any is attached: the driver may have to be loaded.
	beginDeadline = time.Minute
	// watchSilence is Child.Silence where it is 0: the child says something at each look at the GPUs.
	watchSilence = 6 * pollPause
	pollPause    = 10 * time.Second // between two looks of the watch at a GPU

	// childVariable is set for the child. A program that forgot to have the subcommand (a test's binary, say) must not
	// start itself without end.
	childVariable = "BRINGUPD_GPU_CHILD"
)

// Child is the process that asks NVML, as nobody can end a call into a driver that is wedged: the thread that made it
// sleeps uninterruptibly until the node is rebooted, and a process with such a thread can't be killed, nor waited for.
// It costs us a process that stays, and not the daemon. Where the library lacks a function that is called, the loader
// ends the process: that is not the daemon's end either.
//
// The child is asked by lines on its standard input and answers by lines on its standard output; what else it prints,
// on standard error too, is kept for the error that tells of its death. It ends when its standard input does, and so
// when we do. It is in a group of its own, so that Ctrl-C is not for it. It is no child of pkg/process: nobody is to be
// asked to end, nothing of it is logged, and it must be left where it can't be killed.
type Child struct {
	Program string   // empty: the binary that runs here
	Library string   // the file to be asked for; empty: the loader finds it
	Env     []string // nil: ours
	// Deadline is how long an answer, or the next GPU that is attached, is waited for. 0: ProbeDeadline. Until it is known
	// how many GPUs there are it is a minute at most.
	Deadline time.Duration
	Silence  time.Duration // of a watch, after which an event of KindSilent is told; 0: a minute
}

// Probe takes one look at the GPUs with a child of its own. Whatever becomes of that is in Facts.Init; the error is the
// cause of the context's end.
func (c Child) Probe(ctx context.Context) (Facts, error) {
	session := c.Session()
	defer func() { _ = session.Close(ctx) }()
	return session.Probe(ctx, func(Progress) {})
}

// Session returns a Session with that child. Nothing is started before it is asked.
func (c Child) Session() *Session { return &Session{child: c} }

func (c Child) deadline() time.Duration { return cmp.Or(max(c.Deadline, 0), ProbeDeadline) }

func (c Child) program() string { return cmp.Or(c.Program, process.OwnBinary) }

func (c Child) argv() []string {
	name := c.program()
	if c.Program == "" && len(os.Args) > 0 {
		name = os.Args[0] // what ps shows, and what the loader calls it
	}
	argv := []string{name, ChildCommand}
	if c.Library != "" {
		argv = append(argv, "--nvml="+c.Library)
	}
	return argv
}

// environ is the child's environment. With LD_BIND_NOW the loader would miss the functions of NVML before there is any;
// a trace of all goroutines would hide the one line that says why the child has died.
func (c Child) environ() []string {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	env = slices.DeleteFunc(slices.Clone(env), func(entry string) bool { return strings.HasPrefix(entry, "LD_BIND_NOW=") })
	return append(env, childVariable+"=1", "GOTRACEBACK=none")
}
