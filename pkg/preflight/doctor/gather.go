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

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/execfile"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// gatherFacts collects all facts about this node, concurrently. dir and job are nil if there is no
// run directory.
func (d *examiner) gatherFacts(ctx context.Context, dir *signal.Dir, job *record.Job) Facts {
	f := Facts{NodeIndex: d.Identity.NodeIndex, Host: d.Identity.Host, Hostname: d.Hostname, addressFacts: addressFacts{LocalAddresses: localAddresses()}}
	f.EphemeralPorts = health.EphemeralPorts(d.Root)
	address, err := d.Address()
	f.Address, f.AddressErr = address, errorText(err)
	// Each function sets its own fields of f.
	var looks sync.WaitGroup
	looks.Go(func() {
		report := d.Checks.AwaitReady(ctx, nil)
		f.Report = &report
	})
	looks.Go(func() { f.OwnName = d.resolveHost(ctx, d.Hostname) })
	looks.Go(func() { f.Ports, f.PortsErr = d.servicePorts(address) })
	looks.Go(func() { f.Framework = d.readFrameworkVersion(ctx) })
	looks.Go(func() { f.MPI = d.detectMPI(ctx) })
	looks.Go(func() { f.Leftovers = d.findLeftovers(ctx) })
	if job != nil && d.Identity.Size > 1 {
		looks.Go(func() { f.HeadName, f.Attempts = d.connectToHead(ctx, dir.DeriveSecret(secretName), job) })
	}
	if dir != nil {
		looks.Go(func() { d.testShare(ctx, dir, &f.Share) })
	}
	looks.Wait()
	return f
}

// findLeftovers finds what earlier runs have left on the node. Reading /proc may hang if a process
// hangs; the goroutine is then left behind.
func (d *examiner) findLeftovers(ctx context.Context) Leftovers {
	ctx, cancel := context.WithTimeoutCause(ctx, collectTimeout, errCollectTimeout)
	defer cancel()
	l, _ := ctxutil.CallBounded(ctx, 0, func() (Leftovers, error) { return scanLeftovers(d.Root, d.TempDir, os.Geteuid()), nil })
	if d.Identity.NodeIndex == 0 {
		runs, err := signal.FindStaleRuns(ctx, signal.Location{LogDir: d.LogDir, Host: d.Identity.Host, Access: d.Access}, staleRunAge)
		l.Runs, l.RunsErr = runs, errorText(err)
	}
	return l
}

// errorText returns the text of an error, or an empty string for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

const (
	collectTimeout = 10 * time.Second // time limit for each collection of facts
	// staleRunAge is the time without changes after which a run without a result is reported.
	staleRunAge = 24 * time.Hour
)

var errCollectTimeout = fmt.Errorf("no response within %s", collectTimeout)

// testShare tests the operations that the shared file system supports. On the head it also reads
// the free space.
func (d *examiner) testShare(ctx context.Context, dir *signal.Dir, s *ShareFacts) {
	ctx, cancel := context.WithTimeoutCause(ctx, collectTimeout, errCollectTimeout)
	defer cancel()
	trial, err := dir.TestCapabilities(ctx)
	if s.TrialErr = errorText(err); err == nil {
		s.Trial = &trial
	}
	if d.Identity.NodeIndex != 0 {
		return
	}
	space, err := dir.QuerySpace(ctx)
	if s.SpaceErr = errorText(err); err == nil {
		s.Space = &space
	}
}

// connectToHead resolves the head's host name and tries to connect to all addresses that the head
// has published.
func (d *examiner) connectToHead(ctx context.Context, key []byte, job *record.Job) (*DNSResult, []ConnectAttempt) {
	name := d.resolveHost(ctx, job.Host)
	calls := make([]ConnectAttempt, len(job.LinkAddresses))
	var calling sync.WaitGroup
	for i, to := range job.LinkAddresses {
		calling.Go(func() { calls[i] = d.tryConnect(ctx, to, key, hostPart(to) == job.Host) })
	}
	calling.Wait()
	return &name, calls
}

// servicePorts returns the ports of this node's services that are fixed or already in use. The
// second result is the reason if the ports are unknown.
func (d *examiner) servicePorts(address string) ([]Port, string) {
	// A fixed port is the same in both calls. Other ports were chosen because they are free.
	first, err := d.plannedPorts(address)
	second, again := d.plannedPorts(address)
	if err = cmp.Or(err, again); err != nil {
		return nil, err.Error()
	}
	var ports []Port
	for i, wanted := range first {
		port := Port{Name: wanted.Name, Number: wanted.Number, Fixed: i < len(second) && second[i] == wanted}
		if holders, err := health.FindListeners(wanted.Number, wanted.Number); err == nil && len(holders) > 0 {
			port.Holder = holders[0].String()
		}
		if port.Fixed || port.Holder != "" {
			ports = append(ports, port)
		}
	}
	return ports, ""
}

// plannedPorts returns the ports of all services that the framework would start on this node.
func (d *examiner) plannedPorts(address string) (ports []framework.Port, err error) {
	id := d.Identity
	node := framework.Node{
		RunName: id.RunName(), TeamIndex: id.NodeIndex, Size: id.Size, LaunchIndex: id.NodeIndex, Host: id.Host, Address: address,
		TempDir: filepath.Join(d.TempDir, "bu-0123456789"), CPUs: id.CPUs, GPUs: id.GPUs, SharesHost: id.LocalSize > 1, Environ: d.Environ,
	}
	var head, worker *framework.Service
	endpoint := framework.Endpoint{Address: "head:1"}
	if id.NodeIndex == 0 {
		head, endpoint, err = d.Framework.HeadService(node)
	}
	if err == nil {
		worker, err = d.Framework.WorkerService(node, endpoint)
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

// versionTimeout is how long the framework's program may take to print its version. Python reads
// thousands of files first, perhaps from the shared file system.
const versionTimeout = time.Minute

var errVersionTimeout = fmt.Errorf("it did not print its version within %s", versionTimeout)

// readFrameworkVersion runs the framework's program to get its version. It returns nil if the
// framework has no program.
func (d *examiner) readFrameworkVersion(ctx context.Context) *FrameworkVersion {
	asked := framework.TraitsOf(d.Framework)
	if asked.VersionCommand == nil {
		return nil
	}
	t := &FrameworkVersion{Name: asked.VersionCommand[0]}
	// Run the command with a time limit. If it hangs, the goroutine is left behind.
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, errVersionTimeout)
	defer cancel()
	said := &process.HeadBuffer{MaxBytes: 64 << 10}
	_, err := ctxutil.CallBounded(ctx, collectTimeout, func() (struct{}, error) {
		return struct{}{}, process.Command{Argv: asked.VersionCommand, Env: d.Environ, Stdout: said, Stderr: said}.Run(ctx)
	})
	// Keep the last lines for the report of an error.
	lines := strings.FieldsFunc(said.String(), func(r rune) bool { return r == '\n' })
	lines = lines[max(0, len(lines)-5):]
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ended:
		t.Err, t.Lines = process.ExitFromState(exit.ProcessState).String(), lines
	case err != nil && ctx.Err() != nil:
		t.Err, t.Lines = context.Cause(ctx).Error(), lines
	case err != nil:
		t.Err = fmt.Sprintf("cannot start %s: %v", t.Name, err)
		t.Missing = errors.Is(err, execfile.ErrNotFound) || errors.Is(err, execfile.ErrNotExecutable)
	default:
		if t.Version = asked.ParseVersion(lines); t.Version == "" {
			t.Err, t.Lines = "it printed no version", lines
		}
	}
	return t
}
