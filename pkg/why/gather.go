package why

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Values of [Stack.By].
const (
	pySpy       = "py-spy"
	debugger    = "gdb"
	kernelStack = "kernel"
)

const (
	// stackTime is the timeout for reading one stack, stacksTime for all stacks of a node.
	stackTime  = 10 * time.Second
	stacksTime = 30 * time.Second
	// killLag is how long a killed debugger may take to end.
	killLag = time.Second
	// mostPrinted is the maximum amount of a debugger's output that is read, in bytes.
	mostPrinted = 4 << 20
)

// gatherer reads the stacks of a node's processes, several concurrently.
type gatherer struct {
	ctx   context.Context
	close context.CancelFunc
	slots chan struct{} // limits concurrent reads
	root  procfs
	path  string        // PATH in which debuggers are searched first
	each  time.Duration // timeout per stack
}

// newGatherer returns a gatherer with a timeout for all stacks. The caller must call close.
func newGatherer(ctx context.Context) *gatherer {
	ctx, cancel := context.WithTimeoutCause(ctx, stacksTime, fmt.Errorf("the node's stacks have taken %s", stacksTime))
	return &gatherer{ctx: ctx, close: cancel, slots: make(chan struct{}, max(2, runtime.NumCPU()/2)), root: "/proc", path: os.Getenv("PATH"), each: stackTime}
}

// stack reads the stack of p.Thread or, if that is 0, of the first thread. If no debugger can read
// it, it returns the kernel's stack, with a Problem. It waits for a free slot.
func (g *gatherer) stack(p Process) *Stack {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-g.ctx.Done():
		return &Stack{Problem: fmt.Sprintf("cannot read the stack: %v", context.Cause(g.ctx))}
	}
	ctx, cancel := context.WithTimeoutCause(g.ctx, g.each, fmt.Errorf("it took longer than %s", g.each))
	defer cancel()
	// Select the thread and a debugger.
	thread := p.PID
	if p.Thread != 0 {
		thread = p.Thread
	}
	env := g.environ(ctx, p.PID)
	var stack *Stack
	var err error
	switch python := g.isPython(ctx, p.PID); {
	case p.State == stuck || p.State == traced: // a debugger would hang, too
		err = errors.New("no debugger gets at a process in this state")
	case python && process.Find(pySpy, env) == nil:
		stack, err = g.byPySpy(ctx, env, p.PID, thread)
	case python:
		err = errors.New("py-spy is not installed here: pip install py-spy, into the environment that the job runs in")
	case process.Find(debugger, env) == nil:
		stack, err = g.byGDB(ctx, env, p, thread)
	default:
		err = errors.New("gdb is not installed here")
	}
	if err == nil {
		return stack
	}
	// Use the kernel's stack instead.
	text, _ := g.root.read(ctx, strconv.Itoa(p.PID), "task", strconv.Itoa(thread), "stack")
	stack = parseKernel(text)
	stack.Problem = err.Error()
	return stack
}

// environ returns the environment of a debugger: that of this process, with the directory of the
// inspected program appended to PATH, because a virtual environment may contain py-spy.
func (g *gatherer) environ(ctx context.Context, pid int) []string {
	path := g.path
	argv, _ := g.root.read(ctx, strconv.Itoa(pid), "cmdline")
	if program, _, _ := strings.Cut(argv, "\x00"); filepath.IsAbs(program) {
		path += ":" + filepath.Dir(program)
	}
	return append(os.Environ(), "PATH="+path)
}

// isPython reports whether a process runs a Python interpreter.
func (g *gatherer) isPython(ctx context.Context, pid int) bool {
	path := filepath.Join(string(g.root), strconv.Itoa(pid), "exe")
	program, err := pause.Bounded(ctx, lookLag, func() (string, error) { return os.Readlink(path) })
	return err == nil && strings.HasPrefix(filepath.Base(program), "python")
}

// byPySpy reads a stack with py-spy without stopping the process. If that fails, usually because
// the process is running, it tries once more and stops the process meanwhile.
func (g *gatherer) byPySpy(ctx context.Context, env []string, pid, thread int) (*Stack, error) {
	argv := []string{pySpy, "dump", "--json", "--nonblocking", "--pid", strconv.Itoa(pid)}
	text, err := run(ctx, env, argv...)
	if err != nil {
		text, err = run(ctx, env, append(argv[:3:3], argv[4:]...)...)
	}
	if err != nil {
		return nil, err
	}
	return parsePySpy([]byte(text), thread)
}

// byGDB reads a stack with gdb, which stops the process meanwhile. If gdb was killed and left the
// process stopped, byGDB continues the process.
func (g *gatherer) byGDB(ctx context.Context, env []string, p Process, thread int) (*Stack, error) {
	text, err := run(ctx, env, debugger, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off",
		"-p", strconv.Itoa(p.PID), "-ex", fmt.Sprintf("thread apply all bt %d", mostFrames))
	if p.State != stopped {
		g.goOn(p.PID)
	}
	if err != nil {
		return nil, err
	}
	return parseGDB(text, thread)
}

// goOn continues a process if it is stopped.
func (g *gatherer) goOn(pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), killLag)
	defer cancel()
	if _, state := g.root.stat(ctx, strconv.Itoa(pid)); state == stopped {
		_ = unix.Kill(pid, unix.SIGCONT) // the process may have ended
	}
}

// run runs a debugger and returns its output.
func run(ctx context.Context, env []string, argv ...string) (string, error) {
	out, errs := &process.Beginning{Most: mostPrinted}, &process.Beginning{Most: 4 << 10}
	_, err := pause.Bounded(ctx, killLag, func() (struct{}, error) {
		return struct{}{}, process.Command{Argv: argv, Env: env, Stdout: out, Stderr: errs}.Run(ctx)
	})
	if err != nil {
		said := prose.Line(errs.String(), 200)
		if said != "" {
			said = ": " + said
		}
		return "", fmt.Errorf("cannot read the stack by %s: %v%s", argv[0], err, said)
	}
	return out.String(), nil
}
