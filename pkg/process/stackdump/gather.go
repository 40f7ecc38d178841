package stackdump

import (
	"cmp"
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

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// Values of [Stack.Source].
const (
	stackByPySpy = "py-spy"
	stackByGDB   = "gdb"
)

const (
	// stackTimeout is the timeout for reading one stack, allStacksTimeout for all stacks of a node.
	stackTimeout     = 10 * time.Second
	allStacksTimeout = 30 * time.Second
	// killTimeout is how long a killed debugger may take to end.
	killTimeout = time.Second
	// maxDebuggerOutput is the maximum amount of a debugger's output that is read, in bytes.
	maxDebuggerOutput = 4 << 20
)

type stackReader struct {
	ctx        context.Context
	cancel     context.CancelFunc
	slots      chan struct{} // limits concurrent reads
	root       procRoot
	searchPath string        // PATH in which debuggers are searched first
	timeout    time.Duration // timeout per stack
}

// newStackReader returns a gatherer with a timeout for all stacks. The caller must call close.
func newStackReader(ctx context.Context) *stackReader {
	late := fmt.Errorf("reading the stacks of this node took longer than %s", allStacksTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, allStacksTimeout, late)
	return &stackReader{
		ctx: ctx, cancel: cancel, slots: make(chan struct{}, max(2, runtime.NumCPU()/2)),
		root: "/proc", searchPath: os.Getenv("PATH"), timeout: stackTimeout,
	}
}

// readStack reads the stack of p.Thread or, if that is 0, of the first thread. If no debugger can
// read it, it returns a stack with a Problem only. It waits for a free slot.
func (g *stackReader) readStack(p Process) *Stack {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-g.ctx.Done():
		return &Stack{Problem: fmt.Sprintf("cannot read the stack: %v", context.Cause(g.ctx))}
	}
	ctx, cancel := context.WithTimeoutCause(g.ctx, g.timeout, fmt.Errorf("it took longer than %s", g.timeout))
	defer cancel()
	// Select the thread and a debugger.
	thread := cmp.Or(p.Thread, p.PID)
	env := g.debuggerEnviron(ctx, p.PID)
	var stack *Stack
	var err error
	switch python := g.isPython(ctx, p.PID); {
	case p.State == stateStuck || p.State == stateTraced: // a debugger would hang, too
		err = errors.New("a debugger cannot attach to a process in this state")
	case python && hasProgram(stackByPySpy, env):
		stack, err = g.readByPySpy(ctx, env, p.PID, thread)
	case python:
		err = errors.New("py-spy is not installed here: run pip install py-spy in the job's environment")
	case hasProgram(stackByGDB, env):
		stack, err = g.readByGDB(ctx, env, p, thread)
	default:
		err = errors.New("gdb is not installed here")
	}
	if err != nil {
		return &Stack{Problem: err.Error()}
	}
	return stack
}

func hasProgram(name string, env []string) bool {
	_, err := process.ResolveProgram(name, env)
	return err == nil
}

// debuggerEnviron returns the environment of a debugger: that of this process, with the directory
// of the inspected program appended to PATH, because a virtual environment may contain py-spy.
func (g *stackReader) debuggerEnviron(ctx context.Context, pid int) []string {
	path := g.searchPath
	argv, _ := g.root.readFile(ctx, strconv.Itoa(pid), "cmdline")
	if program, _, _ := strings.Cut(argv, "\x00"); filepath.IsAbs(program) {
		path += ":" + filepath.Dir(program)
	}
	return append(os.Environ(), "PATH="+path)
}

func (g *stackReader) isPython(ctx context.Context, pid int) bool {
	path := filepath.Join(string(g.root), strconv.Itoa(pid), "exe")
	program, err := ctxutil.CallBounded(ctx, procReadLag, func() (string, error) { return os.Readlink(path) })
	return err == nil && strings.HasPrefix(filepath.Base(program), "python")
}

// readByPySpy reads a stack with py-spy without stopping the process. If that fails, usually
// because the process is running, it tries once more and stops the process meanwhile.
func (g *stackReader) readByPySpy(ctx context.Context, env []string, pid, thread int) (*Stack, error) {
	argv := []string{stackByPySpy, "dump", "--json", "--nonblocking", "--pid", strconv.Itoa(pid)}
	text, err := runDebugger(ctx, env, argv...)
	if err != nil {
		text, err = runDebugger(ctx, env, append(argv[:3:3], argv[4:]...)...)
	}
	if err != nil {
		return nil, err
	}
	return parsePySpy([]byte(text), thread)
}

// readByGDB reads a stack with gdb, which stops the process meanwhile. If gdb was killed and left
// the process stopped, readByGDB continues the process.
func (g *stackReader) readByGDB(ctx context.Context, env []string, p Process, thread int) (*Stack, error) {
	text, err := runDebugger(ctx, env, stackByGDB, "-nx", "-batch",
		"-iex", "set debuginfod enabled off", "-iex", "set auto-load off",
		"-p", strconv.Itoa(p.PID), "-ex", fmt.Sprintf("thread apply all bt %d", maxFrames))
	if p.State != stateStopped {
		g.continueProcess(p.PID)
	}
	if err != nil {
		return nil, err
	}
	return parseGDB(text, thread)
}

func (g *stackReader) continueProcess(pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if _, state := g.root.readStat(ctx, strconv.Itoa(pid)); state == stateStopped {
		_ = unix.Kill(pid, unix.SIGCONT) // the process may have ended
	}
}

func runDebugger(ctx context.Context, env []string, argv ...string) (string, error) {
	out := &process.HeadBuffer{MaxBytes: maxDebuggerOutput}
	errs := &process.HeadBuffer{MaxBytes: 4 << 10}
	command := process.Command{Argv: argv, Env: env, Stdout: out, Stderr: errs}
	_, err := ctxutil.CallBounded(ctx, killTimeout, func() (struct{}, error) {
		return struct{}{}, command.Run(ctx)
	})
	if err != nil {
		message := textutil.SingleLine(errs.String(), 200)
		if message != "" {
			message = ": " + message
		}
		return "", fmt.Errorf("cannot read the stack with %s: %v%s", argv[0], err, message)
	}
	return out.String(), nil
}
