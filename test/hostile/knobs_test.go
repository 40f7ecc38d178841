package hostile

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLatency checks that a call takes at least the set latency.
func TestLatency(t *testing.T) {
	const slow = 30 * time.Millisecond
	a, b, _ := two(t, Knobs{Latency: Latency{Min: slow}})
	put(t, b.path("file"), "")
	begin := time.Now()
	_, err := os.Stat(a.path("file"))
	ok(t, err)
	if took := time.Since(begin); took < slow {
		t.Errorf("a call took %s", took)
	}
}

// TestLatencyDraw checks the distribution of random latencies.
func TestLatencyDraw(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name        string
		latency     Latency
		least, most time.Duration
		median      time.Duration // 0 means that it is not checked
	}{
		{"none", Latency{}, 0, 0, 0},
		{"fixed", Latency{Min: 5 * ms}, 5 * ms, 5 * ms, 5 * ms},
		{"fixed, with a limit below", Latency{Min: 5 * ms, Max: ms}, 5 * ms, 5 * ms, 5 * ms},
		{"jittered", Latency{Min: 10 * ms, Max: 20 * ms}, 10 * ms, 20 * ms, 15 * ms},
		{"heavy tail", Latency{Min: ms, Max: time.Second, Tail: 1}, ms, time.Second, 2 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 1))
			const draws = 10000
			above, longest := 0, time.Duration(0)
			for range draws {
				got := tc.latency.draw(random)
				if got < tc.least || got > tc.most {
					t.Fatalf("drew %s, want %s to %s", got, tc.least, tc.most)
				}
				if got > tc.median {
					above++
				}
				longest = max(longest, got)
			}
			if tc.least < tc.most && (above < draws*45/100 || above > draws*55/100) {
				t.Errorf("%d of %d are above %s", above, draws, tc.median)
			}
			if longest < tc.most*99/100 {
				t.Errorf("the longest is %s, want %s", longest, tc.most)
			}
		})
	}
}

// TestKnobsCheck checks that invalid knobs are refused.
func TestKnobsCheck(t *testing.T) {
	for _, tc := range []struct {
		name  string
		knobs Knobs
		want  string // part of the error; empty if valid
	}{
		{"none", Knobs{}, ""},
		{"all", Knobs{Stale: 1, IO: 0.5, Negative: 1, Full: syscall.EDQUOT, FullAtClose: true,
			Held: true}, ""},
		{"a negative fraction", Knobs{Stale: -1}, "fraction of -1"},
		{"a fraction over 1", Knobs{Missing: 1.5}, "fraction of 1.5"},
		{"a negative time", Knobs{Listing: -1}, "listing"},
		{"a tail from nothing", Knobs{Latency: Latency{Max: 1, Tail: 1}}, "tail of 1"},
		{"two stalls", Knobs{Held: true, Unread: true}, "unread or held"},
		{"a close that says nothing", Knobs{FullAtClose: true}, "give full as well"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.knobs.check()
			if (err == nil) != (tc.want == "") ||
				err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestKnobsAsJSON checks that the server receives the values that were set.
func TestKnobsAsJSON(t *testing.T) {
	knobs := Knobs{
		Latency: Latency{Min: 1, Max: 2, Tail: 3}, Negative: 4, Listing: 5, Attributes: 6,
		Stale: 0.7, IO: 0.8, Missing: 0.9,
		Seed: 1 << 63, RenameLies: true, NoLinks: syscall.EPERM, Full: syscall.ENOSPC,
		FullAtClose: true, ReadOnly: true, Held: true,
	}
	data, err := json.Marshal(knobs)
	ok(t, err)
	var got Knobs
	ok(t, json.Unmarshal(data, &got))
	if got != knobs {
		t.Errorf("%s became %+v", data, got)
	}
	if data, _ := json.Marshal(Knobs{}); string(data) != "{}" {
		t.Errorf("no knobs are %s", data)
	}
}
