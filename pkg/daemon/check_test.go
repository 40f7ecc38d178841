package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// fakeChecks is a fake of the node checks that returns the findings set by the test.
type fakeChecks struct {
	policy check.Policy
	found  []check.Finding
	traits []check.Attribute
	// If waits is not nil, the checks report that they wait until it is closed.
	waits chan struct{}
}

func (l *fakeChecks) AwaitReady(ctx context.Context, progress func(check.Report)) check.Report {
	if l.waits != nil {
		f := check.Finding{ID: "gpu.fabric", Verdict: check.Wait, Observed: "in progress"}
		progress(check.Report{Verdict: check.Wait, Findings: []check.Finding{f}})
		select {
		case <-l.waits:
		case <-ctx.Done():
			return check.Report{Verdict: check.Wait, Findings: []check.Finding{f}}
		}
	}
	findings := l.ApplyPolicy(l.found)
	return check.Report{Version: check.ReportVersion, Verdict: check.WorstVerdict(findings),
		Findings: findings, Attributes: l.traits}
}

func (l *fakeChecks) ApplyPolicy(findings []check.Finding) []check.Finding {
	return l.policy.Apply(findings)
}
func (*fakeChecks) MaxDuration() time.Duration { return 30 * time.Second }

// withChecks gives every node checks that find no problem; change may modify them.
func (j *job) withChecks(change func(nodeIndex int, l *fakeChecks)) *job {
	return j.all(func(c *deps.Config) {
		l := &fakeChecks{
			found: []check.Finding{{ID: "gpu.count", Verdict: check.Pass, Observed: "8 of 8"}},
			traits: []check.Attribute{{ID: check.AttrGPUCount, Value: "8"},
				{ID: check.AttrGPUModel, Value: "H100"}, {ID: check.AttrDriver, Value: "570"}},
		}
		if change != nil {
			change(c.Identity.NodeIndex, l)
		}
		c.Checks = l
	})
}

var lostGPU = check.Finding{
	ID: "gpu.count", Device: &check.Device{Index: 3, Bus: "0000:5d:00.0"}, Verdict: check.Fail,
	Observed: "GPU_IS_LOST", Expected: "8 GPUs", Hint: "power-cycle the node", Class: check.ClassNode,
}

func TestUnfitNode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		rank  int
		class check.Class
		kind  health.Kind
		code  int
	}{
		{"a worker", 2, check.ClassNode, health.CheckFailed, 75},
		{"the head", 0, check.ClassNode, health.CheckFailed, 75},
		{"what another node would not mend", 1, check.ClassUser, health.CheckUser, 65},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newJob(t, 3, "exit 0").withChecks(func(nodeIndex int, l *fakeChecks) {
				if nodeIndex == tc.rank {
					bad := lostGPU
					bad.Class = tc.class
					l.found = append(l.found, bad,
						check.Finding{ID: "host.shm", Verdict: check.Warn, Observed: "small"})
				}
			}).all(func(c *deps.Config) {
				c.Framework = framework.None{WorkerCommand: "exec sleep 300"}
			}).start()
			j.expect(everyone(tc.code, 3)...)
			cause := j.blames(tc.rank, tc.kind, tc.code)
			for _, want := range []string{"gpu.count", "GPU 3 (0000:5d:00.0)", "GPU_IS_LOST", "8 GPUs"} {
				if !strings.Contains(cause.Message, want) {
					t.Errorf("the cause lacks %q: %s", want, cause.Message)
				}
			}
			if cause.Phase != "check" || len(cause.Report) == 0 {
				t.Errorf("the cause is of phase %s, with the report %s", cause.Phase, cause.Report)
			}
			if said := j.said(); !strings.Contains(said, "next: gpu.count: power-cycle the node") {
				t.Errorf("nobody says what to do:\n%s", said)
			}
			if j.has(signal.ControlDir, signal.NameGateOpen) {
				t.Error("the gate was opened")
			}
		})
	}
}

// TestEndWhileWaiting verifies that a stop ends the job while all nodes wait.
func TestEndWhileWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0").withChecks(func(_ int, l *fakeChecks) { l.waits = make(chan struct{}) }).start()
		j.untilNamed(signal.NodesDir, signal.NodeName(1, 2, record.StateJoined))
		j.signals[0] <- os.Interrupt
		j.expect(130, 130)
	})
}

func TestNodesDiffer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		policy check.Policy
		trait  check.Attribute
		code   int
		says   string
	}{
		{"fewer GPUs", check.Policy{}, check.Attribute{ID: check.AttrGPUCount, Value: "7"}, 75,
			"the nodes of the job differ: x.gpu_count"},
		{"another driver", check.Policy{}, check.Attribute{ID: check.AttrDriver, Value: "580"}, 0,
			"the nodes differ: x.driver"},
		{
			"what is only to be told of", check.Policy{Rules: []check.Rule{{Pattern: "x.*", Effect: check.EffectWarn}}},
			check.Attribute{ID: check.AttrGPUCount, Value: "7"}, 0, "the nodes differ: x.gpu_count",
		},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newJob(t, 4, "exit 0").withChecks(func(nodeIndex int, l *fakeChecks) {
				l.policy = tc.policy
				for i, trait := range l.traits {
					if nodeIndex == 2 && trait.ID == tc.trait.ID {
						l.traits[i] = tc.trait
					}
				}
			}).start()
			j.expect(everyone(tc.code, 4)...)
			if said := j.said(); !strings.Contains(said, tc.says) {
				t.Errorf("nobody says %q:\n%s", tc.says, said)
			}
			if tc.code != 0 {
				cause := j.blames(0, health.NodesDiffer, tc.code)
				if result := j.result(); fmt.Sprint(cause.LostNodes, result.BadNodes) != "[2] [n2]" {
					t.Errorf("%v and the nodes %v are blamed, want 2 and n2", cause.LostNodes, result.BadNodes)
				}
			}
		})
	}
}

// TestNobodyIsOdd verifies that, if two kinds of node are equally frequent, the head reports the
// difference and does not treat the nodes of the other kind as worse than its own.
func TestNobodyIsOdd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0").withChecks(func(nodeIndex int, l *fakeChecks) {
			if nodeIndex == 1 {
				l.traits[0].Value = "7"
			}
		}).start()
		j.expect(75, 75)
		j.blames(0, health.NodesDiffer, 75)
		if nodes := j.result().BadNodes; len(nodes) > 0 {
			t.Errorf("the bad nodes are %v", nodes)
		}
		if said := j.said(); !strings.Contains(said, "where: all 2 nodes, in phase check") {
			t.Errorf("the last words say that it is about one node:\n%s", said)
		}
	})
}

// TestSpareForOddNode verifies that a spare replaces the node that differs from the others.
func TestSpareForOddNode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := spared(t, 4, membership.NodeRange{Min: 3, Max: 4},
			tellsTeam).withChecks(func(nodeIndex int, l *fakeChecks) {
			if nodeIndex == 1 {
				l.traits[0].Value = "7"
			}
		})
		j.start().expect(0, 0, 0, 0)
		j.chose([]int{0, 3, 2}, 1) // the last node takes the place of the dropped one
	})
}

// fakeGPUs is a fake of a node's GPU monitor whose events the test sets.
type fakeGPUs struct{ events chan gpu.ClassifiedEvent }

func (*fakeGPUs) Topology() gpu.Topology { return gpu.Topology{} }

func (f *fakeGPUs) Watch(ctx context.Context, ready func(int), event func(gpu.ClassifiedEvent)) error {
	ready(8)
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.events:
			event(e)
		}
	}
}

// withGPUs gives every node GPUs that pass all checks.
func (j *job) withGPUs() []*fakeGPUs {
	var cards []*fakeGPUs
	j.withChecks(nil).all(func(c *deps.Config) {
		cards = append(cards, &fakeGPUs{events: make(chan gpu.ClassifiedEvent)})
		c.GPUs = cards[len(cards)-1]
	})
	return cards
}

func xid(number int, effect gpu.Effect) gpu.ClassifiedEvent {
	return gpu.ClassifiedEvent{
		Event:        gpu.Event{At: time.Now(), Kind: gpu.KindXid, Xid: number, GPU: 3, Bus: "0000:5d:00.0"},
		EventVerdict: gpu.EventVerdict{Effect: effect, Meaning: "the meaning", Action: "the action"},
	}
}

// TestUnfitGPU verifies that a node with a GPU that is not fit for another job is recorded and the
// command that drains it is printed, although the job continues and ends for another reason.
func TestUnfitGPU(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rank, code int
		bad        string
	}{
		"of a job that succeeds":    {rank: 1, bad: "n1\n"},
		"of the head":               {rank: 0, bad: "n0\n"},
		"of a driver that fails":    {rank: 1, code: 9, bad: "n1\n"},
		"besides a GPU that failed": {rank: 1, code: 75, bad: "n0\nn1\n"},
	} {
		rowInBubble(t, name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "enough")
			j := newJob(t, 2, fmt.Sprintf("until test -e %s; do sleep 0.05; done; exit %d", file, tc.code))
			j.all(func(c *deps.Config) { c.Identity.Launcher = launcher.LauncherSlurm })
			cards := j.withGPUs()
			j.start().untilNamed(signal.ControlDir, signal.NameGateOpen)
			for i := range 2 * mostEvents { // more than are reported
				cards[tc.rank].events <- xid(i, gpu.EffectApp)
			}
			unfit := xid(64, gpu.EffectWarn)
			unfit.Next = gpu.NextUnfit
			cards[tc.rank].events <- unfit
			j.untilNamed(signal.NodesDir, signal.EventName(tc.rank, 2, signal.UnfitEventNumber))
			codes := []int{tc.code, 0}
			if tc.code == 75 {
				cards[0].events <- xid(79, gpu.EffectFatal)
				codes[1] = 75
			} else if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			j.expect(codes...)
			if bad := j.badNodes(); bad != tc.bad || strings.Join(j.result().BadNodes, "\n")+"\n" != tc.bad {
				t.Errorf("the bad nodes are %q, and in the result %v, want %q", bad, j.result().BadNodes, tc.bad)
			}
			want := fmt.Sprintf("scontrol update nodename=n%d state=drain", tc.rank)
			if said := j.said(); !strings.Contains(said, want) || !strings.Contains(said, "Xid 64") {
				t.Errorf("nobody tells how to drain the node (%s):\n%s", want, said)
			}
		})
	}
}

// mostEvents is the maximum number of events that a node of a small job reports.
const mostEvents = 16
