package faults

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/test/jobtest"
)

// story is an ordinary job, which must run as usual in spite of all harmless faults of the share.
type story struct {
	name  string
	alone bool     // only the driver, without services
	extra []string // additional flags of the daemons
	code  int      // exit code of the driver
	// happens, if not nil, is called while the driver runs.
	happens func(j *job)
	judge   func(j *job, o *outcome)
}

// victim is the node that is struck.
const victim = 2

var stories = []story{
	{
		name: "driver: 0", code: 0, happens: (*job).letGo,
		judge: wellWith(0),
	},
	{
		name: "driver alone: 42", alone: true, code: 42, happens: (*job).letGo,
		judge: wellWith(42),
	},
	{
		name: "stop", code: 42,
		happens: func(j *job) { j.stop() },
		judge:   wellWith(42),
	},
	{
		name: "a service dies", code: 42,
		happens: func(j *job) { j.say(j.hold("crash", victim)) },
		judge: func(j *job, o *outcome) {
			code := health.OutcomeOfKind(health.ServiceDied).Code
			if o.codes != [size]int{code, code, code, code} || o.cause.NodeIndex != victim ||
				!slices.Contains(o.cause.Lines, "the service has had enough") {
				j.t.Errorf("it ended with %v: %+v", o.codes, o.cause)
			}
		},
	},
	{
		name: "a worker's daemon is killed", code: 42,
		happens: func(j *job) { j.kill(victim) },
		judge:   func(j *job, o *outcome) { j.lost(*o, victim) },
	},
	{
		name: "the head's daemon is killed", code: 42,
		happens: func(j *job) { j.kill(0) },
		judge:   func(j *job, o *outcome) { j.lost(*o, 0) },
	},
}

// TestStories runs ordinary jobs on a share that has faults from beginning to end.
func TestStories(t *testing.T) {
	var columns []string
	for _, s := range stories {
		columns = append(columns, s.name)
	}
	results := newResults("stories", []string{"fault"}, columns)
	rows := slices.Concat(harmless, beside)
	t.Run("cells", func(t *testing.T) {
		for _, r := range rows {
			for _, s := range stories {
				t.Run(slug(r.name)+"/"+slug(s.name), func(t *testing.T) {
					t.Parallel()
					results.note(r.name, s.name, tellStory(t, r, s))
				})
			}
		}
	})
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	results.settle(t, names)
}

func tellStory(t *testing.T, r row, s story) outcome {
	r.where = atAll
	j := newJob(t, r.after)
	for _, p := range phases {
		if p != driver {
			j.free(p)
		}
	}
	j.alone, j.extra, j.unread = s.alone, s.extra, r.unread
	j.start(s.code)
	j.releaseAfter(r)
	j.await(driver)
	if !s.alone { // otherwise there is nothing to lose
		j.shows(pulses()...)
	}
	j.endTurn()
	begin := time.Now()
	s.happens(j)
	o := j.outcome(begin)
	j.common(o)
	s.judge(j, &o)
	if !slices.Contains(j.killed, 0) {
		j.hasResult(o)
	}
	j.nothingLeft()
	j.checkRecords()
	return o
}

func (j *job) letGo() {
	j.t.Helper()
	j.free(driver)
}

// kill kills a daemon with SIGKILL.
func (j *job) kill(node int) {
	j.t.Helper()
	j.must(j.daemons[node].cmd.Process.Kill())
	j.killed = append(j.killed, node)
}

// lost checks that a job has ended because a node was lost.
func (j *job) lost(o outcome, node int) {
	j.t.Helper()
	for at, code := range o.codes {
		want := lostCode
		if at == node {
			want = 128 + int(syscall.SIGKILL)
		}
		if code != want {
			j.t.Errorf("node %d ended with %d, want %d", at, code, want)
		}
	}
	if !slices.Equal(o.cause.LostNodes, []int{node}) {
		j.t.Errorf("%v are lost, want node %d: %s", o.cause.LostNodes, node, o.cause.Message)
	}
}

// stop requests the orderly end of the job, through the mount of a worker.
func (j *job) stop() {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), ceiling)
	defer cancel()
	stop := exec.CommandContext(ctx, jobtest.Bringupd, "stop", j.logDir(1))
	stop.Env = j.environ(0)
	if out, err := stop.CombinedOutput(); err != nil {
		j.t.Fatalf("bringupd stop: %v: %s", err, strings.TrimSpace(string(out)))
	}
}

// wellWith returns a function that checks that a job has ended by its driver.
func wellWith(code int) func(j *job, o *outcome) {
	return func(j *job, o *outcome) {
		j.t.Helper()
		j.endedWell(*o, code)
	}
}
