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
	// settled is how long a result must have been there: its daemons may still be writing logs.
	settled = 10 * time.Minute
	// silent is how long a run without a result must have changed nothing to count as over. A head that is well renames a
	// beat every few peer timeouts; but a job may go on for its --share-timeout while the share refuses it.
	silent = 24 * time.Hour
	// gone begins the name of what is being removed. No reader looks at a name with a dot.
	gone = ".gone-"
	// ownMode is that of a run directory, as signal.Create makes it.
	ownMode = 0o700
	// maxJob bounds a job record in bytes.
	maxJob = 16 << 20
)

// Order is what to remove where.
type Order struct {
	LogDir string // absolute
	Keep   Keep
	DryRun bool   // remove nothing
	Own    string // the name of the run that asks, which stays; empty: none does
	// Lost has runs without a result count as over when nothing has changed in them for a day.
	Lost  bool
	Meter *signal.Meter // counts the calls; nil: nobody does
	// Say hears of each run that is removed, or kept for another reason than that it is new enough.
	Say func(run, what string)
}

// Counts are what came of it.
type Counts struct {
	Removed int // runs, or those that would be
	New     int // kept: they are over, and new enough
	Live    int // kept: they are not over, as far as can be told
	Strange int // kept: they are not as bringupd makes them
}

// past is a run that is over.
type past struct {
	name string
	info fs.FileInfo // of its directory
	over time.Time   // when it ended, by the share's clock
	why  string
}

// pruner goes through one log directory.
type pruner struct {
	Order
	root *os.Root
	now  time.Time // by the share's clock
	Counts
}

// Run removes old runs. What it could not remove it says, and the next one tries again; its error tells why it came to an
// end before it was through. It ends soon after ctx, but for a call into the share that hangs.
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
	for _, run := range p.old(all) {
		if ctx.Err() != nil {
			return p.Counts, context.Cause(ctx)
		}
		p.remove(ctx, run)
	}
	return p.Counts, nil
}

// metered makes a call into the share, and counts it.
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

// begin refuses a directory in which others could plant names, asks the share what time it is, and lists what is there.
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

// clock is the time by the share: that of a file which is made now. No node's clock is compared with it.
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

// judge tells whether what has the name is a run of ours that is over.
func (p *pruner) judge(name string) (run past, over bool) {
	strange := func(why string) (past, bool) {
		p.Strange++
		p.Say(name, "kept: "+why)
		return run, false
	}
	info, err := p.look(p.root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run, false // somebody else was faster
	case err != nil:
		return strange(err.Error())
	case info.Mode().IsRegular():
		return run, false // as Slurm's own output
	case !info.IsDir() || info.Mode().Perm() != ownMode || !isOurs(info):
		return strange("it is no directory of yours with mode 0700, as runs are")
	case name == history:
		return run, false
	}
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

// history is where package signal keeps what nodes have gone through (signal.Past); it has the mode of a run.
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

// ending tells when a run has ended and by what that is known, or why it may be live.
func (p *pruner) ending(dir *os.Root, job signal.Job) (at time.Time, why string, over bool) {
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
	// Each record and each beat is a rename, which changes its directory.
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

// age is a time for people.
func age(d time.Duration) string {
	if d >= 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Minute).String()
}

// old returns the runs that are not to be kept.
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

// remove takes a run out of sight, and then away.
func (p *pruner) remove(ctx context.Context, run past) {
	if p.DryRun {
		p.Removed++
		p.Say(run.name, "would be removed: "+run.why)
		return
	}
	hidden := gone + run.name + "-" + rand.Text()
	// What has the name now may be another run than the one that was judged.
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

// forget removes what tells of a run beside it.
func (p *pruner) forget(name string) {
	if info, err := p.look(p.root, signal.BadNodes); err == nil && info.IsDir() {
		_ = p.do(signal.OpRemove, func() error { return p.root.Remove(path.Join(signal.BadNodes, name)) })
	}
	if target, err := p.root.Readlink(signal.Latest); err == nil && target == name {
		_ = p.do(signal.OpRemove, func() error { return p.root.Remove(signal.Latest) })
	}
}

// finish removes what is out of sight already, also where an earlier prune has left it.
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

// clear removes a directory and all in it. What is in it is removed by its own name, and no link is followed.
func (p *pruner) clear(ctx context.Context, parent *os.Root, name string) error {
	dir, err := metered(p, signal.OpOpen, func() (*os.Root, error) { return parent.OpenRoot(name) })
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
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
