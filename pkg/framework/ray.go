package framework

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// rayStarts bounds the starts of a head's or a worker's Ray.
const rayStarts = 3

// Ray runs a Ray cluster: its head on rank 0, which is a node of the cluster
// like the others, and a worker on every other rank.
type Ray struct {
	Program       string   // the ray command; empty: ray
	Port          int      // of the head's GCS; 0: one that is free
	DedicatedHead bool     // the head's node offers no GPUs
	HeadArgs      []string // more arguments for the head's ray start
	WorkerArgs    []string // the same for the workers'
}

var (
	_ Framework = Ray{}
	_ Counter   = Ray{}
	_ Unranked  = Ray{}
)

// Name returns "ray".
func (Ray) Name() string { return "ray" }

// Serves returns true: every node runs Ray.
func (Ray) Serves() bool { return true }

// Unranked says that Ray gives its nodes no ranks.
func (Ray) Unranked() {}

// Head returns the head's ray start, and where workers and the driver find it.
func (r Ray) Head(node Node) (*Service, Endpoint, error) {
	free, err := freePorts(2)
	if err != nil {
		return nil, Endpoint{}, err
	}
	start := r.start(node)
	start.Head, start.Port, start.ClientPort = true, r.Port, free[0]
	if start.Port == 0 {
		start.Port = free[1]
	}
	start.Extra = r.HeadArgs
	address := net.JoinHostPort(node.Address, strconv.Itoa(start.Port))
	endpoint := Endpoint{Address: address, Env: rayDriverEnv(address)}
	if rayToken(node.Environ, os.ReadFile) != "" {
		endpoint.Env["RAY_AUTH_MODE"] = "token"
	}
	service, err := r.service("ray head", node, start, endpoint, rayHeadReady)
	if err != nil {
		return nil, Endpoint{}, err
	}
	service.Port = start.Port
	return service, endpoint, nil
}

// Worker returns a worker's ray start; nil on rank 0, whose node the head's is.
func (r Ray) Worker(node Node, endpoint Endpoint) (*Service, error) {
	if node.Rank == 0 {
		return nil, nil
	}
	start := r.start(node)
	start.GCS, start.Extra = endpoint.Address, r.WorkerArgs
	return r.service("ray worker", node, start, endpoint, rayWorkerReady)
}

// Fleet returns nil when Ray's node table has every member alive, and nobody
// else.
func (r Ray) Fleet(ctx context.Context, head Node, endpoint Endpoint, members []Member) error {
	gcs, err := dialGCS(endpoint.Address, rayToken(head.Environ, os.ReadFile))
	if err != nil {
		return err
	}
	defer func() { _ = gcs.Close() }()
	nodes, err := gcs.Nodes(ctx)
	if err != nil {
		return err
	}
	wanted := make([]rayMember, len(members))
	for i, member := range members {
		// What a node should offer, the node itself has looked at.
		wanted[i] = rayMember{Rank: member.Rank, Host: member.Host, Name: rayName(head.Attempt, member.Rank)}
	}
	return rayFleet(wanted, nodes)
}

// start is what head and workers have in common.
func (r Ray) start(node Node) rayStart {
	start := rayStart{
		Program: r.Program, Name: rayName(node.Attempt, node.LaunchRank), Address: node.Address,
		TempDir: node.TempDir, CPUs: node.CPUs, GPUs: node.GPUs,
		Resources: r.resources(node),
	}
	if start.Program == "" {
		start.Program = "ray"
	}
	if r.dedicated(node) {
		start.GPUs = 0
	}
	return start
}

func (r Ray) dedicated(node Node) bool { return r.DedicatedHead && node.Rank == 0 }

// resources are those by which programs that were written for NeMo RL's ray.sub
// know the cluster and its nodes. A head that does no work has none that would
// have work placed on it.
func (r Ray) resources(node Node) map[string]float64 {
	resources := map[string]float64{}
	if roles.Managed(roles.EnvironmentOf(node.Environ)) {
		resources["slurm_managed_ray_cluster"] = 1
	}
	if r.dedicated(node) {
		resources["ray_head"] = 1
		return resources
	}
	if node.GPUs > 0 {
		resources["worker_units"] = float64(node.GPUs)
	}
	maps.Copy(resources, rayTopology(node))
	return resources
}

// rayLook is rayHeadReady or rayWorkerReady.
type rayLook func(ctx context.Context, dial rayDial, address, tempDir string, member rayMember) error

func (r Ray) service(name string, node Node, start rayStart, endpoint Endpoint, look rayLook) (*Service, error) {
	argv, err := start.Argv()
	if err != nil {
		return nil, err
	}
	ports, err := rayPorts(argv)
	if err != nil {
		return nil, err
	}
	if node.Shared {
		if err := aloneOnHost(argv); err != nil {
			return nil, err
		}
	}
	more := map[string]string{}
	if mode := endpoint.Env["RAY_AUTH_MODE"]; mode != "" {
		more["RAY_AUTH_MODE"] = mode
	}
	env := rayDaemonEnv(node.Environ, more)
	token := rayToken(env, os.ReadFile)
	dial := func(address string) (rayServer, error) { return dialGCS(address, token) }
	member := rayMember{Rank: node.LaunchRank, Host: node.Host, Name: start.Name, Want: wants(argv)}
	return &Service{
		Name: name, Argv: argv, Env: env, Ports: ports, Attempts: rayStarts,
		Ready: func(ctx context.Context) error {
			return explained(look(ctx, dial, endpoint.Address, node.TempDir, member), node.TempDir)
		},
		Evidence: filepath.Join(node.TempDir, "session_latest", "logs"),
		Explain:  func() []string { return raySigns(node.TempDir) },
		Transient: func(exit process.Exit, lines []string) bool {
			return rayTransient(exit, append(slices.Clip(lines), raySigns(node.TempDir)...))
		},
	}, nil
}

// wants are the CPUs and GPUs that a command line tells Ray to offer.
func wants(argv []string) map[string]float64 {
	want := map[string]float64{}
	flags, err := parseRayFlags(argv[2:])
	if err != nil {
		return want // Argv has read them already
	}
	for flag, resource := range map[string]string{"--num-cpus": "CPU", "--num-gpus": "GPU"} {
		if value, given := flags.value(flag); given {
			if amount, err := strconv.ParseFloat(value, 64); err == nil {
				want[resource] = amount
			}
		}
	}
	return want
}
