package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// gather collects all facts about this node, concurrently. dir and job are nil if there is no run
// directory.
func (d *doctor) gather(ctx context.Context, dir *signal.Dir, job *signal.Job) Facts {
	f := Facts{Rank: d.Identity.Rank, Host: d.Identity.Host, Hostname: d.Hostname, Locals: locals()}
	f.Ephemeral = health.EphemeralPorts(d.Root)
	address, err := d.Address()
	f.Address, f.NoAddress = address, words(err)
	// Each function sets its own fields of f.
	var looks sync.WaitGroup
	looks.Go(func() {
		report := d.Checks.Await(ctx, nil)
		f.Report = &report
	})
	looks.Go(func() { f.OwnName = d.resolve(ctx, d.Hostname) })
	looks.Go(func() { f.Ports, f.NoPorts = d.ports(address) })
	looks.Go(func() { f.Tool = d.tool(ctx) })
	looks.Go(func() { f.MPI = d.mpi(ctx) })
	looks.Go(func() { f.Left = d.left(ctx) })
	if job != nil && d.Identity.Size > 1 {
		looks.Go(func() { f.HeadName, f.Calls = d.wayToHead(ctx, dir.Secret(secretName), job) })
	}
	if dir != nil {
		looks.Go(func() { d.tryShare(ctx, dir, &f.Share) })
	}
	looks.Wait()
	return f
}

// left finds what earlier runs have left on the node. Reading /proc may hang if a process hangs;
// the goroutine is then left behind.
func (d *doctor) left(ctx context.Context) Left {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, errLook)
	defer cancel()
	l, _ := pause.Bounded(ctx, 0, func() (Left, error) { return leftovers(d.Root, d.TempDir, os.Geteuid()), nil })
	if d.Identity.Rank == 0 {
		runs, err := signal.EndlessRuns(ctx, signal.Place{LogDir: d.LogDir, Host: d.Identity.Host, Access: d.Access}, oldRun)
		l.Runs, l.RunsErr = runs, words(err)
	}
	return l
}

// words returns the text of an error, or an empty string for nil.
func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

const (
	lookTime = 10 * time.Second // time limit for each collection of facts
	// oldRun is the time without changes after which a run without a result is reported.
	oldRun = 24 * time.Hour
)

var errLook = fmt.Errorf("there was no answer within %s", lookTime)

// tryShare tests the operations that the shared file system supports. On the head it also reads the
// free space.
func (d *doctor) tryShare(ctx context.Context, dir *signal.Dir, s *Share) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTime, errLook)
	defer cancel()
	trial, err := dir.Try(ctx)
	if s.TrialErr = words(err); err == nil {
		s.Trial = &trial
	}
	if d.Identity.Rank != 0 {
		return
	}
	space, err := dir.Space(ctx)
	if s.SpaceErr = words(err); err == nil {
		s.Space = &space
	}
}

// wayToHead resolves the head's host name and tries to connect to all addresses that the head has
// published.
func (d *doctor) wayToHead(ctx context.Context, key []byte, job *signal.Job) (*Name, []Call) {
	name := d.resolve(ctx, job.Host)
	calls := make([]Call, len(job.Lifeline))
	var calling sync.WaitGroup
	for i, to := range job.Lifeline {
		calling.Go(func() { calls[i] = d.call(ctx, to, key, hostOf(to) == job.Host) })
	}
	calling.Wait()
	return &name, calls
}

// ports returns the ports of this node's services that are fixed or already in use. The second
// result is the reason if the ports are unknown.
func (d *doctor) ports(address string) ([]Port, string) {
	// A fixed port is the same in both calls. Other ports were chosen because they are free.
	first, err := d.service(address)
	second, again := d.service(address)
	if err = cmp.Or(err, again); err != nil {
		return nil, err.Error()
	}
	var ports []Port
	for i, wanted := range first {
		port := Port{Name: wanted.Name, Number: wanted.Number, Fixed: i < len(second) && second[i] == wanted}
		if holders, err := health.Listeners(wanted.Number, wanted.Number); err == nil && len(holders) > 0 {
			port.Holder = holders[0].String()
		}
		if port.Fixed || port.Holder != "" {
			ports = append(ports, port)
		}
	}
	return ports, ""
}

// service returns the ports of all services that the framework would start on this node.
func (d *doctor) service(address string) (ports []framework.Port, err error) {
	id := d.Identity
	node := framework.Node{
		Attempt: id.RunName(), Rank: id.Rank, Size: id.Size, LaunchRank: id.Rank, Host: id.Host, Address: address,
		TempDir: filepath.Join(d.TempDir, "bu-0123456789"), CPUs: id.CPUs, GPUs: id.GPUs, Shared: id.LocalSize > 1, Environ: d.Environ,
	}
	var head, worker *framework.Service
	endpoint := framework.Endpoint{Address: "head:1"}
	if id.Rank == 0 {
		head, endpoint, err = d.Framework.Head(node)
	}
	if err == nil {
		worker, err = d.Framework.Worker(node, endpoint)
	}
	if err != nil {
		return nil, err
	}
	for _, service := range []*framework.Service{head, worker} {
		if service != nil {
			ports = append(ports, service.Ports...)
		}
	}
	return ports, nil
}

// toolTime is how long the framework's program may take to print its version. Python reads
// thousands of files first, perhaps from the shared file system.
const toolTime = time.Minute

var errTool = fmt.Errorf("it has not told its version within %s", toolTime)

// tool runs the framework's program to get its version. It returns nil if the framework has no
// program.
func (d *doctor) tool(ctx context.Context) *Tool {
	asked := framework.TraitsOf(d.Framework)
	if asked.VersionCommand == nil {
		return nil
	}
	t := &Tool{Name: asked.VersionCommand[0]}
	// Run the command with a time limit. If it hangs, the goroutine is left behind.
	ctx, cancel := context.WithTimeoutCause(ctx, toolTime, errTool)
	defer cancel()
	said := &process.Beginning{Most: 64 << 10}
	_, err := pause.Bounded(ctx, lookTime, func() (struct{}, error) {
		return struct{}{}, process.Command{Argv: asked.VersionCommand, Env: d.Environ, Stdout: said, Stderr: said}.Run(ctx)
	})
	// Keep the last lines for the report of an error.
	lines := strings.FieldsFunc(said.String(), func(r rune) bool { return r == '\n' })
	lines = lines[max(0, len(lines)-5):]
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ended:
		t.Err, t.Lines = process.ExitOf(exit.ProcessState).String(), lines
	case err != nil && ctx.Err() != nil:
		t.Err, t.Lines = context.Cause(ctx).Error(), lines
	case err != nil:
		t.Err = fmt.Sprintf("cannot start %s: %v", t.Name, err)
		t.Missing = errors.Is(err, process.ErrNotFound) || errors.Is(err, process.ErrNotExecutable)
	default:
		if t.Version = asked.Version(lines); t.Version == "" {
			t.Err, t.Lines = "it tells no version", lines
		}
	}
	return t
}
