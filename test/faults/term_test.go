package faults

import (
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/test/hostile"
)

const (
	// termTime is the maximum time for the end of a job with an unresponsive share after TERM, with
	// grace periods of 2 s and 3 s. It is half of the 30 s after which Slurm kills.
	termTime = 15 * time.Second
	// toldTime is the maximum time until the job's driver receives the signal: one second, plus one
	// for a busy machine.
	toldTime = 2 * time.Second
)

// TestTerm checks that all daemons of a job end after TERM while mounts do not respond.
func TestTerm(t *testing.T) {
	stalls := []row{
		{name: "no call returns", stall: hostile.Unread, knobs: hostile.Knobs{NoFlush: true}},
		{name: "no call returns, even after KILL", stall: hostile.Held},
	}
	times := []string{join, driver}
	results := newResults("term", []string{"fault", "where"}, times)
	var broken []row
	for _, r := range stalls {
		for _, w := range []where{atWorker, atHead, atAll} {
			r.where = w
			broken = append(broken, r)
		}
	}
	for _, r := range beside {
		r.where = atAll
		broken = append(broken, r)
	}
	t.Run("cells", func(t *testing.T) {
		for _, r := range broken {
			for _, phase := range times {
				t.Run(slug(r.title())+"/"+phase, func(t *testing.T) {
					t.Parallel()
					results.note(r.title(), phase, termed(t, r, phase))
				})
			}
		}
	})
	results.settle(t, titles(broken))
}

func termed(t *testing.T, r row, phase string) outcome {
	first := r.before
	if phase == join {
		first = r.after
	}
	j := newJob(t, first)
	j.unread = r.unread
	for _, p := range phases {
		if p != driver {
			j.free(p)
		}
	}
	j.start(driversCode)
	if phase == driver {
		j.await(driver)
		j.shows(before(driver)...)
		j.turn(r)
	} else {
		// Wait long enough that all are active, but not so long that one has given up.
		time.Sleep(time.Second)
	}
	j.endTurn()
	begin := time.Now()
	for _, d := range j.daemons {
		j.must(d.cmd.Process.Signal(syscall.SIGTERM))
	}
	if phase == driver {
		j.awaitSaid("term 0", toldTime, 0)
	}
	o := j.outcome(begin)
	o.shared = true
	j.common(o)
	if o.took > termTime {
		t.Errorf("it took %s, want %s at most", o.took, termTime)
	}
	code := health.OutcomeOfKind(health.Terminated).Code
	if o.codes != [size]int{code, code, code, code} {
		t.Errorf("it ended with %v, want %d", o.codes, code)
	}
	j.nothingLeft()
	return o
}
