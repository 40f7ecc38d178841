// Package prune removes old runs from a log directory: only those that belong to this user, look
// exactly as bringupd makes them, and are over.
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
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// minResultAge is the minimum age of a result. Before that, daemons may still be writing logs.
	minResultAge = 10 * time.Minute
	// minUnchangedTime is how long a run without a result must be unchanged to count as over. A
	// healthy head renames a heartbeat file every few peer timeouts, but a job runs for some
	// time without access to the file system.
	minUnchangedTime = 24 * time.Hour
	// hiddenPrefix is the prefix of the name of a run that is being removed. Readers ignore names with
	// a leading dot.
	hiddenPrefix = ".gone-"
	// historyDir is a directory of earlier releases, which has the mode of a run.
	historyDir = "history"
	// runDirMode is the mode of a run directory, as made by signal.CreateRun.
	runDirMode = 0o700
	// maxJobSize is the maximum size of a job record in bytes.
	maxJobSize = 16 << 20

	day = 24 * time.Hour
)

// ParseAge parses an age of at least a nanosecond: "30d", or "36h" as for [time.ParseDuration].
func ParseAge(text string) (time.Duration, error) {
	age, err := time.ParseDuration(text)
	if digits, isDays := strings.CutSuffix(text, "d"); isDays {
		var days int
		if days, err = strconv.Atoi(digits); days > int(math.MaxInt64/day) {
			days = 0
		}
		age = time.Duration(days) * day
	}
	if err != nil || age <= 0 {
		return 0, errors.New("give an age with its unit: 30d or 36h")
	}
	return age, nil
}

// Options selects a log directory and the runs to remove from it.
type Options struct {
	LogDir string        // absolute
	MaxAge time.Duration // runs that ended less than this time ago are kept
	DryRun bool          // remove nothing
	// Report is called for each run that is removed, or kept for another reason than its age.
	// It must not be nil.
	Report func(run, what string)
}

// PruneCounts are the results of [Options.PruneRuns].
type PruneCounts struct {
	Removed      int // runs, or those that would be removed
	Recent       int // kept: they are over, and new enough
	Live         int // kept: they may not be over yet
	Unrecognized int // kept: they do not look as bringupd makes them
}

type finishedRun struct {
	name     string
	info     fs.FileInfo // attributes of its directory
	endedAt  time.Time   // when it ended, by the server's clock
	evidence string
}

type pruner struct {
	Options
	root      *os.Root
	serverNow time.Time // present time by the server's clock
	PruneCounts
}

// PruneRuns removes old runs. It reports runs that it could not remove, and the next call tries
// them again. Its error is the reason why it stopped early. It ends soon after ctx, except for a
// file system call that hangs.
func (o Options) PruneRuns(ctx context.Context) (PruneCounts, error) {
	p := &pruner{Options: o}
	var err error
	if p.root, err = os.OpenRoot(o.LogDir); err != nil {
		return p.PruneCounts, fmt.Errorf("cannot look for old runs: %v", err)
	}
	defer func() { _ = p.root.Close() }()
	names, err := p.prepareLogDir()
	if err != nil {
		return p.PruneCounts, fmt.Errorf("cannot look for old runs in %s: %v", o.LogDir, err)
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return p.PruneCounts, context.Cause(ctx)
		}
		switch {
		case strings.HasPrefix(name, hiddenPrefix):
			p.removeHidden(ctx, name) // an earlier call has begun its removal
		case name[0] == '.' || name == signal.LatestLink || name == signal.BadNodesDir:
		default:
			p.pruneName(ctx, name)
		}
	}
	return p.PruneCounts, nil
}

// pruneName removes the run of that name if it is one, is over and is old enough.
func (p *pruner) pruneName(ctx context.Context, name string) {
	run, over := p.inspectRun(name)
	switch {
	case !over:
	case p.serverNow.Sub(run.endedAt) <= p.MaxAge:
		p.Recent++
	default:
		p.removeRun(ctx, run)
	}
}

// prepareLogDir refuses a directory in which other users could create names, determines the
// server's time, and lists the directory.
func (p *pruner) prepareLogDir() ([]string, error) {
	info, err := p.root.Stat(".")
	switch {
	case err != nil:
		return nil, err
	case !hasOwnUser(info) || info.Mode()&0o022 != 0:
		return nil, errors.New("it is not yours, or other users can write to it")
	}
	if p.serverNow, err = p.serverTime(); err != nil {
		return nil, err
	}
	dir, err := p.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

// serverTime returns the server's time, from a file that it creates. No node's clock is compared
// with it.
func (p *pruner) serverTime() (now time.Time, err error) {
	name := ".probe-" + rand.Text()
	file, err := p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return now, err
	}
	info, err := file.Stat()
	if err == nil {
		now = info.ModTime()
	}
	return now, errors.Join(err, file.Close(), p.root.Remove(name))
}

func hasOwnUser(info fs.FileInfo) bool { return files.OwnerOf(info) == os.Geteuid() }

func (p *pruner) inspectRun(name string) (run finishedRun, over bool) {
	refuse := func(why string) (finishedRun, bool) {
		p.Unrecognized++
		p.Report(name, "kept: "+why)
		return run, false
	}
	// Only a directory of this user with the mode of a run directory can be a run.
	info, err := p.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run, false // another process was faster
	case err != nil:
		return refuse(err.Error())
	case info.Mode().IsRegular():
		return run, false // for example Slurm's own output
	case !info.IsDir() || info.Mode().Perm() != runDirMode || !hasOwnUser(info):
		return refuse("it is not a directory of yours with mode 0700, as run directories are")
	case name == historyDir:
		return run, false
	}
	// Everything below is read in the directory that was just inspected, even if it is renamed.
	dir, err := p.root.OpenRoot(name)
	if err != nil {
		return refuse(err.Error())
	}
	defer func() { _ = dir.Close() }()
	if opened, err := dir.Stat("."); err != nil || !os.SameFile(info, opened) {
		return refuse("it has changed in the meantime")
	}
	job, err := readJob(dir)
	if err != nil || job.Run != name || job.Nonce == "" {
		return refuse("it has no job record of a run of that name")
	}
	run = finishedRun{name: name, info: info}
	if run.endedAt, run.evidence, over = p.findEnd(dir, job); !over {
		if run.endedAt.IsZero() {
			p.Live++
		} else {
			p.Recent++
		}
		p.Report(name, "kept: "+run.evidence)
	}
	return run, over
}

func readJob(dir *os.Root) (job record.Job, err error) {
	name := path.Join(signal.ControlDir, signal.NameJob)
	if info, err := dir.Lstat(name); err != nil || !info.Mode().IsRegular() || info.Size() > maxJobSize {
		return job, cmp.Or(err, errors.New("it is not a regular file"))
	}
	file, err := dir.Open(name)
	if err != nil {
		return job, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxJobSize))
	if err != nil {
		return job, err
	}
	return job, json.Unmarshal(data, &job)
}

// findEnd returns when a run has ended and the evidence for it, or why it may be live. Without a
// result, the time is zero for a run that may be live.
func (p *pruner) findEnd(dir *os.Root, job record.Job) (at time.Time, why string, over bool) {
	// A run with a result is over when the result is old enough.
	result, err := dir.Lstat(signal.NameResult)
	switch {
	case err == nil:
		age := p.serverNow.Sub(result.ModTime())
		if age < minResultAge {
			return result.ModTime(), "it has ended less than 10 minutes ago", false
		}
		return result.ModTime(), "its result is " + formatAge(age) + " old", true
	case !errors.Is(err, fs.ErrNotExist):
		return at, err.Error(), false
	case job.Version != record.FormatVersion: // the longest pause between its heartbeats is unknown
		const format = "it has no result, and format version %d: it may still be running"
		return at, fmt.Sprintf(format, job.Version), false
	}
	// Without a result, the newest change counts. Each record and each heartbeat is a rename, which
	// changes its directory.
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		info, err := dir.Lstat(sub)
		if err != nil {
			return time.Time{}, err.Error(), false
		}
		if info.ModTime().After(at) {
			at = info.ModTime()
		}
	}
	bound := minUnchangedTime
	if job.Plan != nil {
		bound = max(bound, 10*job.Plan.MaxHeartbeatInterval)
	}
	quiet := p.serverNow.Sub(at)
	if quiet < bound {
		return time.Time{}, "it has no result, and something has changed in it " + formatAge(quiet) + " ago", false
	}
	return at, "it has no result, and nothing has changed in it for " + formatAge(quiet), true
}

func formatAge(d time.Duration) string {
	if d >= 2*day {
		return fmt.Sprintf("%d days", d/day)
	}
	return d.Round(time.Minute).String()
}

func (p *pruner) removeRun(ctx context.Context, run finishedRun) {
	if p.DryRun {
		p.Removed++
		p.Report(run.name, "would be removed: "+run.evidence)
		return
	}
	hidden := hiddenPrefix + run.name + "-" + rand.Text()
	// Another run may have taken the name since inspectRun.
	info, err := p.root.Lstat(run.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, run.info) {
		return
	}
	if err == nil {
		err = p.root.Rename(run.name, hidden)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return // another prune was faster
	case err != nil:
		p.Report(run.name, "kept: "+err.Error())
		return
	}
	p.Removed++
	p.Report(run.name, "removed: "+run.evidence)
	// Remove the file and the link in the log directory that refer to the run.
	if info, err := p.root.Lstat(signal.BadNodesDir); err == nil && info.IsDir() {
		_ = p.root.Remove(path.Join(signal.BadNodesDir, run.name))
	}
	if target, err := p.root.Readlink(signal.LatestLink); err == nil && target == run.name {
		_ = p.root.Remove(signal.LatestLink)
	}
	p.removeHidden(ctx, hidden)
}

// removeHidden removes a hidden run, including one that an earlier prune has left.
func (p *pruner) removeHidden(ctx context.Context, name string) {
	if p.DryRun {
		return
	}
	info, err := p.root.Lstat(name)
	if err == nil && (!info.IsDir() || !hasOwnUser(info)) {
		err = errors.New("it is not a directory of yours")
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil { // follows no link, and ignores names that another prune removes
		_, err = ctxutil.CallBounded(ctx, 0, func() (struct{}, error) {
			return struct{}{}, p.root.RemoveAll(name)
		})
	}
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Report(name, "kept for now: "+err.Error())
	}
}
