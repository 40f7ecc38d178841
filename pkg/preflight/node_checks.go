package preflight

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// NodeConfig defines the checks of a node.
type NodeConfig struct {
	check.Config
	Host      string
	NodeIndex int // -1 outside of a run
	// GrantedGPUs is the number of GPUs that the job has on this node, or -1 if unknown. GrantedBy is
	// the flag or the variable that says so.
	GrantedGPUs int
	GrantedBy   string
	Environ     []string // environment of the driver
	Nodes       int      // number of nodes of the job; 0: unknown
	TempDir     string
	// ObjectStore is the number of bytes that a service will keep in /dev/shm; 0: unknown.
	ObjectStore int64
	// Tasks is the number of processes and threads that the services need; 0: unknown.
	Tasks   uint64
	LogDir  string         // log directory to check outside of a job; empty in a daemon, which checks its own
	Network *check.Network // nil if the job's programs do not communicate between machines
	Program string         // version of this program
	Root    string         // directory that contains /dev, /proc and /sys; empty: /
}

// NewNodeChecks returns the checks of this node. It returns an error if the user's settings are
// wrong: if CUDA_VISIBLE_DEVICES is malformed.
func NewNodeChecks(cfg NodeConfig) (*NodeChecks, error) {
	cfg.Root = cmp.Or(cfg.Root, "/")
	c := &NodeChecks{NodeConfig: cfg, maxDuration: cfg.Timeout + passiveTimeout}
	expect, err := fitness.ParseExpectation(cfg.GrantedGPUs, cfg.GrantedBy, cfg.Environ)
	if err != nil && cfg.Policy.Mode != check.ModeOff {
		return nil, err
	}
	if cfg.Policy.Mode != check.ModeOff {
		expect.Mode = cfg.Policy.Mode
		c.gpus = &GPUs{
			Prober: gpu.Child{Env: cfg.Environ}.NewSession(), CUDA: cfg.cudaProber(), Expect: expect,
			LibraryNamed: gpu.HasLibrary(cfg.Environ), Root: cfg.Root,
		}
		c.nodeChecks = append(c.nodeChecks, c.gpus)
		// the last round may wait for NVML's driver, and then for CUDA's
		c.maxDuration += 2 * gpu.DefaultProbeTimeout
	}
	c.nodeChecks = append(c.nodeChecks, &check.Host{
		Root: cfg.Root, TempDir: cfg.TempDir, ObjectStore: cfg.ObjectStore, Tasks: cfg.Tasks,
		GPUs: c.gpus != nil && expect.Count != 0, IgnoresGPUs: c.gpus == nil,
		Environ: cfg.Environ, Nodes: cfg.Nodes, Network: cfg.Network,
	})
	if cfg.LogDir != "" {
		c.nodeChecks = append(c.nodeChecks, shareCheck{cfg.LogDir, shareTimeout, readShareFacts})
	}
	// The site's own commands, which run last.
	if len(cfg.ActiveCommands) > 0 {
		c.maxDuration += time.Duration(len(cfg.ActiveCommands)) * (cfg.ActiveTimeout + activeStopTimeout)
		c.activeChecks = c.runActiveChecks
	}
	return c, nil
}

const (
	// passiveTimeout is the maximum duration of checks that wait for nothing.
	passiveTimeout = 10 * time.Second
	// activeStopTimeout is the maximum time for killing an active check that hangs.
	activeStopTimeout = 5 * time.Second
)

// cudaProber returns the function that queries the CUDA driver in the environment of the job's
// programs. It returns nil if the policy turns off all checks that use the result.
func (cfg NodeConfig) cudaProber() func(context.Context) (gpu.CUDAFacts, error) {
	if !slices.ContainsFunc(fitness.CUDACheckIDs(), func(id string) bool { return !cfg.Policy.IsOff(id) }) {
		return nil
	}
	return gpu.Child{Env: cfg.Environ}.ProbeCUDA
}

var errActiveDone = errors.New("timed out while stopping the active checks")

// runActiveChecks runs the site's own commands with a supervisor of their own.
func (c *NodeChecks) runActiveChecks(ctx context.Context, fit bool) []check.Finding {
	super, err := process.NewSupervisor(launcher.JobVariables())
	if err != nil {
		return []check.Finding{{ID: "active", Verdict: check.Unknown, Observed: err.Error()}}
	}
	defer func() {
		ending, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), activeStopTimeout, errActiveDone)
		defer cancel()
		_ = super.Close(ending) // its commands have ended or have been reported
	}()
	active := check.ActiveChecks{Starter: super, Config: c.Config,
		Env: envlist.With(c.Environ, launcher.InheritedVariables(c.Environ, launcher.ChildCommand))}
	return active.Run(ctx, fit)
}

// ListNodeCheckIDs returns the sorted ids of all checks of a node: the built-in ones and those of
// the site's own commands.
func ListNodeCheckIDs(active []string) []string {
	ids := slices.Concat(fitness.ListIDs(), fitness.CUDACheckIDs(), check.ListIDs(active))
	slices.Sort(ids)
	return slices.Compact(ids)
}
