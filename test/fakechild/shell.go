package fakechild

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"

	"github.com/bringupd/bringupd/pkg/process"
)

// Shell executes the equivalent of /bin/sh -c without a process: sleep uses the time of the
// synctest bubble, kill and trap apply only to the child, and the script ends after a trap has run.
// Files are those of the machine unless Stat or ReadFile provide others. Other external commands
// run as real processes: they must be short and print little, because simulated time does not
// advance meanwhile, not even for the reader of their output.
type Shell struct {
	// Stat, if not nil, describes files that do not exist on the machine. For other files it returns
	// errors.ErrUnsupported.
	Stat func(path string) (fs.FileInfo, error)
}

// Run implements [Program].
func (s Shell) Run(ctx context.Context, p *Process) int {
	if len(p.Argv) < 3 || p.Argv[1] != "-c" {
		fmt.Fprintln(p.Stderr, "the test's shell runs -c LINE alone")
		return 2
	}
	script := &script{
		Shell: s, p: p, traps: make(map[string]string), caught: make(chan syscall.Signal, 16),
	}
	running, interrupt := context.WithCancel(ctx)
	defer interrupt()
	trapped := make(chan syscall.Signal, 1)
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case sig := <-script.caught:
			trapped <- sig
			interrupt()
		case <-over:
		}
	}()
	code := script.run(running, strings.ReplaceAll(p.Argv[2], "$$", strconv.Itoa(p.PID)))
	close(over)
	<-watched
	select {
	case sig := <-trapped:
		script.trapping = true
		return script.run(ctx, script.traps[process.SignalName(sig)])
	default:
		return code
	}
}

// script is one execution of a shell script.
type script struct {
	Shell
	p        *Process
	traps    map[string]string // by signal name; used only by the goroutine that runs the script
	caught   chan syscall.Signal
	trapping bool
}

func (s *script) run(ctx context.Context, line string) int {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(line),
		"")
	if err != nil {
		fmt.Fprintln(s.p.Stderr, err)
		return 2
	}
	runner, err := s.runner()
	if err != nil {
		fmt.Fprintln(s.p.Stderr, err)
		return 2
	}
	for _, stmt := range file.Stmts {
		if stmt.Background {
			s.background(stmt)
			continue
		}
		if err = runner.Run(ctx, stmt); runner.Exited() || ctx.Err() != nil {
			break
		}
	}
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case ctx.Err() == nil:
		fmt.Fprintln(s.p.Stderr, "the test's shell fails:", err)
	}
	return 2
}

func (s *script) runner() (*interp.Runner, error) {
	return interp.New(
		interp.Env(expand.ListEnviron(s.p.Env...)),
		interp.StdIO(stdin(s.p), s.p.Stdout, s.p.Stderr),
		interp.CallHandler(s.call), interp.ExecHandlers(s.exec), interp.StatHandler(s.stat),
	)
}

// background runs a command for which the script does not wait, and which may outlive it.
func (s *script) background(stmt *syntax.Stmt) {
	foreground := *stmt
	foreground.Background = false
	s.p.Background(func(ctx context.Context) {
		if runner, err := s.runner(); err == nil {
			_ = runner.Run(ctx, &foreground)
		}
	})
}

func stdin(p *Process) io.Reader {
	if p.Stdin == nil {
		return nil
	}
	return p.Stdin
}

// call redirects commands of the interpreter that this package implements itself.
func (s *script) call(_ context.Context, args []string) ([]string, error) {
	switch args[0] {
	case "trap":
		return []string{":"}, s.trap(args[1:])
	case "kill":
		args[0] = "kill of the test"
	}
	return args, nil
}

func (s *script) trap(args []string) error {
	if len(args) < 2 {
		return errors.New("trap: the test's shell knows trap LINE SIGNAL... alone")
	}
	for _, name := range args[1:] {
		name = "SIG" + name
		sig := process.SignalNumber(name)
		if sig == 0 {
			return errors.New("trap: there is no signal " + name)
		}
		if s.traps[name] = args[0]; args[0] == "" {
			s.p.Ignore(sig)
		} else if !s.trapping {
			s.p.Catch(sig, s.caught)
		}
	}
	return nil
}

func (s *script) exec(next interp.ExecHandlerFunc) interp.ExecHandlerFunc {
	return func(ctx context.Context, args []string) error {
		switch args[0] {
		case "sleep":
			return s.sleep(ctx, args[1])
		case "touch":
			file, err := os.OpenFile(args[1], os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				fmt.Fprintln(interp.HandlerCtx(ctx).Stderr, err)
				return interp.ExitStatus(1)
			}
			now := time.Now()
			return errors.Join(file.Close(), os.Chtimes(args[1], now, now))
		case "seq":
			return seq(interp.HandlerCtx(ctx).Stdout, args[1])
		case "kill of the test":
			return s.kill(ctx, args[1:])
		}
		return next(ctx, args)
	}
}

func (s *script) sleep(ctx context.Context, text string) error {
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return interp.ExitStatus(1)
	}
	if !Sleep(ctx, time.Duration(seconds*float64(time.Second))) {
		return ctx.Err()
	}
	return nil
}

// seq prints the numbers from 1 to the given one, in writes of some thousand bytes.
func seq(to io.Writer, text string) error {
	last, err := strconv.Atoi(text)
	if err != nil {
		return interp.ExitStatus(1)
	}
	out := bufio.NewWriter(to)
	for i := range last {
		fmt.Fprintln(out, i+1)
	}
	return out.Flush()
}

func (s *script) kill(ctx context.Context, args []string) error {
	if len(args) != 2 || args[1] != strconv.Itoa(s.p.PID) {
		return fmt.Errorf("kill: the test's shell signals itself alone, not %v", args)
	}
	s.p.Kill(process.SignalNumber("SIG" + strings.TrimPrefix(args[0], "-")))
	<-ctx.Done() // done by the signal, which ends the child or runs a trap
	return ctx.Err()
}

func (s *script) stat(ctx context.Context, path string, follow bool) (fs.FileInfo, error) {
	if s.Stat != nil {
		if info, err := s.Stat(path); !errors.Is(err, errors.ErrUnsupported) {
			return info, err
		}
	}
	return interp.DefaultStatHandler()(ctx, path, follow)
}
