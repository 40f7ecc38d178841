// Package dask runs a Dask cluster: the command lines of its scheduler and workers, the certificate
// of a run, and the scheduler's list of workers.
package dask

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// mostStarts is the maximum number of starts of a scheduler or a worker.
const mostStarts = 3

// The values of --dask-tls.
const (
	tlsAuto = "auto"
	tlsOff  = "off"
)

// Cluster runs a Dask cluster: its scheduler on the head, and a worker on every node.
type Cluster struct {
	Program       string   // the dask command; empty: dask
	Port          int      // of the scheduler; 0: a free one
	TLS           string   // accepted clients: auto, those with the certificate of this run, or off, all; empty: auto
	DedicatedHead bool     // the head's node has no worker
	SchedulerArgs []string // additional arguments for dask scheduler
	WorkerArgs    []string // the same for dask worker
}

var (
	_ framework.Framework = Cluster{}
	_ framework.Counter   = Cluster{}
	_ framework.Special   = Cluster{}
	_ framework.Guarded   = Cluster{}
	_ framework.Choice    = (*Cluster)(nil)
	_ framework.Checked   = (*Cluster)(nil)
)

// New returns a Dask cluster with default settings, which its flags change.
func New() *Cluster { return &Cluster{Program: "dask", Port: 8786, TLS: tlsAuto} }

// Traits describes Dask's program and port. Its workers do not know their index, and its logs are
// its output.
func (d Cluster) Traits() framework.Traits {
	return framework.Traits{
		Unranked: true, VersionCommand: []string{d.program(), "--version"}, Version: framework.VersionAfter("dask, version "),
		Program: "--dask", FreePort: "with --framework=dask --dask-port=0 takes one that is free",
	}
}

// Flags returns the settings for Dask's program, the scheduler's port, TLS, and additional
// arguments.
func (d *Cluster) Flags() []framework.Flag {
	return []framework.Flag{
		{Name: "dask", Shape: "PROGRAM", Value: &d.Program, Usage: "the dask program"},
		{Name: "dask-port", Value: &d.Port, Most: math.MaxUint16, Usage: "the scheduler's port; 0 takes one that is free"},
		{Name: "dask-tls", Value: &d.TLS, Words: []string{tlsAuto, tlsOff}, Usage: "who is let in: auto (who has the certificate of this run) or off (anybody who reaches a port)"},
		{Name: "dask-scheduler-args", Shape: "ARG", Value: &d.SchedulerArgs, Usage: "one more argument of dask scheduler (repeat for more)"},
		{Name: "dask-worker-args", Shape: "ARG", Value: &d.WorkerArgs, Usage: "one more argument of dask worker (repeat for more)"},
	}
}

// Check returns an error for arguments that no node could pass to Dask's programs.
func (d *Cluster) Check() error {
	_, err := parse("dask scheduler", d.SchedulerArgs)
	if err == nil {
		_, err = d.workersPerNode()
	}
	return err
}

// Framework returns the cluster with the present settings.
func (d *Cluster) Framework(dedicatedHead bool) framework.Framework {
	chosen := *d
	chosen.DedicatedHead = dedicatedHead
	return chosen
}

// Name returns "dask".
func (Cluster) Name() string { return "dask" }

// Serves returns true: the head runs a scheduler, and the nodes run workers.
func (Cluster) Serves() bool { return true }

func (d Cluster) program() string { return cmp.Or(d.Program, "dask") }

func (d Cluster) guarded() bool { return d.TLS != tlsOff }

// Head returns the scheduler, and its address for workers and the driver.
func (d Cluster) Head(node framework.Node) (*framework.Service, framework.Endpoint, error) {
	free, err := framework.FreePorts(2)
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	port := cmp.Or(d.Port, free[0])
	argv, err := d.schedulerArgv(node, port, free[1])
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	address := d.scheme() + "://" + net.JoinHostPort(node.Address, strconv.Itoa(port))
	endpoint := framework.Endpoint{Address: address, Env: map[string]string{schedulerAddress: address}, Dashboard: dashboard(node, argv[2:])}
	service := d.service("dask head", node, endpoint, argv)
	service.Port = port
	service.Ready = func(ctx context.Context) error {
		_, err := identity(ctx, address, node)
		return err
	}
	return service, endpoint, nil
}

// Worker returns a node's worker, or nil on a dedicated head.
func (d Cluster) Worker(node framework.Node, endpoint framework.Endpoint) (*framework.Service, error) {
	if d.DedicatedHead && node.Rank == 0 {
		return nil, nil
	}
	argv, wanted, err := d.workerArgv(node, endpoint.Address)
	if err != nil {
		return nil, err
	}
	name := "dask worker"
	if slices.Contains(argv, "--nanny") {
		name = "dask nanny" // it restarts dead workers, so only its own death is detected here
	}
	service := d.service(name, node, endpoint, argv)
	service.Ready = func(ctx context.Context) error { return counted(ctx, endpoint.Address, node, wanted) }
	return service, nil
}

// service returns the service of a Dask program. A scheduler or worker logs only to its output.
func (d Cluster) service(name string, node framework.Node, endpoint framework.Endpoint, argv []string) *framework.Service {
	return &framework.Service{
		Name: name, Argv: argv, Env: framework.ServiceEnviron(node.Environ, d.settings(argv), endpoint.Env, nil), Attempts: mostStarts,
		// A worker that closes because the scheduler does, and gets TERM meanwhile, hangs: with 2026.8.0,
		// four of seven jobs needed the whole grace period of 5 s.
		Expendable: true,
		Transient: func(exit process.Exit, lines []string) bool {
			// Another process was faster on a port that was free a moment before.
			return exit.Signal == 0 && slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "Address already in use") })
		},
	}
}

// Fleet returns nil if the scheduler lists every worker of every member by its name, and no other
// worker.
func (d Cluster) Fleet(ctx context.Context, head framework.Node, endpoint framework.Endpoint, members []framework.Member) error {
	if d.DedicatedHead {
		members = slices.DeleteFunc(slices.Clone(members), func(m framework.Member) bool { return m.Rank == head.LaunchRank })
	}
	perNode, err := d.workersPerNode()
	if err != nil {
		return err
	}
	workers, err := identity(ctx, endpoint.Address, head)
	if err != nil {
		return err
	}
	return compareFleet(head.Attempt, members, perNode, workers)
}

// counted returns nil if the scheduler lists the node's own workers with their expected properties.
// A thousand nodes poll at the same time, and the scheduler's full state is large, so it is
// requested only once a worker of this host is among the addresses.
func counted(ctx context.Context, address string, node framework.Node, wanted []worker) error {
	config, err := dialing(address, node)
	if err != nil {
		return err
	}
	answer, err := ask(ctx, address, config, "ncores")
	if err != nil {
		return err
	}
	here := false
	err = eachEntry(answer, func(worker string, _ []byte) error {
		host, _, err := net.SplitHostPort(withoutScheme(worker))
		here = here || err == nil && host == node.Address
		return nil
	})
	if err != nil {
		return notUnderstood(address, err)
	}
	if !here {
		return fmt.Errorf("the scheduler at %s counts no worker of %s yet", address, node.Address)
	}
	workers, err := identity(ctx, address, node)
	if err != nil {
		return err
	}
	return compareOwn(wanted, workers)
}

// identity requests the list of workers from the scheduler.
func identity(ctx context.Context, address string, node framework.Node) ([]worker, error) {
	config, err := dialing(address, node)
	if err != nil {
		return nil, err
	}
	answer, err := ask(ctx, address, config, "identity")
	if err != nil {
		return nil, err
	}
	workers, err := workersOf(answer)
	if err != nil {
		return nil, notUnderstood(address, err)
	}
	return workers, nil
}

func notUnderstood(address string, err error) error {
	return fmt.Errorf("cannot understand the Dask scheduler at %s: %v", address, err)
}

// dialing returns the TLS configuration for the scheduler at an address, or nil without TLS.
func dialing(address string, node framework.Node) (*tls.Config, error) {
	if !strings.HasPrefix(address, "tls://") {
		return nil, nil
	}
	path, _ := roles.EnvironmentOf(node.Environ)(authorityVariable) // as Dask's programs find it
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate of this run: %v", err)
	}
	config, err := tlsConfig(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate of this run in %s: %v", path, err)
	}
	return config, nil
}

func withoutScheme(address string) string {
	if _, rest, found := strings.Cut(address, "://"); found {
		return rest
	}
	return address
}
