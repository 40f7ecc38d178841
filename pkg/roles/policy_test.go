package roles

import (
	"slices"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	server := Definition{Restarts: RestartPolicy{Max: 2, Window: 10 * time.Minute,
		MinBackoff: time.Second, MaxBackoff: 3 * time.Second}}
	fixed, oneshot, primary := server, server, server
	fixed.Restarts.Max = 0
	oneshot.Oneshot, primary.Primary = true, true
	for name, tc := range map[string]struct {
		role *Definition
		exit Exit
		want Action
	}{
		"a server that was ready":               {&server, Exit{Code: 1, WasReady: true}, ActionRestart},
		"a server that ends with 0":             {&server, Exit{WasReady: true}, ActionRestart},
		"a server that was never ready":         {&server, Exit{Code: 1}, ActionLose},
		"a server that ends with 0 before that": {&server, Exit{}, ActionLose},
		"a server without restarts":             {&fixed, Exit{Code: 137, WasReady: true}, ActionLose},
		"a program that does not exist": {&server,
			Exit{Code: 127, CannotExecute: true, WasReady: true}, ActionLose},
		"a oneshot that succeeds":                {&oneshot, Exit{}, ActionDone},
		"a oneshot that fails":                   {&oneshot, Exit{Code: 2}, ActionRestart},
		"a primary that succeeds":                {&primary, Exit{WasReady: true}, ActionDone},
		"a primary that fails":                   {&primary, Exit{Code: 2, WasReady: true}, ActionRestart},
		"a primary that is killed at its start":  {&primary, Exit{Code: 137}, ActionRestart},
		"a primary whose program does not exist": {&primary, Exit{Code: 127, CannotExecute: true}, ActionLose},
	} {
		if got, _ := tc.role.Decide(tc.exit, new(RestartBudget), time.Now()); got != tc.want {
			t.Errorf("%s: the action is %d", name, got)
		}
	}
}

// TestBudget verifies that restarts are counted within the window, and that the pause doubles and
// begins anew.
func TestBudget(t *testing.T) {
	d := Definition{Restarts: RestartPolicy{Max: 3, Window: time.Minute, MinBackoff: time.Second,
		MaxBackoff: 3 * time.Second}}
	begin, budget := time.Now(), new(RestartBudget)
	for i, step := range []struct {
		after  time.Duration
		action Action
		pause  time.Duration
	}{
		{0, ActionRestart, time.Second},
		{time.Second, ActionRestart, 2 * time.Second},
		{2 * time.Second, ActionRestart, 3 * time.Second},
		{3 * time.Second, ActionLose, 0},
		{62 * time.Second, ActionRestart, 3 * time.Second}, // the first two are outside of the window
		{200 * time.Second, ActionRestart, time.Second},
	} {
		action, pause := d.Decide(Exit{Code: 1, WasReady: true}, budget, begin.Add(step.after))
		if action != step.action || pause != step.pause {
			t.Errorf("exit %d: action %d after %s, with %d used", i, action, pause, budget.Used())
		}
	}
}

func TestLacksInstances(t *testing.T) {
	role := &RolePlan{Definition: &Definition{Required: Requirement{Start: QuorumAll, Run: 6}},
		Instances: make([]Instance, 8)}
	for _, tc := range []struct {
		lost    int
		started bool
		want    bool
	}{{0, false, false}, {1, false, true}, {2, true, false}, {3, true, true}} {
		if got := role.LacksInstances(tc.lost, tc.started); got != tc.want {
			t.Errorf("%d lost, started %v: %v", tc.lost, tc.started, got)
		}
	}
}

func TestCommonCause(t *testing.T) {
	role := &RolePlan{Definition: &Definition{Restarts: RestartPolicy{Window: time.Minute}},
		Instances: make([]Instance, 4)}
	pair := &RolePlan{Definition: role.Definition, Instances: make([]Instance, 3)}
	begin := time.Now()
	for _, tc := range []struct {
		name  string
		role  *RolePlan
		down  []int // of the role's instances, every 10 s
		gives int   // index of the record that gives up, -1 if none does
	}{
		{"twice all", role, []int{1, 4, 4, 2, 0, 3, 4}, 6},
		{"once all", role, []int{1, 4, 4, 3, 4, 2}, -1},
		{"again after a window", role, []int{4, 0, 0, 0, 0, 0, 4}, 6},
		{"never all", role, []int{3, 0, 3, 0, 3}, -1},
		{"too few instances", pair, []int{3, 0, 3, 0, 3}, -1},
		{"too far apart", role, []int{4, 0, 0, 0, 0, 0, 0, 4, 0}, -1},
	} {
		var c CommonCause
		gives := -1
		for i, down := range tc.down {
			if c.Record(tc.role, down, begin.Add(time.Duration(i)*10*time.Second)) && gives < 0 {
				gives = i
			}
		}
		if gives != tc.gives {
			t.Errorf("%s: given up at %d, not %d", tc.name, gives, tc.gives)
		}
	}
}

// TestTurn verifies that the turns of any number of consecutive processes are spread over the interval:
// no two of them are nearer than a third of the mean.
func TestTurn(t *testing.T) {
	for count := 2; count <= 256; count++ {
		var turns []time.Duration
		for number := range count {
			turns = append(turns, Turn(1000+number, time.Hour))
		}
		slices.Sort(turns)
		for i := range count - 1 {
			if apart := turns[i+1] - turns[i]; apart < time.Hour/time.Duration(3*count) || turns[i] < 0 {
				t.Fatalf("of %d, two are %s apart", count, apart)
			}
		}
	}
}

// TestPace verifies that a few changes in succession are not delayed, and that many of them are paced.
func TestPace(t *testing.T) {
	var pace Pace
	began := time.Now()
	now := began
	for i := range 20 {
		wait := pace.Wait(now, time.Second)
		if want := time.Duration(max(0, i-7)) * time.Second; now.Add(wait).Sub(began) != want {
			t.Errorf("change %d comes after %s, want %s", i, now.Add(wait).Sub(began), want)
		}
		now = now.Add(wait)
	}
	if wait := pace.Wait(now.Add(time.Minute), time.Second); wait != 0 {
		t.Errorf("after a pause, a change waits for %s", wait)
	}
}
