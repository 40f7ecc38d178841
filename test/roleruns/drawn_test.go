package roleruns

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestDrawn runs the drawn schedules and compares the outcomes with the predictions.
func TestDrawn(t *testing.T) {
	first, runs := max(*seedFlag, 1), *runsFlag
	if *seedFlag > 0 && !given("runs") {
		runs = 1
	}
	var times latencies
	t.Run("runs", func(t *testing.T) {
		turns := make(chan struct{}, *sideFlag)
		kinds := kindsOf(*kindFlag)
		if len(kinds) == 0 {
			t.Fatalf("no kind of fault has %q in its name: %q", *kindFlag, allKinds)
		}
		for seed := first; seed < first+uint64(runs); seed++ {
			s := draw(seed, kinds)
			first := strings.ReplaceAll(string(kinds[seed%uint64(len(kinds))]), " ", "-")
			t.Run(fmt.Sprintf("%d %s", seed, first), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				one(t, s, &times)
			})
		}
	})
	t.Log(times.summary())
}

// one runs a schedule.
func one(t *testing.T, s schedule, times *latencies) {
	p := predict(s)
	if t.Failed() || testing.Verbose() {
		t.Log(s)
	}
	j := begin(t, s)
	if s.isStoppedEarly {
		j.stop()
	}
	if j.follow(&p, times) && j.awaitEnd() {
		j.wrong = append(j.wrong, judge(s, p, j.observe())...)
	}
	if len(j.wrong) > 0 {
		t.Errorf("%v\n%s\nit said:\n%s", s, strings.Join(j.wrong, "\n"), &j.Said)
	}
}

// follow injects the faults, each when the run is in the state that the model has after the one
// before. It reports whether the run must end now.
func (j *job) follow(p *prediction, times *latencies) bool {
	for i, m := range p.models {
		if i == len(p.models)-1 && p.others != nil {
			if m = j.settleAfterLosses(p); m == nil {
				return false
			}
		}
		if m.end != nil {
			return true
		}
		isSettled := i == len(p.models)-1 && p.others != nil
		if !isSettled && j.settle(false, m) == nil {
			return false
		}
		if i == len(j.s.steps) {
			j.finish(m)
			return true
		}
		struck := j.strike(m, j.s.steps[i])
		j.measure(p.models[i+1], m, j.s.steps[i], struck, times)
	}
	return true
}

// settleAfterLosses waits until the run is in one of the states that are possible after two losses,
// which becomes the last one of the prediction, or ends.
func (j *job) settleAfterLosses(p *prediction) *model {
	var ended, live []*model
	for _, m := range p.others {
		if m.end != nil {
			ended = append(ended, m)
		} else {
			live = append(live, m)
		}
	}
	var found *model
	if len(live) > 0 {
		found = j.settle(len(ended) > 0, live...)
	}
	switch {
	case found != nil:
		p.ends = nil
	case len(ended) == 0:
		return nil
	default:
		found = ended[0]
		for _, other := range p.others {
			found.mayStart(other)
		}
	}
	p.models[len(p.models)-1] = found
	return found
}

// measure waits for the replacement of a killed process, and notes how long it took besides its
// back-off.
func (j *job) measure(after, before *model, s step, struck time.Time, times *latencies) {
	f := s[0]
	if len(s) > 1 || f.kind != killProcess && f.kind != killShell || after.end != nil {
		return
	}
	r, next := j.s.find(f.role), after.states[f.role][f.index].generation
	if next == before.states[f.role][f.index].generation {
		return
	}
	var facts *startFacts
	if !j.Until(func() bool { facts = j.facts(nameOf(f, next)); return facts != nil }) {
		return // settle reports it
	}
	times.add(r.spans(f.index), facts.At.Sub(struck)-r.backoff<<(next-1))
}

func (s schedule) find(name string) *role {
	return s.roles[slices.IndexFunc(s.roles, func(r *role) bool { return r.name == name })]
}

// latencies has the times from a kill to the start of the replacement, besides its back-off.
type latencies struct {
	mu               sync.Mutex
	single, spanning []time.Duration
}

func (l *latencies) add(spans bool, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if spans {
		l.spanning = append(l.spanning, took)
	} else {
		l.single = append(l.single, took)
	}
}

// summary summarises the times.
func (l *latencies) summary() string {
	return "from a kill to the start of the replacement, besides its back-off: on one node " +
		spread(l.single) + "; on several nodes " + spread(l.spanning)
}

// spread summarises durations.
func spread(times []time.Duration) string {
	if len(times) == 0 {
		return "never"
	}
	slices.Sort(times)
	at := func(part float64) time.Duration {
		return times[min(len(times)-1, int(part*float64(len(times))))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d times, p50 %v, p99 %v, at most %v", len(times), at(0.5), at(0.99), at(1))
}

// given reports whether a flag was set.
func given(name string) (is bool) {
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}
