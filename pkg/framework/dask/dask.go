// Package dask runs a Dask cluster: the command lines of its scheduler and workers, the certificate
// of a run, and the scheduler's list of workers.
package dask

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

const maxStarts = 3

// Cluster runs a Dask cluster: its scheduler on the head, and a worker on every node.
type Cluster struct {
	Port          int      // the scheduler's; 0: a free one
	Auth          string   // accepted clients: see [framework.Options]
	DedicatedHead bool     // the head's node has no worker
	SchedulerArgs []string // additional arguments for dask scheduler
	WorkerArgs    []string // the same for dask worker
}

var (
	_ framework.Framework     = Cluster{}
	_ framework.MemberLister  = Cluster{}
	_ framework.WithTraits    = Cluster{}
	_ framework.Authenticator = Cluster{}
	_ framework.Factory       = (*Cluster)(nil)
)

// New returns a Dask cluster, which its flags change.
func New() *Cluster { return new(Cluster) }

// Traits describes Dask's program and port. Its workers do not know their index, and its logs are
// its output.
func (d Cluster) Traits() framework.Traits {
	return framework.Traits{
		ReplaceableNodes: true, VersionCommand: []string{programName, "--version"},
		ParseVersion: framework.FindVersionAfter("dask, version "),
		HeadName:     headName, WorkerName: d.workerName(), NoWorkerOnHead: d.DedicatedHead,
		HeadPort: d.Port, FreePortAdvice: "--framework-port=0 picks a free port",
	}
}

// OwnFlags returns the settings for additional arguments.
func (d *Cluster) OwnFlags() []framework.Flag {
	return []framework.Flag{
		{Name: "dask-scheduler-args", Placeholder: "ARG", Target: &d.SchedulerArgs,
			Usage: "extra argument for dask scheduler (repeatable)"},
		{Name: "dask-worker-args", Placeholder: "ARG", Target: &d.WorkerArgs,
			Usage: "extra argument for dask worker (repeatable)"},
	}
}

// ValidateSettings returns an error for arguments that no node could pass to Dask's programs.
func (d *Cluster) ValidateSettings() error {
	_, err := parseUserFlags("dask scheduler", d.SchedulerArgs)
	if err == nil {
		_, err = d.workersPerNode()
	}
	return err
}

// BuildFramework returns the cluster with the present settings.
func (d *Cluster) BuildFramework(o framework.Options) framework.Framework {
	chosen := *d
	chosen.DedicatedHead, chosen.Port, chosen.Auth = o.DedicatedHead, o.HeadPort(8786), o.Auth
	return chosen
}

// Name returns "dask".
func (Cluster) Name() string { return "dask" }

// HasServices returns true: the head runs a scheduler, and the nodes run workers.
func (Cluster) HasServices() bool { return true }

const programName = "dask"

func (d Cluster) usesTLS() bool { return d.Auth != framework.AuthOff }

// HeadService returns the scheduler, and its address for workers and the driver.
func (d Cluster) HeadService(node framework.Node) (*framework.Service, framework.Endpoint, error) {
	free, err := process.FindFreePorts(2)
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	port := cmp.Or(d.Port, free[0])
	argv, err := d.schedulerArgv(node, port, free[1])
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	address := d.urlScheme() + "://" + net.JoinHostPort(node.Address, strconv.Itoa(port))
	endpoint := framework.Endpoint{Address: address,
		Env: map[string]string{schedulerVariable: address}, Dashboard: dashboardURL(node, argv[2:])}
	service := d.newService(headName, node, endpoint, argv)
	service.ReadyPort = port
	service.CheckReady = func(ctx context.Context) error {
		_, err := fetchWorkers(ctx, address, node)
		return err
	}
	return service, endpoint, nil
}

// WithHeadPort implements [framework.ClusterBuilder].
func (d Cluster) WithHeadPort(port int) framework.Framework {
	d.Port = port
	return d
}

// WorkerService returns a node's worker, or nil on a dedicated head.
func (d Cluster) WorkerService(node framework.Node, endpoint framework.Endpoint) (*framework.Service, error) {
	if d.DedicatedHead && node.TeamIndex == 0 {
		return nil, nil
	}
	argv, wanted, err := d.workerArgv(node, endpoint.Address)
	if err != nil {
		return nil, err
	}
	service := d.newService(d.workerName(), node, endpoint, argv)
	service.CheckReady = func(ctx context.Context) error { return checkOwnWorkers(ctx, endpoint.Address, node, wanted) }
	return service, nil
}

const headName = "dask head"

func (d Cluster) workerName() string {
	argv, _, err := d.workerArgv(framework.Node{}, "")
	if err == nil && slices.Contains(argv, "--nanny") {
		return "dask nanny" // it restarts dead workers, so only its own death is detected here
	}
	return "dask worker"
}

// newService returns the service of a Dask program. A scheduler or worker logs only to its output.
func (d Cluster) newService(name string, node framework.Node, endpoint framework.Endpoint,
	argv []string) *framework.Service {
	return &framework.Service{
		Name: name, Argv: argv, Env: framework.ServiceEnviron(node.Environ, d.envSettings(argv),
			endpoint.Env, nil), MaxStarts: maxStarts,
		// A worker that closes because the scheduler does, and gets TERM meanwhile, hangs: with 2026.8.0,
		// four of seven jobs needed the whole grace period of 5 s.
		NeedsNoGrace: true,
		IsTransient: func(exit process.Exit, lines []string) bool {
			// Another process was faster on a port that was free a moment before.
			return exit.Signal == 0 && slices.ContainsFunc(lines,
				func(line string) bool { return strings.Contains(line, "Address already in use") })
		},
	}
}

// CheckMembers returns nil if the scheduler lists every worker of every member by its name, and no
// other worker.
func (d Cluster) CheckMembers(ctx context.Context, head framework.Node, endpoint framework.Endpoint,
	members []framework.Member) error {
	if d.DedicatedHead {
		members = slices.DeleteFunc(slices.Clone(members),
			func(m framework.Member) bool { return m.NodeIndex == head.LaunchIndex })
	}
	perNode, err := d.workersPerNode()
	if err != nil {
		return err
	}
	workers, err := fetchWorkers(ctx, endpoint.Address, head)
	if err != nil {
		return err
	}
	return compareMembers(head.RunName, members, perNode, workers)
}

// checkOwnWorkers returns nil if the scheduler lists the node's own workers with their expected
// properties. A thousand nodes poll at the same time, and the scheduler's full state is large, so
// it is requested only once a worker of this host is among the addresses.
func checkOwnWorkers(ctx context.Context, address string, node framework.Node, wanted []workerInfo) error {
	config, err := schedulerTLSConfig(address, node)
	if err != nil {
		return err
	}
	answer, err := requestInfo(ctx, address, config, "ncores")
	if err != nil {
		return err
	}
	here := false
	err = forEachEntry(answer, func(worker string, _ []byte) error {
		host, _, err := net.SplitHostPort(trimScheme(worker))
		here = here || err == nil && host == node.Address
		return nil
	})
	if err != nil {
		return responseError(address, err)
	}
	if !here {
		return fmt.Errorf("the scheduler at %s does not list a worker of %s yet", address, node.Address)
	}
	workers, err := fetchWorkers(ctx, address, node)
	if err != nil {
		return err
	}
	var gaps []string
	for _, want := range wanted {
		if gap := workerGap(want, workers); gap != "" {
			gaps = append(gaps, "the worker "+want.Name+" "+gap)
		}
	}
	return framework.GapsError(gaps)
}

func fetchWorkers(ctx context.Context, address string, node framework.Node) ([]workerInfo, error) {
	config, err := schedulerTLSConfig(address, node)
	if err != nil {
		return nil, err
	}
	answer, err := requestInfo(ctx, address, config, "identity")
	if err != nil {
		return nil, err
	}
	workers, err := parseWorkers(answer)
	if err != nil {
		return nil, responseError(address, err)
	}
	return workers, nil
}

func responseError(address string, err error) error {
	return fmt.Errorf("cannot parse the response of the Dask scheduler at %s: %v", address, err)
}

// schedulerTLSConfig returns the TLS configuration for the scheduler at an address, or nil without
// TLS.
func schedulerTLSConfig(address string, node framework.Node) (*tls.Config, error) {
	if !strings.HasPrefix(address, "tls://") {
		return nil, nil
	}
	path, _ := launcher.EnvironmentOf(node.Environ)(authorityVariable) // as Dask's programs find it
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate of this run: %v", err)
	}
	config, err := clientTLSConfig(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate of this run in %s: %v", path, err)
	}
	return config, nil
}

func trimScheme(address string) string {
	if _, rest, found := strings.Cut(address, "://"); found {
		return rest
	}
	return address
}
