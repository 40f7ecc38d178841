package faults

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/hostile"
)

// outage is how long the share is unavailable to a job whose peer links work: more than twice the
// time after which a peer is lost, and long enough to lose any peer if there were only the share.
const outage = 5 * peerTimeout / 2

// lined are scenarios with peer links, on a share that works at first.
var lined = []story{
	{name: "two workers' daemons are killed at once", code: 42, happens: killing(1, 2),
		judge: losing(1, 2)},
	{name: "three workers' daemons are killed at once", code: 42, happens: killing(1, 2, 3),
		judge: losing(1, 2, 3)},
	{
		name: "a worker's daemon is killed, and the driver then fails", code: 1,
		happens: func(j *job) { killing(victim)(j); j.letGo() }, judge: losing(victim),
	},
	{name: "the shared file system of node 2 does not respond for 7.5 s", code: 42,
		happens: outliving(atWorker), judge: wellWith(42)},
	{name: "the shared file system of the head does not respond for 7.5 s", code: 42,
		happens: outliving(atHead), judge: wellWith(42)},
	{name: "no shared file system responds for 7.5 s", code: 42, happens: outliving(atAll),
		judge: wellWith(42)},
}

// TestLines checks jobs whose peer links provide information that files cannot.
func TestLines(t *testing.T) {
	const column = "with peer links"
	results := newResults("lines", []string{"event while the driver runs"}, []string{column})
	var names []string
	t.Run("cells", func(t *testing.T) {
		for _, s := range lined {
			names = append(names, s.name)
			s.extra = []string{"--lifeline=on"}
			t.Run(slug(s.name), func(t *testing.T) {
				t.Parallel()
				results.note(s.name, column,
					tellStory(t, row{name: "nothing", knobs: hostile.Knobs{NoFlush: true}}, s))
			})
		}
	})
	results.settle(t, names)
}

// killing returns a function that kills several daemons at once.
func killing(nodes ...int) func(j *job) {
	return func(j *job) {
		j.t.Helper()
		for _, node := range nodes {
			j.kill(node)
		}
	}
}

// losing returns a function that checks that a job has ended because nodes were lost, and that the
// result mentions all of them, at least as consequences.
func losing(nodes ...int) func(j *job, o *outcome) {
	return func(j *job, o *outcome) {
		j.t.Helper()
		for node, code := range o.codes {
			want := lostCode
			if slices.Contains(nodes, node) {
				want = 128 + int(syscall.SIGKILL)
			}
			if code != want {
				j.t.Errorf("node %d ended with %d, want %d", node, code, want)
			}
		}
		var result record.Result
		if !j.record(signal.NameResult, &result) {
			return
		}
		all := slices.Clone(o.cause.LostNodes)
		for _, failure := range result.Consequences {
			all = append(all, failure.LostNodes...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		if !slices.Equal(all, nodes) || o.cause.Kind != health.DaemonDied {
			j.t.Errorf("by %s are lost %v, with the consequences, want %v: %+v", o.cause.Kind, all,
				nodes, result)
		}
		o.cause.LostNodes = all // the order in which they are lost is not determined
	}
}

// outliving returns a function that makes the mounts unresponsive for a while, and then ends the
// driver.
func outliving(w where) func(j *job) {
	return func(j *job) {
		j.t.Helper()
		for _, node := range w.nodes() {
			j.must(j.mounts[node].Stall(hostile.Unread))
		}
		time.Sleep(outage)
		j.release()
		j.letGo()
	}
}
