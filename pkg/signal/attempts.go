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

// Begun is what one look shows of the newest attempt of a launch.
type Begun struct {
	*Dir        // nil where there is none
	Attempt int // 0 is the first; -1 where there is none
	// Over says that its result is there.
	Over bool
	// Control and Nodes are the names there, in order. Of an attempt that is over they
	// are not looked for.
	Control, Nodes []string
}

// Attempts are those of a launch, newest first, as one look at the log directory shows
// them. place.Run is what the first one is called, to which later ones add "-a" and
// their number.
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

// attemptOf tells by a name whether it may be an attempt's of the launch, and which.
func (p Place) attemptOf(name string) (int, bool) {
	rest, is := strings.CutPrefix(name, p.Run)
	rest, _, _ = strings.Cut(rest, "+") // see Create; the run's own name may contain one, too
	if rest == "" {
		return 0, is
	}
	digits, found := strings.CutPrefix(rest, "-a")
	attempt, err := strconv.Atoi(digits)
	return attempt, is && found && err == nil && attempt > 0 && digits == strconv.Itoa(attempt)
}

// Newest is the newest attempt of a launch, as Attempts has it.
func (p Place) Newest(ctx context.Context) (Begun, error) {
	p.Access = p.ready()
	all, err := p.Attempts(ctx)
	if err != nil {
		return Begun{}, err
	}
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

// owns opens an attempt, and tells whether it is one of this launch.
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

// Results are those of a launch's attempts before one, oldest first; what can't be read
// is left out.
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

// LastResult reads how the newest attempt has ended of the launch whose first one is called
// place.Run, whoever started it.
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

// Result reads how an attempt has ended; the error is errAbsent's where it has not.
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

// Twin returns a *TwinError if the daemon that has joined as this node runs on this host and is not this
// process. A listing must have shown its record; one that cannot be read names no daemon.
func (d *Dir) Twin(ctx context.Context) error {
	var joined JoinedRecord
	if err := d.Read(ctx, Nodes, d.NodeName(d.rank, Joined), &joined); err != nil {
		return nil
	}
	return d.twin(joined.Header, joined.PID)
}

// twin returns a *TwinError if the process that has written a record runs on this host and is not this one.
func (d *Dir) twin(by Header, pid int) error {
	if by.Host != d.host || !process.RunsProgram(pid, by.At) {
		return nil
	}
	return &TwinError{Run: d.run, Host: d.host, Rank: by.Rank, PID: pid}
}
