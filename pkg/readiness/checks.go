package readiness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/files"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/gpu/cuda"
	"github.com/bringupd/bringupd/pkg/gpu/fitness"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/history"
	"github.com/bringupd/bringupd/pkg/kmsg"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/recording"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Config defines the checks of a node.
type Config struct {
	check.Config
	Host string
	Rank int // -1 outside of a run
	// Granted is the number of GPUs that the job has on this node, or -1 if unknown. GrantedBy is the
	// flag or the variable that says so.
	Granted   int
	GrantedBy string
	Environ   []string // environment of the driver
	Nodes     int      // number of nodes of the job; 0: unknown
	TempDir   string
	// ObjectStore is the number of bytes that a service will keep in /dev/shm; 0: unknown.
	ObjectStore int64
	// Tasks is the number of processes and threads that the services need; 0: unknown.
	Tasks   uint64
	LogDir  string // log directory to check outside of a job; empty in a daemon, which checks its own
	Program string // version of this program
	Root    string // directory that contains /dev, /proc and /sys; empty: /
}

// New returns the checks of this node. It returns an error if the user's settings are wrong: if the
// table of Xids cannot be read or CUDA_VISIBLE_DEVICES is malformed.
func New(cfg Config) (*Checks, error) {
	cfg.Root = cmp.Or(cfg.Root, "/")
	c := &Checks{Config: cfg, budget: cfg.Timeout + passive}
	expect, err := fitness.ParseExpected(cfg.Granted, cfg.GrantedBy, cfg.Environ)
	if err != nil && cfg.Policy.Mode != check.ModeOff {
		return nil, err
	}
	// GPUs: the checks by NVML and CUDA, and the check of the kernel log.
	if cfg.Policy.Mode != check.ModeOff {
		table, err := xids(cfg.XidPolicy)
		if err != nil {
			return nil, err
		}
		expect.Mode = cfg.Policy.Mode
		c.gpus = &GPUs{
			Driver: gpu.Child{Library: cfg.NVML}.Session(), CUDA: cfg.cuda(), Expect: expect, Named: cfg.NVML != "", Root: cfg.Root, Table: table,
		}
		c.parts = append(c.parts, c.gpus)
		c.budget += 2 * gpu.ProbeDeadline // the last round may wait for NVML's driver, and then for CUDA's
		if len(gpu.Present(cfg.Root)) > 0 {
			c.parts = append(c.parts, &kmsg.Part{Root: cfg.Root, Judge: judge(table)})
		}
	}
	// The host itself.
	c.parts = append(c.parts, &check.Host{
		Root: cfg.Root, TempDir: cfg.TempDir, ObjectStore: cfg.ObjectStore, Tasks: cfg.Tasks,
		GPUs: c.gpus != nil && expect.Count != 0, Environ: cfg.Environ, Nodes: cfg.Nodes,
	})
	// The shared file system, and the history that earlier runs have stored there.
	if cfg.LogDir != "" {
		c.parts = append(c.parts, newShare(cfg.LogDir))
		if c.gpus != nil && !cfg.Policy.Off(history.ID) {
			c.past = &past{signal.Place{LogDir: cfg.LogDir, Host: cfg.Host}.Past(), c.gpus}
			c.budget += shareAnswer
		}
	}
	// The site's own commands, which run last.
	if len(cfg.Active) > 0 {
		c.budget += time.Duration(len(cfg.Active)) * (cfg.ActiveTimeout + activeEnd)
		c.active = c.runActive
	}
	return c, nil
}

// Record returns a recording of the last results for a bug report. report must be the report of the
// same results.
func (c *Checks) Record(report check.Report) recording.Recording {
	var seen recording.GPUs
	if c.gpus != nil {
		seen = c.gpus.recorded()
	}
	return recording.New(c.Program, seen, report)
}

const (
	// passive is the maximum duration of checks that wait for nothing.
	passive = 10 * time.Second
	// activeEnd is the maximum time for killing an active check that hangs.
	activeEnd = 5 * time.Second
)

// cuda returns the function that queries the CUDA driver in the environment of the job's programs.
// It returns nil if the policy turns off all checks that use the result.
func (cfg Config) cuda() func(context.Context) (cuda.Facts, error) {
	if !slices.ContainsFunc(cuda.IDs(), func(id string) bool { return !cfg.Policy.Off(id) }) {
		return nil
	}
	return gpu.Child{Library: cfg.NVML, Env: cfg.Environ}.CUDA
}

// mostTable is the maximum size of a site's table of Xids, in bytes.
const mostTable = 1 << 20

// xids returns the built-in table of Xids, merged with the site's table at path. path may be empty.
func xids(path string) (gpu.XidTable, error) {
	table := gpu.Xids()
	if path == "" {
		return table, nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), passive, health.ErrDeadline)
	defer cancel()
	data, err := files.Read(ctx, path, mostTable)
	if err != nil {
		return table, fmt.Errorf("cannot read the table of Xids: %w", err)
	}
	table, err = table.Overlay(data)
	if err != nil {
		return table, fmt.Errorf("cannot use the table of Xids %s: %w", path, err)
	}
	return table, nil
}

// judge returns a function that looks up an Xid of the kernel log in the table. bad reports whether
// the Xid is fatal.
func judge(table gpu.XidTable) func(xid int, severity string) (meaning, action string, bad bool) {
	return func(xid int, severity string) (string, string, bool) {
		judged := table.Judge(gpu.Event{Kind: gpu.KindXid, Xid: xid, Severity: severity})
		return judged.Meaning, judged.Action, judged.Effect == gpu.EffectFatal
	}
}

var errChecked = errors.New("the active checks are over")

// runActive runs the site's own commands with a supervisor of their own.
func (c *Checks) runActive(ctx context.Context, fit bool) []check.Finding {
	super, err := process.NewSupervisor(roles.JobVariables())
	if err != nil {
		return []check.Finding{{ID: "active", Verdict: check.Unknown, Observed: err.Error()}}
	}
	defer func() {
		ending, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), activeEnd, errChecked)
		defer cancel()
		_ = super.Close(ending) // its commands have ended or have been reported
	}()
	return check.Active{Starter: super, Config: c.Config.Config, Env: c.Environ}.Run(ctx, fit)
}

// IDs returns the sorted ids of all checks: the built-in ones and those of the site's own commands.
func IDs(active []string) []string {
	ids := slices.Concat(fitness.IDs(), cuda.IDs(), check.IDs(active), []string{kmsg.ID, history.ID})
	slices.Sort(ids)
	return slices.Compact(ids)
}
