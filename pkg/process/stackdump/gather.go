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

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// stackByPySpy is the value of [Stack.Source], and the name of the program.
const stackByPySpy = "py-spy"

const (
	// stackTimeout is the timeout for reading one stack, allStacksTimeout for all stacks of a node.
	stackTimeout     = 10 * time.Second
	allStacksTimeout = 30 * time.Second
	// killTimeout is how long a killed py-spy may take to end.
	killTimeout = time.Second
	// maxPySpyOutput is the maximum amount of its output that is read, in bytes.
	maxPySpyOutput = 4 << 20
)

// stackReader reads the stacks of a node's processes, several concurrently.
type stackReader struct {
	ctx        context.Context
	cancel     context.CancelFunc
	slots      chan struct{} // limits concurrent reads
	root       procRoot
	searchPath string        // PATH in which py-spy is searched first
	timeout    time.Duration // timeout per stack
}

// newStackReader returns a reader with a timeout for all stacks. The caller must call its cancel.
func newStackReader(ctx context.Context) *stackReader {
	late := fmt.Errorf("reading the stacks of this node took longer than %s", allStacksTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, allStacksTimeout, late)
	return &stackReader{
		ctx: ctx, cancel: cancel, slots: make(chan struct{}, max(2, runtime.NumCPU()/2)),
		root: "/proc", searchPath: os.Getenv("PATH"), timeout: stackTimeout,
	}
}

// readStack reads the stack of p.Thread or, if that is 0, of the first thread. If that fails, it
// returns a stack with a Problem only. It waits for a free slot.
func (g *stackReader) readStack(p Process) *Stack {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	case <-g.ctx.Done():
		return &Stack{Problem: fmt.Sprintf("cannot read the stack: %v", context.Cause(g.ctx))}
	}
	ctx, cancel := context.WithTimeoutCause(g.ctx, g.timeout, fmt.Errorf("it took longer than %s", g.timeout))
	defer cancel()
	env := g.pySpyEnviron(ctx, p.PID)
	_, missing := process.ResolveProgram(stackByPySpy, env)
	var stack *Stack
	var err error
	switch {
	case p.State == stateStuck || p.State == stateTraced: // py-spy would hang, too
		err = errors.New("py-spy cannot attach to a process in this state")
	case !g.isPython(ctx, p.PID):
		err = errors.New("only the stacks of Python programs are read: use gdb on its node")
	case missing != nil:
		err = errors.New("py-spy is not installed here: run pip install py-spy in the job's environment")
	default:
		stack, err = readByPySpy(ctx, env, p.PID, cmp.Or(p.Thread, p.PID))
	}
	if err != nil {
		return &Stack{Problem: err.Error()}
	}
	return stack
}

// pySpyEnviron returns the environment of py-spy: that of this process, with the directory
// of the inspected program appended to PATH, because a virtual environment may contain py-spy.
func (g *stackReader) pySpyEnviron(ctx context.Context, pid int) []string {
	path := g.searchPath
	argv, _ := g.root.readFile(ctx, strconv.Itoa(pid), "cmdline")
	if program, _, _ := strings.Cut(argv, "\x00"); filepath.IsAbs(program) {
		path += ":" + filepath.Dir(program)
	}
	return append(os.Environ(), "PATH="+path)
}

// isPython reports whether a process runs a Python interpreter.
func (g *stackReader) isPython(ctx context.Context, pid int) bool {
	path := filepath.Join(string(g.root), strconv.Itoa(pid), "exe")
	program, err := ctxutil.CallBounded(ctx, procReadLag, func() (string, error) { return os.Readlink(path) })
	return err == nil && strings.HasPrefix(filepath.Base(program), "python")
}

// readByPySpy reads a stack with py-spy without stopping the process. If that fails, usually
// because the process is running, it tries once more and stops the process meanwhile.
func readByPySpy(ctx context.Context, env []string, pid, thread int) (*Stack, error) {
	argv := []string{stackByPySpy, "dump", "--json", "--nonblocking", "--pid", strconv.Itoa(pid)}
	text, err := runPySpy(ctx, env, argv...)
	if err != nil {
		text, err = runPySpy(ctx, env, append(argv[:3:3], argv[4:]...)...)
	}
	if err != nil {
		return nil, err
	}
	return parsePySpy([]byte(text), thread)
}

// runPySpy runs py-spy and returns its output.
func runPySpy(ctx context.Context, env []string, argv ...string) (string, error) {
	out := &process.HeadBuffer{MaxBytes: maxPySpyOutput}
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
