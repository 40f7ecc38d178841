package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestLacks(t *testing.T) {
	all := map[string][]int{signal.Joined: {0, 1, 2, 3}, signal.Checked: {0, 1, 2, 3}, signal.Sandbox: {0, 1, 2, 3}, signal.Up: {0, 1, 2, 3}}
	with := func(state string, ranks ...int) map[string][]int {
		there := map[string][]int{state: ranks}
		for other, ranks := range all {
			if other != state {
				there[other] = ranks
			}
		}
		return there
	}
	full := awaited{size: 4, checks: true, sandboxes: true, services: true, led: true}
	for _, tc := range []struct {
		name  string
		a     awaited
		there map[string][]int
		want  string
	}{
		{"nobody has come", awaited{size: 4}, nil, "not joined [0 1 2 3]"},
		{"nothing is missing", full, all, ""},
		{"of a node the first thing alone", full, map[string][]int{signal.Joined: {0, 1}, signal.Checked: {0}, signal.Sandbox: {0}, signal.Up: {0}},
			"not joined [2 3]; checks not passed [1]"},
		{"a sandbox and a service at once", full, map[string][]int{signal.Joined: all["up"], signal.Checked: all["up"], signal.Sandbox: {0, 1}, signal.Up: {0, 2}},
			"sandbox not ready [2 3]; service not up [1 3]"},
		{"sandboxes enough", awaited{size: 4, services: true, led: true}, with(signal.Sandbox), ""},
		{"no service is up before the head's", awaited{size: 4, services: true}, with(signal.Up), "the head's service is not up []"},
		{"the head's own checks come first", awaited{size: 4, checks: true, services: true}, with(signal.Checked, 1, 2, 3), "checks not passed [0]"},
		{"nobody is to have a service", awaited{size: 4}, with(signal.Up), ""},
		{"the framework counts", awaited{size: 4, services: true, led: true, counting: "ray"}, all, "ray does not count all 4 nodes yet []"},
		{"a service is missed before the framework counts", awaited{size: 4, services: true, led: true, counting: "ray"}, with(signal.Up, 0, 1, 3), "service not up [2]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.a.missing = func(state string) (missing []int) {
				for rank := range tc.a.size {
					if !slices.Contains(tc.there[state], rank) {
						missing = append(missing, rank)
					}
				}
				return missing
			}
			var got []string
			for _, l := range tc.a.lacks() {
				got = append(got, fmt.Sprint(l.what, " ", l.ranks))
			}
			if strings.Join(got, "; ") != tc.want {
				t.Errorf("it lacks %q, not %q", strings.Join(got, "; "), tc.want)
			}
		})
	}
}

func TestProgressLine(t *testing.T) {
	who := func(ranks []int) string { return "n" + strings.Trim(fmt.Sprint(ranks), "[]") }
	for _, tc := range []struct {
		name  string
		lacks []lack
		why   string
		want  string
	}{
		{"nodes", []lack{{notJoined, []int{17}}, {notUp, []int{3, 4}}}, "",
			"still waiting, 1m30s now, for 3 of 64 nodes: not joined: n17; service not up: n3 4"},
		{"a node that lacks two things is one", []lack{{noSandbox, []int{3}}, {notUp, []int{3}}}, "",
			"still waiting, 1m30s now, for 1 of 64 nodes: sandbox not ready: n3; service not up: n3"},
		{"what checks wait for", []lack{{notChecked, []int{5}}}, "n5: waits for gpu.fabric: in progress",
			"still waiting, 1m30s now, for 1 of 64 nodes: checks not passed: n5 (n5: waits for gpu.fabric: in progress)"},
		{"no node's", []lack{{what: "the head's service is not up"}}, "", "still waiting, 1m30s now: the head's service is not up"},
		{"nothing moves the cursor", []lack{{notChecked, []int{5}}}, "\x1b[2Jgone\r\nnew\x00",
			"still waiting, 1m30s now, for 1 of 64 nodes:  new)"},
	} {
		if got := progressLine(tc.lacks, 64, 90*time.Second, who, map[string]string{notChecked: tc.why}); tc.name != "nothing moves the cursor" && got != tc.want {
			t.Errorf("%s: the line is %q, not %q", tc.name, got, tc.want)
		} else if strings.ContainsAny(got, "\x1b\r\n\x00") {
			t.Errorf("%s: the line is %q", tc.name, got)
		}
	}
	long := progressLine([]lack{{notChecked, []int{5}}}, 64, time.Minute, who, map[string]string{notChecked: strings.Repeat("x", 10<<20)})
	if utf8.RuneCountInString(long) > 2*shortLine {
		t.Errorf("a line is %d characters long", utf8.RuneCountInString(long))
	}
}

func TestVigil(t *testing.T) {
	start := time.Unix(1000, 0)
	var v vigil
	var told []string
	for s := range 3601 { // an hour of joining, which nobody ends
		if waited, due := v.due(notJoined, start.Add(time.Duration(s)*time.Second)); due {
			told = append(told, prose.FlagTime(waited))
		}
	}
	want := "15s 30s 1m 5m 10m 15m 20m 25m 30m 35m 40m 45m 50m 55m 1h"
	if got := strings.Join(told, " "); got != want {
		t.Errorf("it told after %s, not after %s", got, want)
	}
	now := start.Add(2 * time.Hour)
	if _, due := v.due(notUp, now); due {
		t.Error("another stage is told of at once")
	}
	if waited, due := v.due(notUp, now.Add(16*time.Second)); !due || waited != 16*time.Second {
		t.Errorf("another stage is told of: %v, after %s", due, waited)
	}
	if _, due := v.due(notUp, now.Add(20*time.Minute)); !due {
		t.Error("a head that did not run tells nothing")
	}
	if _, due := v.due(notUp, now.Add(20*time.Minute+time.Second)); due {
		t.Error("a head that did not run makes up for it")
	}
	if _, due := v.due("", now.Add(time.Hour)); due {
		t.Error("it tells that it waits for nothing")
	}
}

func TestLastReason(t *testing.T) {
	const waits, probe = `{"event":"check-waits","checks":"a"}` + "\n", `{"event":"probe","child":"worker","ok":false,"seen":"refused"}` + "\n"
	for _, tc := range []struct{ what, events, want string }{
		{notChecked, "", ""},
		{notChecked, `{"event":"enter"}` + "\n", ""},
		{notChecked, waits + `{"event":"check-waits","checks":"b"}` + "\n", "waits for b"},
		{notChecked, waits + `{"event":"checked","verdict":"PASS"}` + "\n", ""},
		{notChecked, waits + `{"event":"check-wai`, "waits for a"},
		{notChecked, "\xff\x00 nonsense\n[1,2]\n\"x\"\n", ""},
		{notChecked, probe, ""},
		{notUp, waits + probe, "refused"},
		{notUp, probe + `{"event":"probe","child":"worker","ok":true}` + "\n", ""},
		{noSandbox, probe, ""},
		{noSandbox, `{"event":"probe","child":"sandbox","seen":"404"}` + "\n" + probe, "404"},
	} {
		if got := lastReason([]byte(tc.events), tc.what); got != tc.want {
			t.Errorf("%s, by %q: the reason is %q, not %q", tc.what, tc.events, got, tc.want)
		}
	}
}

// TestProgress has the head tell who is missing, and why where that is known.
// Nobody but the head says so, and never on standard output.
func TestProgress(t *testing.T) {
	t.Parallel()
	waits := make(chan struct{})
	j := newJob(t, 4, "echo driven").patient().looked(func(rank int, l *looks) {
		if rank == 2 {
			l.waits = waits
		}
	})
	j.all(func(c *Config) { c.Times.Join = ceiling })
	j.start(3)
	const want = "s now, for 2 of 4 nodes: not joined: rank 3; checks not passed: rank 2 (rank 2: waits for gpu.fabric: in progress)"
	// What a node waits for is in its timeline, which is written now and then: on a
	// busy machine the second line has it.
	j.until("the line of a long wait", func() bool { return strings.Contains(j.said(), want) })
	close(waits)
	j.start(0, 1, 2)
	j.expect(0, 0, 0, 0)
	if said := j.said(); strings.Count(said, "still waiting") > 3 {
		t.Errorf("it is told too often:\n%s", said)
	}
	if out := j.contents(j.out); out != "driven\n" {
		t.Errorf("standard output has %q", out)
	}
}

// TestHeadAtRest looks once a second, for three of its rests, at the beats of a head
// all of whose lifelines are well.
func TestHeadAtRest(t *testing.T) {
	t.Parallel()
	for _, peer := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		t.Run(peer.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Identity: testIdentity(0, 8), Framework: framework.None{}, Times: DefaultTimes()}
				cfg.Times.Peer = peer
				rest := cfg.plan().Rest
				dir, err := signal.Create(t.Context(), signal.Place{LogDir: t.TempDir(), Run: "1.0", Key: "k", Size: 8, Host: "n0"}, signal.Job{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), 3*rest)
				defer stop()
				n := &node{cfg: cfg, id: cfg.Identity, tempo: health.HeadTempo(peer, 8), dir: dir, calm: func(time.Time) bool { return true }, log: zap.NewNop()}
				var pulse sync.WaitGroup
				pulse.Go(func() { n.pulse(signal.Control, signal.BeatState)(ctx) })
				seen, at, beats := "", time.Now(), 0
				for ; ctx.Err() == nil; time.Sleep(time.Second) {
					names, err := filepath.Glob(filepath.Join(dir.Path(), signal.Control, "0000.beat.*"))
					if err != nil {
						t.Fatal(err)
					}
					if now := fmt.Sprint(names); len(names) > 0 && now != seen {
						seen, at, beats = now, time.Now(), beats+1
					}
					if quiet := time.Since(at); quiet > rest+time.Second {
						t.Fatalf("after %d beats there is none for %v, and the job says %v", beats, quiet, rest)
					}
				}
				pulse.Wait()
				if beats < 2 || beats > 4 {
					t.Errorf("there were %d beats in three rests of %v", beats, rest)
				}
			})
		})
	}
}

func TestJobTellsThePlan(t *testing.T) {
	t.Parallel()
	j := newJob(t, 2, "exit 0").patient().looked(nil)
	j.start().expect(0, 0)
	plan := record[signal.Job](j, signal.Control, signal.NameJob).Plan
	want := &signal.Plan{
		Framework: "none", Steps: []string{"join", "check", "driver"}, Need: 2, Driver: "sh",
		Deadlines: map[string]time.Duration{"join": 30 * time.Second, "check": 30 * time.Second},
		Rest:      restful*j.configs[0].Times.Peer + j.configs[0].Times.Peer/8,
	}
	if !reflect.DeepEqual(plan, want) {
		t.Errorf("the job tells the plan %+v, not %+v", plan, want)
	}
}
