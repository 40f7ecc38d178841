// Package trial asks, as a rank, its server of PMI-1 for all that an MPI would, and tells what it was told and how long it took.
package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1/client"
)

// Trial is what is to be tried. All ranks must try the same.
type Trial struct {
	Put, Fence   bool // without any of these all but a spawn and an abort is tried
	Spawn, Abort bool
	Timeout      time.Duration // for all of it
	Getenv       func(name string) string
	Program      string // that does the same by "pmi test", for spawns
}

const (
	// fences are how many are timed.
	fences = 5
	// mostRead is how many other ranks' values a rank gets: in a large world, all of them by all would take minutes.
	mostRead = 64
	// AbortCode is by what the last rank aborts.
	AbortCode = 42
)

var errLate = errors.New("the server of PMI-1 has not answered in time")

// attempt is a trial under way.
type attempt struct {
	wanted Trial
	*client.Client
	said []string
}

// Run makes the trial, and prints a line. What kind of failure an error is decides the exit code.
func (t Trial) Run(ctx context.Context, out io.Writer) (health.Kind, error) {
	if !t.Put && !t.Fence && !t.Spawn && !t.Abort {
		t.Put, t.Fence = true, true
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.Timeout, errLate)
	defer cancel()
	a := &attempt{wanted: t}
	var err error
	if a.Client, err = client.Dial(ctx, t.Getenv); err == nil {
		defer a.Close()
		err = a.run(ctx, out)
	}
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, client.ErrNoServer):
		return health.Usage, fmt.Errorf("%w; start it in ranks: bringupd --ranks-per-node=2 -- bringupd pmi test", err)
	case errors.Is(err, errLate):
		return health.Deadline, fmt.Errorf("cannot go on%s: %w, which is %s (--timeout)", a.where(), err, t.Timeout)
	}
	return health.PeerLost, fmt.Errorf("%w%s", err, a.where())
}

// where is who this is, and how far it has come.
func (a *attempt) where() string {
	if a.Client == nil {
		return ""
	}
	return fmt.Sprintf(", as rank %d of %d, after %s", a.Rank, a.Size, strings.Join(append([]string{"the connection"}, a.said...), ", "))
}

// run makes it, step by step.
func (a *attempt) run(ctx context.Context, out io.Writer) error {
	for _, step := range []struct {
		wanted bool
		do     func(context.Context) error
	}{{true, a.begin}, {a.wanted.Put, a.exchange}, {a.wanted.Fence, a.fence}, {a.wanted.Spawn, a.spawn}} {
		if !step.wanted {
			continue
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	spawned := ""
	if a.Spawned {
		spawned = ", spawned"
	}
	if _, err := fmt.Fprintf(out, "rank %d of %d%s: %s\n", a.Rank, a.Size, spawned, strings.Join(a.said, ", ")); err != nil {
		return err
	}
	if a.wanted.Abort {
		return a.abort(ctx)
	}
	return a.Finalize(ctx)
}

func (a *attempt) say(format string, args ...any) {
	a.said = append(a.said, fmt.Sprintf(format, args...))
}

// took is a time as people read it, as exactly as it matters.
func took(since time.Time) time.Duration { return time.Since(since).Round(10 * time.Microsecond) }

// begin learns what every MPI asks for first. Who is where not every server tells.
func (a *attempt) begin(ctx context.Context) error {
	began := time.Now()
	if err := a.Init(ctx); err != nil {
		return err
	}
	universe, err := a.Universe(ctx)
	if err != nil {
		return err
	}
	mapping, err := a.Get(ctx, "PMI_process_mapping")
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		mapping = "none"
	}
	if a.Spawned {
		if got, err := a.Get(ctx, preput); err != nil || got != "port" {
			return fmt.Errorf("cannot trust the server of PMI-1: what was put for who is spawned is %q, %v", got, err)
		}
	}
	room := fmt.Sprint(universe)
	if universe < 0 {
		room = "none"
	}
	a.say("universe %s, mapping %s, name %s (%s)", room, mapping, a.Name, took(began))
	return nil
}

func key(rank int) string { return fmt.Sprintf("bringupd-trial-%d", rank) }

// exchange has each rank put a value, and get those of others.
func (a *attempt) exchange(ctx context.Context) error {
	value := func(rank int) string { return fmt.Sprintf("value-of-%d-%s", rank, strings.Repeat("x", 64)) } // as long as an address; Hydra cuts at blanks
	began := time.Now()
	if err := a.Put(ctx, key(a.Rank), value(a.Rank)); err != nil {
		return err
	}
	put := took(began)
	began = time.Now()
	if err := a.Barrier(ctx); err != nil {
		return err
	}
	fence := took(began)
	began = time.Now()
	others := min(a.Size-1, mostRead)
	for n := range others {
		rank := (a.Rank + n + 1) % a.Size
		got, err := a.Get(ctx, key(rank))
		if err != nil {
			return err
		}
		if got != value(rank) {
			return fmt.Errorf("cannot trust the server of PMI-1: what rank %d has put is %q here, not %q", rank, got, value(rank))
		}
	}
	a.say("put %s, fence %s, %d gets %s", put, fence, others, took(began))
	return nil
}

// fence times fences.
func (a *attempt) fence(ctx context.Context) error {
	var times []time.Duration
	for range fences {
		began := time.Now()
		if err := a.Barrier(ctx); err != nil {
			return err
		}
		times = append(times, took(began))
	}
	slices.Sort(times)
	a.say("%d fences %s, slowest %s", fences, times[fences/2], times[fences-1])
	return nil
}

// preput is a key that spawned ranks find, as that of MPI's port, without which Intel's mpiexec spawns none.
const preput = "bringupd-trial-parent"

// spawn has rank 0 spawn this program, which tries to fence. The others wait for it, lest the world be over first.
func (a *attempt) spawn(ctx context.Context) error {
	if a.Rank == 0 && !a.Spawned {
		began := time.Now()
		if err := a.Spawn(ctx, []pmi.Command{{Argv: []string{a.wanted.Program, "pmi", "test", "--fence"}, Ranks: 1}}, map[string]string{preput: "port"}); err != nil {
			return err
		}
		a.say("spawn %s", took(began))
	}
	return a.Barrier(ctx)
}

// abort has the last rank abort, and the others wait for their end.
func (a *attempt) abort(ctx context.Context) error {
	if a.Rank == a.Size-1 {
		if err := a.Abort(AbortCode, "bringupd pmi test --abort"); err != nil {
			return err
		}
	}
	<-ctx.Done() // all ranks are to be ended
	return context.Cause(ctx)
}
