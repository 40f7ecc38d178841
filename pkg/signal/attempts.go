package signal

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// Begun is the newest attempt of a launch, as one listing shows it.
type Begun struct {
	*Dir        // nil if there is none
	Attempt int // 0 is the first; -1 if there is none
	// Over reports that its result is published.
	Over bool
	// Control and Nodes are the sorted names there. They are not listed for an attempt that is over.
	Control, Nodes []string
}

// Attempts returns the attempts of a launch, newest first, from one listing of the log directory.
// place.Run is the name of the first one, to which later ones add "-a" and their number.
func (p Place) Attempts(ctx context.Context) ([]Begun, error) {
	p.Access = p.ready()
	var names []string
	err := p.again(func() (err error) {
		names, err = p.look(ctx, false)
		return err
	})
	if err != nil {
		return nil, err
	}
	var found []Begun
	for _, name := range names {
		if attempt, ok := p.attemptOf(name); ok {
			d := p.dir(name)
			found = append(found, Begun{Dir: d, Attempt: attempt})
		}
	}
	slices.SortFunc(found, func(a, b Begun) int { return cmp.Compare(b.Attempt, a.Attempt) })
	return found, nil
}

// attemptOf reports whether a name can be that of an attempt of the launch, and its number.
func (p Place) attemptOf(name string) (int, bool) {
	rest, is := strings.CutPrefix(name, p.Run)
	rest, _, _ = strings.Cut(rest, "+") // Create may have added this suffix; the run's own name may also contain a "+"
	if rest == "" {
		return 0, is
	}
	digits, found := strings.CutPrefix(rest, "-a")
	attempt, err := strconv.Atoi(digits)
	return attempt, is && found && err == nil && attempt > 0 && digits == strconv.Itoa(attempt)
}

// Newest returns the newest attempt of a launch. Its Attempt is -1 if there is none.
func (p Place) Newest(ctx context.Context) (Begun, error) {
	p.Access = p.ready()
	all, err := p.Attempts(ctx)
	if err != nil {
		return Begun{}, err
	}
	// The newest attempt of this launch is returned; those of other launches are skipped.
	for _, begun := range all {
		own, err := p.owns(ctx, &begun)
		if err != nil {
			return Begun{}, err
		}
		if !own {
			continue
		}
		names, err := begun.Names(ctx, "")
		if err != nil {
			return Begun{}, err
		}
		// Only an attempt that is not over needs further listings.
		if begun.Over = slices.Contains(names, NameResult); begun.Over {
			return begun, nil
		}
		if begun.Control, err = begun.Names(ctx, Control); err == nil {
			begun.Nodes, err = begun.Names(ctx, Nodes)
		}
		return begun, err
	}
	return Begun{Attempt: -1}, nil
}

// owns opens an attempt, and reports whether it belongs to this launch: another launch may have the
// same name.
func (p Place) owns(ctx context.Context, begun *Begun) (bool, error) {
	d, job, err := p.open(ctx, begun.run)
	switch {
	case err == errOther:
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot tell whose run %s is: %w", begun.run, err)
	}
	begun.Dir = d
	return job.Key == p.Key && job.Size == p.Size, nil
}

// Results returns the results of a launch's attempts before the given one, oldest first. Results
// that cannot be read are left out.
func (p Place) Results(ctx context.Context, before int) ([]Result, error) {
	p.Access = p.ready()
	all, err := p.Attempts(ctx)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, begun := range slices.Backward(all) {
		if begun.Attempt >= before {
			continue
		}
		if own, err := p.owns(ctx, &begun); err != nil || !own {
			continue
		}
		if result, err := begun.Result(ctx); err == nil {
			results = append(results, result)
		}
	}
	return results, nil
}

// LastResult returns the result of the newest attempt of the launch whose first one is called
// place.Run, even if another launch has the same name.
func (p Place) LastResult(ctx context.Context) (result Result, err error) {
	p.Access = p.ready()
	all, err := p.Attempts(ctx)
	if err != nil || len(all) == 0 {
		return result, cmp.Or(err, errAbsent)
	}
	d, _, err := p.open(ctx, all[0].run)
	if err != nil {
		return result, err
	}
	return d.Result(ctx)
}

// Result returns the result of an attempt. The error is errAbsent if there is none.
func (d *Dir) Result(ctx context.Context) (result Result, err error) {
	names, err := d.Names(ctx, "")
	if err == nil && !slices.Contains(names, NameResult) {
		err = errAbsent
	}
	if err == nil {
		err = d.Read(ctx, "", NameResult, &result)
	}
	return result, err
}

// Twin returns a *TwinError if the daemon that has joined as this node runs on this host and is not
// this process. A listing must have shown its record; a record that cannot be read is ignored.
func (d *Dir) Twin(ctx context.Context) error {
	var joined JoinedRecord
	if err := d.Read(ctx, Nodes, d.NodeName(d.rank, Joined), &joined); err != nil {
		return nil
	}
	return d.twin(joined.Header, joined.PID)
}

// twin returns a *TwinError if the process that has written a record runs on this host and is not
// this one.
func (d *Dir) twin(by Header, pid int) error {
	if by.Host != d.host || !process.RunsProgram(pid, by.At) {
		return nil
	}
	return &TwinError{Run: d.run, Host: d.host, Rank: by.Rank, PID: pid}
}
