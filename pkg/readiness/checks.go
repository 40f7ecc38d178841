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

// Config is what the checks of a node are made of.
type Config struct {
	check.Config
	Host string
	Rank int // -1 where there is no run
	// Granted is how many GPUs the job has on this node, -1 where nobody tells;
	// GrantedBy is the flag or the variable that does.
	Granted   int
	GrantedBy string
	Environ   []string // that the driver is to have
	Nodes     int      // of the job; 0: not known
	TempDir   string
	// ObjectStore is how many bytes a service is to keep in /dev/shm; 0: not told.
	ObjectStore int64
	// Tasks is how many processes and threads the services need; 0: not told.
	Tasks   uint64
	LogDir  string // to be looked at without a job; empty: a daemon knows its own
	Program string // version of this bringupd
	Root    string // where /dev, /proc and /sys are; empty: /
}

// New returns the checks of this node. The errors are of what the user has told:
// a table of Xids that can't be read, CUDA_VISIBLE_DEVICES.
func New(cfg Config) (*Checks, error) {
	cfg.Root = cmp.Or(cfg.Root, "/")
	c := &Checks{Config: cfg, budget: cfg.Timeout + passive}
	expect, err := fitness.ParseExpected(cfg.Granted, cfg.GrantedBy, cfg.Environ)
	if err != nil && cfg.Policy.Mode != check.ModeOff {
		return nil, err
	}
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
		c.budget += 2 * gpu.ProbeDeadline // the last look may find that a driver hangs: NVML's, or else CUDA's
		if len(gpu.Present(cfg.Root)) > 0 {
			c.parts = append(c.parts, &kmsg.Part{Root: cfg.Root, Judge: judge(table)})
		}
	}
	c.parts = append(c.parts, &check.Host{
		Root: cfg.Root, TempDir: cfg.TempDir, ObjectStore: cfg.ObjectStore, Tasks: cfg.Tasks,
		GPUs: c.gpus != nil && expect.Count != 0, Environ: cfg.Environ, Nodes: cfg.Nodes,
	})
	if cfg.LogDir != "" {
		c.parts = append(c.parts, newShare(cfg.LogDir))
		if c.gpus != nil && !cfg.Policy.Off(history.ID) {
			c.past = &past{signal.Place{LogDir: cfg.LogDir, Host: cfg.Host}.Past(), c.gpus}
			c.budget += shareAnswer
		}
	}
	if len(cfg.Active) > 0 {
		c.budget += time.Duration(len(cfg.Active)) * (cfg.ActiveTimeout + activeEnd)
		c.active = c.runActive
	}
	return c, nil
}

// Record is what the last looks have seen, of which that is the report, for somebody who was not there.
func (c *Checks) Record(report check.Report) recording.Recording {
	var seen recording.GPUs
	if c.gpus != nil {
		seen = c.gpus.recorded()
	}
	return recording.New(c.Program, seen, report)
}

const (
	// passive is how long the looks may take that wait for nothing.
	passive = 10 * time.Second
	// activeEnd is how long it may take to end an active check that hangs.
	activeEnd = 5 * time.Second
)

// cuda asks CUDA's driver as a program of the job would; nil where nobody minds what it says.
func (cfg Config) cuda() func(context.Context) (cuda.Facts, error) {
	if !slices.ContainsFunc(cuda.IDs(), func(id string) bool { return !cfg.Policy.Off(id) }) {
		return nil
	}
	return gpu.Child{Library: cfg.NVML, Env: cfg.Environ}.CUDA
}

// mostTable bounds the size in bytes of a site's table of Xids.
const mostTable = 1 << 20

// xids is the table that is built in, and what a site has changed of it.
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

// judge is what the table says of an Xid that the kernel's log has.
func judge(table gpu.XidTable) func(xid int, severity string) (meaning, action string, bad bool) {
	return func(xid int, severity string) (string, string, bool) {
		judged := table.Judge(gpu.Event{Kind: gpu.KindXid, Xid: xid, Severity: severity})
		return judged.Meaning, judged.Action, judged.Effect == gpu.EffectFatal
	}
}

var errChecked = errors.New("the active checks are over")

// runActive runs a site's own commands, with a guard of their own.
func (c *Checks) runActive(ctx context.Context, fit bool) []check.Finding {
	super, err := process.NewSupervisor(roles.JobVariables())
	if err != nil {
		return []check.Finding{{ID: "active", Verdict: check.Unknown, Observed: err.Error()}}
	}
	defer func() {
		ending, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), activeEnd, errChecked)
		defer cancel()
		_ = super.Close(ending) // its commands have ended, or have been told of
	}()
	return check.Active{Starter: super, Config: c.Config.Config, Env: c.Environ}.Run(ctx, fit)
}

// IDs are those of all checks that there are, in order: the built-in ones and those of a site's own commands.
func IDs(active []string) []string {
	ids := slices.Concat(fitness.IDs(), cuda.IDs(), check.IDs(active), []string{kmsg.ID, history.ID})
	slices.Sort(ids)
	return slices.Compact(ids)
}
