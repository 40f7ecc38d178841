package ray

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// mostStarts is the maximum number of starts of a head's or a worker's Ray.
const mostStarts = 3

// Cluster runs a Ray cluster: its head on node 0, which is also a node of the cluster, and a worker
// on every other node.
type Cluster struct {
	Program       string   // the ray command; empty: ray
	Port          int      // of the head's GCS; 0: a free one
	Ports         int      // the first of a block with all of Ray's ports; 0: the kernel picks them
	Tuning        string   // settings for many nodes: auto or off; empty: auto
	Auth          string   // accepted clients: auto, own or off; empty: auto
	Logs          string   // which of Ray's own logs are kept: failure, end or a duration; empty: failure
	DedicatedHead bool     // the head's node offers no GPUs
	HeadArgs      []string // additional arguments for the head's ray start
	WorkerArgs    []string // the same for the workers'
}

var (
	_ framework.Framework = Cluster{}
	_ framework.Counter   = Cluster{}
	_ framework.Special   = Cluster{}
	_ framework.Guarded   = Cluster{}
	_ framework.Choice    = (*Cluster)(nil)
	_ framework.Checked   = (*Cluster)(nil)
)

// tasks is the minimum number of processes and threads that a Ray node needs. A head of Ray 2.60
// without dashboard and workers was measured to have 130 on two CPUs, 91 of which are on every
// node. A worker has about 25.
const tasks = 128

// Traits describes Ray's program, ports, object store and logs. Its nodes do not know their index.
func (r Cluster) Traits() framework.Traits {
	return framework.Traits{
		Unranked: true, VersionCommand: []string{r.program(), "--version"}, Version: framework.VersionAfter("ray, version "), ObjectStore: r.objectStore(), Tasks: tasks,
		Program: "--ray", FreePort: "with --framework=ray --ray-port=0 takes one that is free", Logs: "Ray's own logs",
	}
}

// New returns a Ray cluster with default settings, which its flags change.
func New() *Cluster {
	return &Cluster{Program: "ray", Port: 6379, Tuning: tuningAuto, Auth: authAuto, Logs: logsFailure}
}

// Flags returns the settings for Ray's program, the head's port, and additional arguments.
func (r *Cluster) Flags() []framework.Flag {
	return []framework.Flag{
		{Name: "ray", Shape: "PROGRAM", Value: &r.Program, Usage: "the ray program"},
		{Name: "ray-port", Value: &r.Port, Most: math.MaxUint16, Usage: "the head's port; 0 takes one that is free"},
		{Name: "ray-ports", Value: &r.Ports, Most: math.MaxUint16 - blockSize + 1, Usage: "the first of 1010 ports that all of Ray has on each node, see docs/ray.md; 0 leaves them to the kernel"},
		{Name: "ray-tuning", Value: &r.Tuning, Words: []string{tuningAuto, tuningOff}, Usage: "settings for many nodes, see docs/ray.md: auto or off; what you set yourself wins"},
		{Name: "ray-auth", Value: &r.Auth, Words: []string{authAuto, authOwn, authOff}, Usage: "who is let in: auto (who has the token of this run), own (what RAY_AUTH_MODE says), off (anybody)"},
		{Name: "ray-logs", Shape: "WHEN", Value: &r.Logs, Usage: "when Ray's own logs are copied to the run directory: failure (from the nodes that it is about), end (of every run), or each DURATION besides, as 60s"},
		{Name: "ray-head-args", Shape: "ARG", Value: &r.HeadArgs, Usage: "one more argument of the head's ray start (repeat for more)"},
		{Name: "ray-worker-args", Shape: "ARG", Value: &r.WorkerArgs, Usage: "one more argument of the workers' ray start (repeat for more)"},
	}
}

// Check returns an error for an invalid time for Ray's logs, and for arguments that no node could
// pass to ray start.
func (r *Cluster) Check() error {
	every, err := time.ParseDuration(r.Logs)
	if r.Logs != logsFailure && r.Logs != logsEnd && (err != nil || every < time.Second) {
		return fmt.Errorf("cannot use --ray-logs=%s: give %s, %s, or a duration of a second or more, as 60s", r.Logs, logsFailure, logsEnd)
	}
	for _, of := range []struct {
		args []string
		head bool
	}{{r.HeadArgs, true}, {r.WorkerArgs, false}} {
		extra, err := usersFlags(of.args, of.head)
		if err == nil {
			_, err = mergeResources(map[string]float64{}, extra)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// The times at which Ray's own logs are kept.
const (
	logsFailure = "failure"
	logsEnd     = "end"
)

// evidence describes Ray's own logs below tempDir.
func (r Cluster) evidence(tempDir string) framework.Evidence {
	every, err := time.ParseDuration(r.Logs)
	return framework.Evidence{Dir: filepath.Join(tempDir, "session_latest", "logs"), Always: err == nil || r.Logs == logsEnd, Every: every}
}

// Framework returns the cluster with the present settings.
func (r *Cluster) Framework(dedicatedHead bool) framework.Framework {
	chosen := *r
	chosen.DedicatedHead = dedicatedHead
	return chosen
}

// Name returns "ray".
func (Cluster) Name() string { return "ray" }

// Serves returns true: every node runs Ray.
func (Cluster) Serves() bool { return true }

// Head returns the head's ray start, and its address for workers and the driver.
func (r Cluster) Head(node framework.Node) (*framework.Service, framework.Endpoint, error) {
	free, err := framework.FreePorts(2)
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	port, client := cmp.Or(r.Port, free[0]), free[1]
	if r.Ports > 0 {
		port, client = r.Ports, r.Ports+1
	}
	place := framework.Arguments{
		"--head", "--port=" + strconv.Itoa(port),
		// Ray always starts the server of the Ray Client.
		"--ray-client-server-port=" + strconv.Itoa(client),
		// Ray's default costs a second of every start.
		"--include-dashboard=false",
	}
	address := net.JoinHostPort(node.Address, strconv.Itoa(port))
	// The driver keeps all other variables of the launcher. Without RAY_ADDRESS, ray.init would start
	// its own cluster if it finds none.
	endpoint := framework.Endpoint{Address: address, Env: r.tuned(node, tunings)}
	endpoint.Env["RAY_ADDRESS"] = address
	if authToken(node.Environ) != "" {
		endpoint.Env["RAY_AUTH_MODE"] = "token"
	}
	service, err := r.service("ray head", node, endpoint, place, r.HeadArgs, looker.head)
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	service.Port = port
	endpoint.Dashboard = dashboard(node, service.Argv[2:])
	return service, endpoint, nil
}

// Worker returns a worker's ray start, or nil on the head, which is a node of the cluster itself.
func (r Cluster) Worker(node framework.Node, endpoint framework.Endpoint) (*framework.Service, error) {
	if node.Rank == 0 {
		return nil, nil
	}
	return r.service("ray worker", node, endpoint, framework.Arguments{"--address=" + endpoint.Address}, r.WorkerArgs, looker.worker)
}

// Fleet returns nil if Ray's node table has every member alive, and no other node.
func (r Cluster) Fleet(ctx context.Context, head framework.Node, endpoint framework.Endpoint, members []framework.Member) error {
	wanted := make([]member, len(members))
	for i, m := range members {
		// Each node has verified its own resources.
		wanted[i] = member{Rank: m.Rank, Host: m.Host, Name: framework.NodeName(head.Attempt, m.Rank)}
	}
	return asking(endpoint.Address, authToken(head.Environ), func(gcs *gcsClient) error {
		nodes, err := gcs.nodes(ctx)
		if err != nil {
			return err
		}
		return compareFleet(wanted, nodes)
	})
}

func (r Cluster) program() string { return cmp.Or(r.Program, "ray") }

func (r Cluster) dedicated(node framework.Node) bool { return r.DedicatedHead && node.Rank == 0 }

// resources returns the resources by which programs for NeMo RL's ray.sub identify the cluster and
// its nodes. A dedicated head has none that would place work on it.
func (r Cluster) resources(node framework.Node) map[string]float64 {
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
	maps.Copy(resources, topology(node))
	return resources
}

// service returns the service of a ray start that look proves to be up.
func (r Cluster) service(
	name string, node framework.Node, endpoint framework.Endpoint, place framework.Arguments, args []string, look func(looker, context.Context) error,
) (*framework.Service, error) {
	argv, err := r.argv(node, place, args)
	if err != nil {
		return nil, err
	}
	flags := framework.Arguments(argv[2:])
	ports, err := fixedPorts(flags)
	if err == nil && node.Shared {
		err = r.aloneOnHost(flags)
	}
	if err == nil && r.Ports > 0 {
		ports = append(ports, workerPorts(r.Ports))
		err = keptFree(r.Ports, node.Host, health.EphemeralPorts("/"), health.ReservedPorts("/"))
	}
	if err != nil {
		return nil, err
	}
	env := daemonEnv(node.Environ, r.settings(node), endpoint.Env)
	self := member{Rank: node.LaunchRank, Host: node.Host, Name: framework.NodeName(node.Attempt, node.LaunchRank), Want: wants(flags)}
	at := looker{gcs: endpoint.Address, token: authToken(env), tempDir: node.TempDir, self: self}
	return &framework.Service{
		Name: name, Argv: argv, Env: env, Ports: ports, Attempts: mostStarts, Expendable: true,
		Warm:  func() []string { return warm(r.program(), env) },
		Order: orderOf(argv, args, r.Ports > 0),
		Death: framework.Death{
			Vital:   []string{"gcs_server", "raylet"}, // ray start checks them once a second
			Explain: func() []string { return logSigns(node.TempDir) },
			Stops:   stops,
		},
		Ready:    func(ctx context.Context) error { return explained(look(at, ctx), node.TempDir) },
		Pace:     pace(node.Size),
		Evidence: r.evidence(node.TempDir),
		Transient: func(exit process.Exit, lines []string) bool {
			return transient(exit, append(slices.Clip(lines), logSigns(node.TempDir)...))
		},
	}, nil
}

// stops reports whether a command line is that of ray stop: the script itself, a Python that runs
// it, or its module.
func stops(argv []string) bool {
	for at := 0; at+1 < min(len(argv), 5); at++ {
		if (filepath.Base(argv[at]) == "ray" || argv[at] == "ray.scripts.scripts") && argv[at+1] == "stop" {
			return true
		}
	}
	return false
}

// wants returns the CPUs and GPUs that Ray offers with these flags.
func wants(flags framework.Arguments) map[string]float64 {
	want := map[string]float64{}
	for flag, resource := range map[string]string{"--num-cpus": "CPU", "--num-gpus": "GPU"} {
		value, _ := flags.Value(flag)
		if amount, err := strconv.ParseFloat(value, 64); err == nil {
			want[resource] = amount
		}
	}
	return want
}

// objectStore returns how many bytes each node keeps in /dev/shm according to the arguments of ray
// start, the larger value of the head and the workers. It is 0 if Ray decides, which uses less if
// less is available.
func (r Cluster) objectStore() (most int64) {
	for _, args := range [][]string{r.HeadArgs, r.WorkerArgs} {
		flags, err := parseFlags(args)
		if err != nil {
			continue // argv reports it
		}
		value, _ := flags.Value(storeFlag)
		if bytes, err := strconv.ParseInt(value, 10, 64); err == nil {
			most = max(most, bytes)
		}
	}
	return most
}
