package prune

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// settled is the minimum age of a result. Before that, daemons may still be writing logs.
	settled = 10 * time.Minute
	// silent is how long a run without a result must be unchanged to count as over. A healthy head
	// renames a heartbeat file every few peer timeouts, but a job may run for its --share-timeout
	// without access to the file system.
	silent = 24 * time.Hour
	// gone is the prefix of the name of a run that is being removed. Readers ignore names with a
	// leading dot.
	gone = ".gone-"
	// ownMode is the mode of a run directory, as made by signal.Create.
	ownMode = 0o700
	// maxJob is the maximum size of a job record in bytes.
	maxJob = 16 << 20
)

// Order selects a log directory and the runs to remove from it.
type Order struct {
	LogDir string // absolute
	Keep   Keep
	DryRun bool   // remove nothing
	Own    string // name of the calling run, which is kept; empty if there is none
	// Lost makes runs without a result count as over if nothing has changed in them for a day.
	Lost  bool
	Meter *signal.Meter // counts the calls; may be nil
	// Say is called for each run that is removed, or kept for another reason than its age.
	// It must not be nil.
	Say func(run, what string)
}

// Counts are the results of Order.Run.
type Counts struct {
	Removed int // runs, or those that would be removed
	New     int // kept: they are over, and new enough
	Live    int // kept: they may not be over yet
	Strange int // kept: they do not look as bringupd makes them
}

// past is a run that is over.
type past struct {
	name string
	info fs.FileInfo // attributes of its directory
	over time.Time   // when it ended, by the server's clock
	why  string
}

// pruner prunes one log directory.
type pruner struct {
	Order
	root *os.Root
	now  time.Time // present time by the server's clock
	Counts
}

// Run removes old runs. It reports runs that it could not remove, and the next call tries them
// again. Its error is the reason why it stopped early. It ends soon after ctx, except for a file
// system call that hangs.
func (o Order) Run(ctx context.Context) (Counts, error) {
	if o.Meter == nil {
		o.Meter = new(signal.Meter)
	}
	p := &pruner{Order: o}
	var err error
	if p.root, err = metered(p, signal.OpOpen, func() (*os.Root, error) { return os.OpenRoot(o.LogDir) }); err != nil {
		return p.Counts, fmt.Errorf("cannot look for old runs: %v", err)
	}
	defer func() { _ = p.root.Close() }()
	names, err := p.begin()
	if err != nil {
		return p.Counts, fmt.Errorf("cannot look for old runs in %s: %v", o.LogDir, err)
	}
	// Removals that an earlier call has begun are finished, and runs that are over are collected.
	var all []past
	for _, name := range names {
		if ctx.Err() != nil {
			return p.Counts, context.Cause(ctx)
		}
		switch {
		case strings.HasPrefix(name, gone):
			p.finish(ctx, name)
		case name[0] == '.' || name == signal.Latest || name == signal.BadNodes || name == o.Own:
		default:
			if run, over := p.judge(name); over {
				all = append(all, run)
			}
		}
	}
	// Then the runs that are not kept are removed.
	for _, run := range p.old(all) {
		if ctx.Err() != nil {
			return p.Counts, context.Cause(ctx)
		}
		p.remove(ctx, run)
	}
	return p.Counts, nil
}

// metered makes a file system call, and counts it.
func metered[T any](p *pruner, op signal.Op, call func() (T, error)) (T, error) {
	entered, err := p.Meter.Enter(op, p.LogDir)
	if err != nil {
		var none T
		return none, err
	}
	defer p.Meter.Leave(op, p.LogDir, entered)
	return call()
}

func (p *pruner) do(op signal.Op, call func() error) error {
	_, err := metered(p, op, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

func (p *pruner) look(root *os.Root, name string) (fs.FileInfo, error) {
	return metered(p, signal.OpStat, func() (fs.FileInfo, error) { return root.Lstat(name) })
}

// begin refuses a directory in which other users could create names, determines the server's time,
// and lists the directory.
func (p *pruner) begin() ([]string, error) {
	info, err := metered(p, signal.OpStat, func() (fs.FileInfo, error) { return p.root.Stat(".") })
	switch {
	case err != nil:
		return nil, err
	case !isOurs(info) || info.Mode()&0o022 != 0:
		return nil, errors.New("it is not yours alone to write to")
	}
	if p.now, err = p.clock(); err != nil {
		return nil, err
	}
	return p.list(p.root)
}

// clock returns the server's time, from a file that it creates. No node's clock is compared with
// it.
func (p *pruner) clock() (now time.Time, err error) {
	name := ".probe-" + rand.Text()
	file, err := metered(p, signal.OpOpen, func() (*os.File, error) {
		return p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	})
	if err != nil {
		return now, err
	}
	info, err := metered(p, signal.OpStat, file.Stat)
	if err == nil {
		now = info.ModTime()
	}
	return now, errors.Join(err, file.Close(), p.do(signal.OpRemove, func() error { return p.root.Remove(name) }))
}

func (p *pruner) list(root *os.Root) ([]string, error) {
	dir, err := metered(p, signal.OpOpen, func() (*os.File, error) { return root.Open(".") })
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := metered(p, signal.OpList, func() ([]string, error) { return dir.Readdirnames(-1) })
	slices.Sort(names)
	return names, err
}

func isOurs(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// judge reports whether the name is a finished run of this user.
func (p *pruner) judge(name string) (run past, over bool) {
	strange := func(why string) (past, bool) {
		p.Strange++
		p.Say(name, "kept: "+why)
		return run, false
	}
	// Only a directory of this user with the mode of a run directory can be a run.
	info, err := p.look(p.root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run, false // another process was faster
	case err != nil:
		return strange(err.Error())
	case info.Mode().IsRegular():
		return run, false // for example Slurm's own output
	case !info.IsDir() || info.Mode().Perm() != ownMode || !isOurs(info):
		return strange("it is no directory of yours with mode 0700, as runs are")
	case name == history:
		return run, false
	}
	// Everything below is read in the directory that was just inspected, even if it is renamed.
	dir, err := metered(p, signal.OpOpen, func() (*os.Root, error) { return p.root.OpenRoot(name) })
	if err != nil {
		return strange(err.Error())
	}
	defer func() { _ = dir.Close() }()
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(info, opened) {
		return strange("it has changed meanwhile")
	}
	job, err := p.job(dir)
	if err != nil || job.Run != name || job.Nonce == "" {
		return strange("it has no job record of a run of that name")
	}
	run = past{name: name, info: info}
	if run.over, run.why, over = p.ending(dir, job); !over {
		p.Live++
		p.Say(name, "kept: "+run.why)
	}
	return run, over
}

// history is the directory of package signal's device histories (signal.Past); it has the mode of a
// run.
const history = "history"

// job reads the job record of a run.
func (p *pruner) job(dir *os.Root) (job signal.Job, err error) {
	name := path.Join(signal.Control, signal.NameJob)
	if info, err := p.look(dir, name); err != nil || !info.Mode().IsRegular() || info.Size() > maxJob {
		return job, cmp.Or(err, errors.New("no file"))
	}
	file, err := metered(p, signal.OpOpen, func() (*os.File, error) { return dir.Open(name) })
	if err != nil {
		return job, err
	}
	defer func() { _ = file.Close() }()
	data, err := metered(p, signal.OpRead, func() ([]byte, error) { return io.ReadAll(io.LimitReader(file, maxJob)) })
	if err != nil {
		return job, err
	}
	return job, json.Unmarshal(data, &job)
}

// ending returns when a run has ended and the evidence for it, or why it may be live.
func (p *pruner) ending(dir *os.Root, job signal.Job) (at time.Time, why string, over bool) {
	// A run with a result is over when the result is old enough.
	result, err := p.look(dir, signal.NameResult)
	switch {
	case err == nil && p.now.Sub(result.ModTime()) >= settled:
		return result.ModTime(), "its result is " + age(p.now.Sub(result.ModTime())) + " old", true
	case err == nil:
		return at, "it has ended less than 10 minutes ago", false
	case !errors.Is(err, fs.ErrNotExist):
		return at, err.Error(), false
	case !p.Lost:
		return at, "it has no result: it may be under way", false
	}
	// Without a result, the newest change counts. Each record and each heartbeat is a rename, which
	// changes its directory.
	for _, sub := range []string{signal.Control, signal.Nodes} {
		info, err := p.look(dir, sub)
		if err != nil {
			return at, err.Error(), false
		}
		if info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	bound := silent
	if job.Plan != nil {
		bound = max(bound, 10*job.Plan.Rest)
	}
	if quiet := p.now.Sub(at); quiet < bound {
		return at, "it has no result, and something has changed in it " + age(quiet) + " ago", false
	}
	return at, "it has no result, and nothing has changed in it for " + age(p.now.Sub(at)), true
}

// age formats an age in days or minutes.
func age(d time.Duration) string {
	if d >= 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Minute).String()
}

// old returns the runs that are not kept.
func (p *pruner) old(all []past) (old []past) {
	slices.SortFunc(all, func(a, b past) int { return b.over.Compare(a.over) })
	for i, run := range all {
		if p.Keep.Runs > 0 && i >= p.Keep.Runs || p.Keep.Age > 0 && p.now.Sub(run.over) > p.Keep.Age {
			old = append(old, run)
			continue
		}
		p.New++
	}
	return old
}

// remove hides a run, and then removes it.
func (p *pruner) remove(ctx context.Context, run past) {
	if p.DryRun {
		p.Removed++
		p.Say(run.name, "would be removed: "+run.why)
		return
	}
	hidden := gone + run.name + "-" + rand.Text()
	// Another run may have taken the name since judge inspected it.
	info, err := p.look(p.root, run.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, run.info) {
		return
	}
	if err == nil {
		err = p.do(signal.OpRename, func() error { return p.root.Rename(run.name, hidden) })
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // another prune was faster
	case err != nil:
		p.Say(run.name, "kept: "+err.Error())
		return
	}
	p.Removed++
	p.Say(run.name, "removed: "+run.why)
	p.forget(run.name)
	p.finish(ctx, hidden)
}

// forget removes the file and the link in the log directory that refer to a run.
func (p *pruner) forget(name string) {
	if info, err := p.look(p.root, signal.BadNodes); err == nil && info.IsDir() {
		_ = p.do(signal.OpRemove, func() error { return p.root.Remove(path.Join(signal.BadNodes, name)) })
	}
	if target, err := p.root.Readlink(signal.Latest); err == nil && target == name {
		_ = p.do(signal.OpRemove, func() error { return p.root.Remove(signal.Latest) })
	}
}

// finish removes a hidden run, including one that an earlier prune has left.
func (p *pruner) finish(ctx context.Context, name string) {
	if p.DryRun {
		return
	}
	info, err := p.look(p.root, name)
	if err == nil && (!info.IsDir() || !isOurs(info)) {
		err = errors.New("it is no directory of yours")
	}
	if err == nil {
		err = p.clear(ctx, p.root, name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Say(name, "kept for now: "+err.Error())
	}
}

// clear removes a directory and everything in it. It removes each name in the open directory, and
// follows no link.
func (p *pruner) clear(ctx context.Context, parent *os.Root, name string) error {
	dir, err := metered(p, signal.OpOpen, func() (*os.Root, error) { return parent.OpenRoot(name) })
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	// Each name is removed in turn, and the directory itself last.
	names, err := p.list(dir)
	for _, one := range names {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		info, lookErr := p.look(dir, one)
		switch {
		case errors.Is(lookErr, fs.ErrNotExist):
			continue // another prune was faster
		case lookErr != nil:
			return lookErr
		case info.IsDir():
			err = p.clear(ctx, dir, one)
		default:
			err = p.do(signal.OpRemove, func() error { return dir.Remove(one) })
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err == nil {
		err = p.do(signal.OpRemove, func() error { return parent.Remove(name) })
	}
	return err
}
