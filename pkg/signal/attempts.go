package signal

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// AttemptInfo is the newest attempt of a launch, as one listing shows it.
type AttemptInfo struct {
	*Dir        // nil if there is none
	Attempt int // 0 is the first; -1 if there is none
	// HasResult reports that its result is published.
	HasResult bool
	// ControlNames and NodeNames are the sorted names there. They are not listed for an attempt that is
	// over.
	ControlNames, NodeNames []string
}

// listAttempts returns the attempts of a launch, newest first, from one listing of the log directory.
func (p Location) listAttempts(ctx context.Context) (found []AttemptInfo, err error) {
	names, err := p.listVerified(ctx)
	for _, name := range names {
		if attempt, ok := p.parseAttempt(name); ok {
			found = append(found, AttemptInfo{Dir: p.newDir(name), Attempt: attempt})
		}
	}
	slices.SortFunc(found, func(a, b AttemptInfo) int { return cmp.Compare(b.Attempt, a.Attempt) })
	return found, err
}

// parseAttempt reports whether a name can be that of an attempt of the launch, and its number.
func (p Location) parseAttempt(name string) (int, bool) {
	rest, is := strings.CutPrefix(name, p.Run)
	// Create may have added this suffix; the run's own name may also contain a "+"
	rest, _, _ = strings.Cut(rest, "+")
	if rest == "" {
		return 0, is
	}
	digits, found := strings.CutPrefix(rest, "-a")
	attempt, err := strconv.Atoi(digits)
	return attempt, is && found && err == nil && attempt > 0 && digits == strconv.Itoa(attempt)
}

// NewestAttempt returns the newest attempt of a launch. Its Attempt is -1 if there is none. p.Run is the
// name of the first attempt, to which later ones add "-a" and their number. Those of other launches
// are skipped, unless p has no key.
func (p Location) NewestAttempt(ctx context.Context) (AttemptInfo, error) {
	p.Access = p.withDefaults()
	all, err := p.listAttempts(ctx)
	if err != nil {
		return AttemptInfo{}, err
	}
	for _, begun := range all {
		own, err := p.ownsAttempt(ctx, &begun)
		if err != nil {
			return AttemptInfo{}, err
		}
		if !own {
			continue
		}
		names, err := begun.ListNames(ctx, "")
		if err != nil {
			return AttemptInfo{}, err
		}
		// Only an attempt that is not over needs further listings.
		if begun.HasResult = slices.Contains(names, NameResult); begun.HasResult {
			return begun, nil
		}
		if begun.ControlNames, err = begun.ListNames(ctx, ControlDir); err == nil {
			begun.NodeNames, err = begun.ListNames(ctx, NodesDir)
		}
		return begun, err
	}
	return AttemptInfo{Attempt: -1}, nil
}

// ownsAttempt opens an attempt, and reports whether it belongs to this launch: another launch may
// have the same name.
func (p Location) ownsAttempt(ctx context.Context, begun *AttemptInfo) (own bool, err error) {
	var job record.Job
	begun.Dir, job, err = p.openRun(ctx, begun.name)
	switch {
	case err == errOtherAttempt:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot determine which launch the run %s belongs to: %w", begun.name, err)
	default:
		return p.Key == "" || job.Key == p.Key && job.Size == p.Size, nil
	}
}

// PreviousResults returns the results of a launch's attempts before the given one, oldest first.
// Results that cannot be read are left out.
func (p Location) PreviousResults(ctx context.Context, before int) (results []record.Result, err error) {
	p.Access = p.withDefaults()
	all, err := p.listAttempts(ctx)
	for _, begun := range slices.Backward(all) {
		if begun.Attempt >= before {
			continue
		}
		if own, err := p.ownsAttempt(ctx, &begun); err != nil || !own {
			continue
		}
		if result, err := begun.ReadResult(ctx); err == nil {
			results = append(results, result)
		}
	}
	return results, err
}

// ReadResult returns the result of an attempt. The error is errAbsent if there is none.
func (d *Dir) ReadResult(ctx context.Context) (result record.Result, err error) {
	names, err := d.ListNames(ctx, "")
	if err == nil && !slices.Contains(names, NameResult) {
		err = errAbsent
	}
	if err == nil {
		err = d.ReadRecord(ctx, "", NameResult, &result)
	}
	return result, err
}

// CheckDuplicate returns a *DuplicateDaemonError if the daemon that has joined as this node runs on
// this host and is not this process. A listing must have shown its record; a record that cannot be
// read is ignored.
func (d *Dir) CheckDuplicate(ctx context.Context) error {
	var joined record.Joined
	if err := d.ReadRecord(ctx, NodesDir, d.NodeName(d.nodeIndex, record.StateJoined), &joined); err != nil {
		return nil
	}
	return d.duplicateError(joined.Header, joined.PID)
}

// duplicateError returns a *DuplicateDaemonError if the process that has written a record runs on
// this host and is not this one.
func (d *Dir) duplicateError(by record.Header, pid int) error {
	if by.Host != d.host || !process.RunsSameProgram(pid, by.WrittenAt) {
		return nil
	}
	return &DuplicateDaemonError{Run: d.name, Host: d.host, Rank: by.NodeIndex, PID: pid}
}
