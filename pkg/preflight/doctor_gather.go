package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// gatherFacts collects all facts about this node, concurrently. dir and job are nil if there is no
// run directory.
func (d *examiner) gatherFacts(ctx context.Context, dir *signal.Dir, job *record.Job) DoctorFacts {
	f := DoctorFacts{NodeIndex: d.Identity.NodeIndex, Host: d.Identity.Host, Hostname: d.Hostname}
	f.LocalAddresses = localAddresses()
	address, err := d.Address()
	f.Address, f.AddressErr = address, errorText(err)
	// Each function sets its own fields of f.
	var gathering sync.WaitGroup
	gathering.Go(func() {
		report := d.Checks.AwaitReady(ctx, nil)
		f.Report = &report
	})
	gathering.Go(func() { f.OwnName = d.resolveHost(ctx, d.Hostname) })
	gathering.Go(func() { f.Ports, f.PortsErr = d.servicePorts(address) })
	gathering.Go(func() { f.Framework = d.readFrameworkVersion(ctx) })
	gathering.Go(func() { f.MPI = d.detectMPI(ctx) })
	if job != nil && d.Identity.Size > 1 {
		key := dir.DeriveSecret(doctorSecretName)
		gathering.Go(func() { f.HeadName, f.Attempts = d.connectToHead(ctx, key, job) })
	}
	if dir != nil && d.Identity.NodeIndex == 0 {
		gathering.Go(func() { querySpace(ctx, dir, &f.Share) })
	}
	gathering.Wait()
	return f
}

// errorText returns the text of an error, or an empty string for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// collectTimeout limits each collection of facts.
const collectTimeout = 10 * time.Second

var errCollectTimeout = fmt.Errorf("no response within %s", collectTimeout)

// querySpace reads the free space of the shared file system.
func querySpace(ctx context.Context, dir *signal.Dir, s *LogDirFacts) {
	ctx, cancel := context.WithTimeoutCause(ctx, collectTimeout, errCollectTimeout)
	defer cancel()
	space, err := dir.QuerySpace(ctx)
	if s.SpaceErr = errorText(err); err == nil {
		s.Space = &space
	}
}

// connectToHead resolves the head's host name and tries to connect to all addresses that the head
// has published.
func (d *examiner) connectToHead(ctx context.Context, key []byte, job *record.Job) (*DNSResult, []ConnectAttempt) {
	name := d.resolveHost(ctx, job.Host)
	attempts := make([]ConnectAttempt, len(job.LinkAddresses))
	var connecting sync.WaitGroup
	for i, to := range job.LinkAddresses {
		connecting.Go(func() {
			host, _, _ := net.SplitHostPort(to)
			attempts[i] = ConnectAttempt{To: to, ByName: host == job.Host, Err: d.tryConnect(ctx, to, key)}
		})
	}
	connecting.Wait()
	return &name, attempts
}

// Resolver resolves host names. [net.Resolver] implements it.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// callTimeout is the time limit for connecting to the head and for resolving a name. A firewall
// that drops packets never answers.
const callTimeout = 5 * time.Second

var errCallTimeout = fmt.Errorf("no response within %s", callTimeout)

// doctorSecretName is the purpose for which the head and the nodes derive a key from the run's
// secret.
const doctorSecretName = "doctor"

// serveConnections accepts the nodes that connect, until ctx ends. Connections without the key are
// dropped, as on the port of a peer link.
func (d *examiner) serveConnections(ctx context.Context, listener net.Listener, key []byte) {
	cfg := peerlink.Config{Key: key, Nodes: d.Identity.Size, HeartbeatInterval: time.Minute}
	head := peerlink.NewHead(cfg, listener, nil)
	head.HandleStreams(peerlink.DoctorStream, func(_ context.Context, _ int, conn io.ReadWriteCloser) {
		_ = conn.Close()
	})
	head.Run(ctx)
}

// tryConnect tries to connect to the head at one address. It returns the reason if that fails.
func (d *examiner) tryConnect(ctx context.Context, to string, key []byte) string {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errCallTimeout)
	defer cancel()
	conn, err := peerlink.DialStream(ctx, peerlink.DoctorStream, key, d.Identity.NodeIndex, d.Network, []string{to})
	switch {
	case err == nil:
		_ = conn.Close()
		return ""
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errCallTimeout):
		return errCallTimeout.Error()
	case peerlink.IsForeignPeer(err), errors.Is(err, io.EOF): // the head of another run closes the connection
		return "another service responds there"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "it accepts connections but does not respond"
	}
	return causeText(err)
}

// resolveHost resolves a host name on this node. The addresses are sorted.
func (d *examiner) resolveHost(ctx context.Context, host string) DNSResult {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errCallTimeout)
	defer cancel()
	found, err := d.Resolver.LookupHost(ctx, host)
	name := DNSResult{Host: host, Addresses: found}
	if err != nil {
		name.Err = causeText(err)
	}
	slices.Sort(name.Addresses)
	return name
}

// causeText returns the text of an error without the operation and the address, which the message
// already contains.
func causeText(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return lookup.Err
	}
	return err.Error()
}

// localAddresses returns the sorted addresses of this node's interfaces.
func localAddresses() (found []string) {
	all, _ := net.InterfaceAddrs()
	for _, addr := range all {
		if network, ok := addr.(*net.IPNet); ok {
			found = append(found, network.IP.String())
		}
	}
	slices.Sort(found)
	return found
}

// servicePorts returns the ports of this node's services that are fixed or already in use. The
// second result is the reason if the ports are unknown.
func (d *examiner) servicePorts(address string) ([]ServicePort, string) {
	// A fixed port is the same in both calls. Other ports were chosen because they are free.
	first, err := d.plannedPorts(address)
	second, again := d.plannedPorts(address)
	if err = cmp.Or(err, again); err != nil {
		return nil, err.Error()
	}
	var ports []ServicePort
	for i, wanted := range first {
		port := ServicePort{Name: wanted.Name, Number: wanted.Number}
		port.Fixed = i < len(second) && second[i] == wanted
		holders, err := health.FindListeners(wanted.Number, wanted.Number)
		if err == nil && len(holders) > 0 {
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
		RunName: id.RunName(), TeamIndex: id.NodeIndex, Size: id.Size, LaunchIndex: id.NodeIndex,
		Host: id.Host, Address: address, TempDir: filepath.Join(d.TempDir, "bu-0123456789"),
		CPUs: id.CPUs, GPUs: id.GPUs, Environ: d.Environ,
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
	traits := framework.TraitsOf(d.Framework)
	if traits.VersionCommand == nil {
		return nil
	}
	t := &FrameworkVersion{Name: traits.VersionCommand[0]}
	// Run the command with a time limit. If it hangs, the goroutine is left behind.
	ctx, cancel := context.WithTimeoutCause(ctx, versionTimeout, errVersionTimeout)
	defer cancel()
	output := &process.HeadBuffer{MaxBytes: 64 << 10}
	command := process.Command{Argv: traits.VersionCommand, Env: d.Environ, Stdout: output, Stderr: output}
	_, err := ctxutil.CallBounded(ctx, collectTimeout, func() (struct{}, error) {
		return struct{}{}, command.Run(ctx)
	})
	lines := strings.FieldsFunc(output.String(), func(r rune) bool { return r == '\n' })
	lines = lines[max(0, len(lines)-5):]
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ended:
		t.Err, t.Lines = process.ExitFromState(exit.ProcessState).String(), lines
	case err != nil && ctx.Err() != nil:
		t.Err, t.Lines = context.Cause(ctx).Error(), lines
	case err != nil:
		t.Err = fmt.Sprintf("cannot start %s: %v", t.Name, err)
		t.Missing = errors.Is(err, process.ErrNotFound) || errors.Is(err, process.ErrNotExecutable)
	default:
		if t.Version = traits.ParseVersion(lines); t.Version == "" {
			t.Err, t.Lines = "it printed no version", lines
		}
	}
	return t
}
