package ray

import (
	"cmp"
	"context"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

const maxStarts = 3

// Cluster runs a Ray cluster: its head on node 0, which is also a node of the cluster, and a worker
// on every other node.
type Cluster struct {
	Port int    // of the head's GCS; 0: a free one
	Auth string // accepted clients: see [framework.Options]
	// which of Ray's own logs are kept: failure, end or a duration; empty: failure
	Logs          string
	DedicatedHead bool     // the head's node offers no GPUs
	HeadArgs      []string // additional arguments for the head's ray start
	WorkerArgs    []string // the same for the workers'
}

var (
	_ framework.Framework     = Cluster{}
	_ framework.MemberLister  = Cluster{}
	_ framework.WithTraits    = Cluster{}
	_ framework.Authenticator = Cluster{}
	_ framework.Factory       = (*Cluster)(nil)
)

// minTasks is the minimum number of processes and threads that a Ray node needs. A head of Ray 2.60
// without dashboard and workers was measured to have 130 on two CPUs, 91 of which are on every
// node. A worker has about 25.
const minTasks = 128

// Traits describes Ray's program, ports, object store and logs. Its nodes do not know their index.
func (r Cluster) Traits() framework.Traits {
	return framework.Traits{
		ReplaceableNodes: true, VersionCommand: []string{programName, "--version"},
		ParseVersion:     framework.FindVersionAfter("ray, version "),
		ObjectStoreBytes: r.objectStoreBytes(), MinTasks: minTasks, MaxTempDir: maxTempDir,
		HeadName: headName, WorkerName: workerName, NoWorkerOnHead: true,
		HeadPort: r.Port, FreePortAdvice: "--framework-port=0 picks a free port", LogsProgram: "Ray's own logs",
		AdviseDriver: r.adviseDriver,
		OwnProcess:   "raylet",
	}
}

// New returns a Ray cluster with default settings, which its flags change.
func New() *Cluster {
	return &Cluster{Logs: logsFailure}
}

// OwnFlags returns the settings for Ray's logs and additional arguments.
func (r *Cluster) OwnFlags() []framework.Flag {
	return []framework.Flag{
		{Name: "ray-logs", AcceptedWords: []string{logsFailure, logsEnd}, Target: &r.Logs,
			Usage: "when to copy Ray's own logs to the run directory: failure (from the nodes " +
				"concerned) or end (of every run)"},
		{Name: "ray-head-args", Placeholder: "ARG", Target: &r.HeadArgs,
			Usage: "extra argument for the head's ray start (repeatable)"},
		{Name: "ray-worker-args", Placeholder: "ARG", Target: &r.WorkerArgs,
			Usage: "extra argument for the workers' ray start (repeatable)"},
	}
}

// ValidateSettings returns an error for arguments that no node could pass to ray start.
func (r *Cluster) ValidateSettings() error {
	for _, of := range []struct {
		args []string
		head bool
	}{{r.HeadArgs, true}, {r.WorkerArgs, false}} {
		extra, err := parseUserFlags(of.args, of.head)
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

// BuildFramework returns the cluster with the present settings.
func (r *Cluster) BuildFramework(o framework.Options) framework.Framework {
	chosen := *r
	chosen.DedicatedHead, chosen.Port, chosen.Auth = o.DedicatedHead, o.HeadPort(6379), o.Auth
	return chosen
}

// Name returns "ray".
func (Cluster) Name() string { return "ray" }

// HasServices returns true: every node runs Ray.
func (Cluster) HasServices() bool { return true }

// HeadService returns the head's ray start, and its address for workers and the driver.
func (r Cluster) HeadService(node framework.Node) (*framework.Service, framework.Endpoint, error) {
	free, err := process.FindFreePorts(2)
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	port, client := cmp.Or(r.Port, free[0]), free[1]
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
	endpoint := framework.Endpoint{Address: address, Env: applicableTunings(node, clusterTunings)}
	endpoint.Env["RAY_ADDRESS"] = address
	if findAuthToken(node.Environ) != "" {
		endpoint.Env["RAY_AUTH_MODE"] = "token"
	}
	service, err := r.newService(headName, node, endpoint, place, r.HeadArgs, readinessCheck.checkHead)
	if err != nil {
		return nil, framework.Endpoint{}, err
	}
	service.ReadyPort = port
	endpoint.Dashboard = dashboardURL(node, service.Argv[2:])
	return service, endpoint, nil
}

// WithHeadPort implements [framework.ClusterBuilder].
func (r Cluster) WithHeadPort(port int) framework.Framework {
	r.Port = port
	return r
}

// WorkerService returns a worker's ray start, or nil on the head, which is a node of the cluster
// itself.
func (r Cluster) WorkerService(node framework.Node, endpoint framework.Endpoint) (*framework.Service, error) {
	if node.TeamIndex == 0 {
		return nil, nil
	}
	return r.newService(workerName, node, endpoint,
		framework.Arguments{"--address=" + endpoint.Address}, r.WorkerArgs, readinessCheck.checkWorker)
}

// CheckMembers returns nil if Ray's node table has every member alive, and no other node.
func (r Cluster) CheckMembers(ctx context.Context, head framework.Node, endpoint framework.Endpoint,
	members []framework.Member) error {
	wanted := make([]expectedNode, len(members))
	for i, m := range members {
		// Each node has verified its own resources.
		wanted[i] = expectedNode{TeamIndex: m.NodeIndex, Host: m.Host,
			Name: framework.NodeName(head.RunName, m.NodeIndex)}
	}
	nodes, err := gcsServer{endpoint.Address, findAuthToken(head.Environ)}.nodeTable(ctx)
	if err != nil {
		return err
	}
	return compareMembers(wanted, nodes)
}

const (
	programName          = "ray"
	headName, workerName = "ray head", "ray worker"
)

func (r Cluster) isDedicatedHead(node framework.Node) bool {
	return r.DedicatedHead && node.TeamIndex == 0
}

// nodeResources returns the resources by which programs for NeMo RL's ray.sub identify the cluster
// and its nodes. A dedicated head has none that would place work on it.
func (r Cluster) nodeResources(node framework.Node) map[string]float64 {
	resources := map[string]float64{}
	if launcher.IsSlurmJob(launcher.EnvironmentOf(node.Environ)) {
		resources["slurm_managed_ray_cluster"] = 1
	}
	if r.isDedicatedHead(node) {
		resources["ray_head"] = 1
		return resources
	}
	if node.GPUs > 0 {
		resources["worker_units"] = float64(node.GPUs)
	}
	maps.Copy(resources, topologyResources(node))
	return resources
}

// newService returns the service of a ray start that look proves to be up.
func (r Cluster) newService(
	name string, node framework.Node, endpoint framework.Endpoint, place framework.Arguments,
	args []string, look func(readinessCheck, context.Context) error,
) (*framework.Service, error) {
	argv, err := r.startArgv(node, place, args)
	if err != nil {
		return nil, err
	}
	flags := framework.Arguments(argv[2:])
	ports, err := fixedPorts(flags)
	if err != nil {
		return nil, err
	}
	env := framework.ServiceEnviron(node.Environ, daemonVariables(node), endpoint.Env, staleVariables)
	self := expectedNode{TeamIndex: node.LaunchIndex, Host: node.Host,
		Name: framework.NodeName(node.RunName, node.LaunchIndex), MinResources: offeredResources(flags)}
	at := readinessCheck{gcs: gcsServer{endpoint.Address, findAuthToken(env)}, tempDir: node.TempDir, ownNode: self}
	return &framework.Service{
		Name: name, Argv: argv, Env: env, Ports: ports, MaxStarts: maxStarts, NeedsNoGrace: true,
		WarmCommand: func() []string { return warmCommand(programName, env) },
		WarmInput:   encodeStartOrder(argv, args),
		ExitDetection: framework.ExitDetection{
			VitalProcesses: []string{"gcs_server", "raylet"}, // ray start checks them once a second
			ExplainExit:    func() []string { return failureLines(node.TempDir) },
			IsStopCommand:  isStopCommand,
			IsNoise:        isStateDump,
		},
		CheckReady:       func(ctx context.Context) error { return withLogLines(look(at, ctx), node.TempDir) },
		MaxCheckInterval: readyInterval(node.Size),
		OwnLogs: framework.ServiceLogs{
			Dir:        filepath.Join(node.TempDir, "session_latest", "logs"),
			KeepAlways: r.Logs == logsEnd,
		},
		IsTransient: func(exit process.Exit, lines []string) bool {
			return isTransient(exit, append(slices.Clip(lines), failureLines(node.TempDir)...))
		},
	}, nil
}

// isStopCommand reports whether a command line is that of ray stop: the script itself, a Python
// that runs it, or its module.
func isStopCommand(argv []string) bool {
	for at := 0; at+1 < min(len(argv), 5); at++ {
		if (filepath.Base(argv[at]) == "ray" || argv[at] == "ray.scripts.scripts") && argv[at+1] == "stop" {
			return true
		}
	}
	return false
}

// isStateDump reports whether a line is of the state that a raylet prints once a minute, some 200
// lines, or is empty.
func isStateDump(line string) bool {
	return strings.HasPrefix(line, "[state-dump]") || strings.TrimSpace(line) == ""
}

// offeredResources returns the CPUs and GPUs that Ray offers with these flags.
func offeredResources(flags framework.Arguments) map[string]float64 {
	want := map[string]float64{}
	for flag, resource := range map[string]string{"--num-cpus": "CPU", "--num-gpus": "GPU"} {
		value, _ := flags.LastValue(flag)
		if amount, err := strconv.ParseFloat(value, 64); err == nil {
			want[resource] = amount
		}
	}
	return want
}

// objectStoreBytes returns how many bytes each node keeps in /dev/shm according to the arguments of
// ray start, the larger value of the head and the workers. It is 0 if Ray decides, which uses less
// if less is available.
func (r Cluster) objectStoreBytes() (largest int64) {
	for _, args := range [][]string{r.HeadArgs, r.WorkerArgs} {
		flags, err := parseFlags(args)
		if err != nil {
			continue // argv reports it
		}
		value, _ := flags.LastValue(objectStoreFlag)
		if bytes, err := strconv.ParseInt(value, 10, 64); err == nil {
			largest = max(largest, bytes)
		}
	}
	return largest
}
