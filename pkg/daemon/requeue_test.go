package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// fakeRequeuer is a launcher.Requeuer that records its requests.
type fakeRequeuer struct {
	mu       sync.Mutex
	requeued int      // guarded by mu
	excluded []string // guarded by mu
	refuses  error
	asked    func() // called at each requeue request
}

var _ launcher.Requeuer = (*fakeRequeuer)(nil)

func (l *fakeRequeuer) RequeueJob(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked != nil {
		l.asked()
	}
	l.requeued++
	return l.refuses
}

func (l *fakeRequeuer) ExcludeHosts(_ context.Context, hosts []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.excluded = append(l.excluded, hosts...)
	return l.refuses
}

// requeued makes all daemons of a Slurm job ask the launcher to requeue it.
func (j *job) requeued(by *fakeRequeuer) *job {
	return j.all(func(c *deps.Config) {
		c.Identity.Launcher = launcher.LauncherSlurm
		c.After.Requeue = config.RequeueConfig{OnFailure: true, Most: 3, By: by}
	})
}

// badNodes returns the nodes that the run has recorded as bad.
func (j *job) badNodes() string {
	data, _ := j.read(filepath.Join(j.logDir, signal.BadNodesDir, j.configs[0].Identity.RunName()))
	return string(data)
}

// countEnds makes all daemons count in one directory of metrics how runs end. It returns a function that
// returns the counters.
func (j *job) countEnds() (counters func() []string) {
	dir := j.t.TempDir()
	j.all(func(c *deps.Config) { c.MetricsDir = dir })
	return func() (counters []string) {
		user := strconv.Itoa(os.Geteuid())
		text, _ := os.ReadFile(filepath.Join(dir, "bringupd_ended_"+user+".prom"))
		for line := range strings.Lines(string(text)) {
			name, labels, _ := strings.Cut(strings.TrimSpace(line), `{uid="`+user+`",`)
			if strings.HasSuffix(name, "_total") {
				counters = append(counters, labels)
			}
		}
		return counters
	}
}

// failsCheck makes one node fail its check, because it has no directory for temporary files.
func failsCheck(c *deps.Config) {
	c.Framework = framework.None{WorkerCommand: "exec sleep 300"}
	if c.Identity.NodeIndex == 1 {
		c.TempDir = "/nonexistent"
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	const size = 3
	for _, tc := range []struct {
		name     string
		change   func(*deps.Config)
		refuses  error
		code     int
		word     string
		kind     health.Kind
		requeued int
		excluded []string
		bad      string
		why      string // in the result; empty: no decision was needed
		says     string
	}{
		{
			name: "a node that failed its check", change: failsCheck, code: 75, word: "check", kind: health.CheckFailed,
			requeued: 1, excluded: []string{"n1"}, bad: "n1\n", why: "(1 of at most 3)", says: "the job is requeued",
		},
		{
			name: "as often as it may be", change: func(c *deps.Config) { failsCheck(c); c.Identity.Restart = 3 },
			code: 69, word: "gave-up", kind: health.CheckFailed, bad: "n1\n",
			why: "3 times of at most 3", says: "does not requeue the job",
		},
		{
			name:   "the user asks for none",
			change: func(c *deps.Config) { failsCheck(c); c.After.Requeue.OnFailure = false },
			code:   75, word: "check", kind: health.CheckFailed, bad: "n1\n",
		},
		{
			name: "what would come again", change: func(c *deps.Config) {
				c.Framework = framework.None{WorkerCommand: only("1", "exit 3")}
			}, code: 77, word: "service", kind: health.ServiceDied,
			why: "cannot be fixed by another try", says: "does not requeue the job",
		},
		{
			name: "no launcher that could", change: func(c *deps.Config) { failsCheck(c); c.After.Requeue.By = nil },
			code: 75, word: "check", kind: health.CheckFailed, bad: "n1\n",
			why: "only jobs of Slurm", says: "does not requeue the job",
		},
		{
			name: "a launcher that refuses", change: failsCheck,
			refuses: errors.New("cannot run scontrol: Only batch jobs"),
			code:    75, word: "check", kind: health.CheckFailed, requeued: 1, bad: "n1\n",
			why: "(1 of at most 3)", says: "Only batch jobs",
		},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			by := &fakeRequeuer{refuses: tc.refuses}
			j := newJob(t, size, "sleep 300").requeued(by).all(tc.change)
			counters := j.countEnds()
			by.asked = func() { // the last step: the launcher then ends what is left
				if j.has(signal.ControlDir, signal.NameHeadFinished) ||
					!j.has("", signal.NameResult) || j.badNodes() != tc.bad {
					t.Errorf("too soon or too late: control %v, bad nodes %q", j.names(signal.ControlDir), j.badNodes())
				}
				for nodeIndex := range size {
					if !j.has(signal.NodesDir, signal.NodeName(nodeIndex, size, record.StateDone)) {
						t.Errorf("node %d is not done", nodeIndex)
					}
				}
			}
			j.start().expect(everyone(tc.code, size)...)
			j.blames(1, tc.kind, tc.code)
			if by.requeued != tc.requeued || !slices.Equal(by.excluded, tc.excluded) {
				t.Errorf("the launcher was asked %d times, and to exclude %v", by.requeued, by.excluded)
			}
			if got := j.badNodes(); got != tc.bad {
				t.Errorf("the list of bad nodes has %q", got)
			}
			counted := []string{fmt.Sprintf(`outcome="%s",code="%d"} 1`, tc.word, tc.code)}
			for host := range strings.Lines(tc.bad) {
				counted = append(counted, fmt.Sprintf(`node="%s"} 1`, strings.TrimSpace(host)))
			}
			if got := counters(); !slices.Equal(got, counted) {
				t.Errorf("counted are %q, not %q", got, counted)
			}
			result := j.result()
			if result.Outcome != tc.word {
				t.Errorf("the result's word is %q", result.Outcome)
			}
			decided := result.Requeue
			if (decided != nil) != (tc.why != "") || decided != nil &&
				(decided.Wanted != (tc.requeued > 0) || !strings.Contains(decided.Reason, tc.why)) {
				t.Errorf("the result says %+v", decided)
			}
			if tc.says != "" && !strings.Contains(j.said(), tc.says) {
				t.Errorf("nothing says %q", tc.says)
			}
		})
	}
}

// TestRequeueWithoutHead verifies that, if the head is lost, the one worker that has written the
// result requests the requeue.
func TestRequeueWithoutHead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		by := &fakeRequeuer{}
		j := newJob(t, 3, "").requeued(by)
		head, counters := j.playHead(), j.countEnds()
		j.start(0)
		for nodeIndex := 1; nodeIndex < 3; nodeIndex++ {
			j.untilNamed(signal.NodesDir, signal.NodeName(nodeIndex, 3, record.StateJoined))
		}
		head.silence()
		j.expect(-1, 76, 76)
		if by.requeued != 1 || !slices.Equal(by.excluded, []string{"n0"}) || j.badNodes() != "n0\n" {
			t.Errorf("the launcher was asked %d times, and to exclude %v; the bad nodes are %q",
				by.requeued, by.excluded, j.badNodes())
		}
		if got := counters(); !slices.Equal(got, []string{`outcome="peer-lost",code="76"} 1`, `node="n0"} 1`}) {
			t.Errorf("counted are %q", got)
		}
	})
}
