package simulate

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
)

// few returns the configuration of a short job.
func few(nodes int) Config {
	return Config{Nodes: nodes, JoinTimeout: 30 * time.Second, Peer: 10 * time.Second, Program: "test"}
}

func TestValidate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   string // part of the error; empty: none
	}{
		{"as it is", func(*Config) {}, ""},
		{"more values than are kept", func(c *Config) { c.Nodes, c.Ranks, c.Fences = 1024, 32, 4 }, "cannot simulate 1024 nodes of 32 ranks with 4 fences: they put 131,072 values, and at most 100,000 are possible"},
		{"the most", func(c *Config) {
			c.Nodes, c.Latency, c.Jitter, c.Skew, c.Steady, c.Rate = MaxNodes, time.Second, time.Second, 15*time.Second, time.Hour, 1e6
		}, ""},
		{"ranks without lifelines", func(c *Config) {
			c.Nodes, c.Ranks, c.Fences, c.LinkMode = 2, 1, 1, config.LinkOff
		}, "cannot simulate ranks without peer links: leave out --lifeline=off or --ranks"},
		{"no nodes", func(c *Config) { c.Nodes = 0 }, "cannot simulate 0 nodes: give a number of 1 to 16384"},
		{"too many nodes", func(c *Config) { c.Nodes = MaxNodes + 1 }, "cannot simulate 16385 nodes"},
		{"a call from the past", func(c *Config) { c.Latency = -1 }, "cannot use --op-latency=-1ns: give a time of 0s to 1s"},
		{"a call that takes too long", func(c *Config) { c.Jitter = 2 * time.Second }, "cannot use --latency-jitter=2s"},
		{"starts after the join timeout", func(c *Config) { c.Skew = time.Minute }, "cannot use --start-skew=1m0s: give a time of 0s to 15s"},
		{"steady for less than nothing", func(c *Config) { c.Steady = -time.Second }, "cannot use --steady=-1s"},
		{"too steady", func(c *Config) { c.Steady = 2 * time.Hour }, "cannot use --steady=2h0m0s"},
		{"a server that asks", func(c *Config) { c.Rate = -1 }, "cannot use --server-rate=-1"},
		{"a worker's death", func(c *Config) { c.Death = WorkerDies }, ""},
		{"a death of nobody's", func(c *Config) { c.Death = "all" }, `cannot simulate the death of "all": give worker or head`},
		{"a death that nobody notices", func(c *Config) { c.Nodes, c.Death = 1, HeadDies }, "cannot simulate a death with one node: no other node is left"},
		{"a peer timeout that no job may have", func(c *Config) { c.Peer = time.Millisecond }, "cannot use --peer-timeout=1ms: give at least 1s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := few(4)
			tc.change(&cfg)
			err := cfg.Validate()
			if (err == nil) != (tc.want == "") || (err != nil && !strings.HasPrefix(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestFits(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes int
		files uint64
		want  string // part of the error; empty: none
	}{
		{"enough", 240, 1024, ""},
		{"one too many", 241, 1024, "this shell allows 1024: give at most 240 nodes"},
		{"hardly any", 1, 32, "give at most 0 nodes"},
		{"no limit", MaxNodes, math.MaxUint64, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := checkFilesNeeded(tc.nodes, tc.files)
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestDelay(t *testing.T) {
	if (Config{}).newCallDelay() != nil {
		t.Error("nothing is to be added, and yet something would")
	}
	took := Config{Latency: 3 * time.Millisecond}.newCallDelay()
	if got := took(); got != 3*time.Millisecond {
		t.Errorf("got %s, want 3ms", got)
	}
	random := Config{Latency: time.Second, Jitter: time.Millisecond}.newCallDelay()
	var sum time.Duration
	const draws = 10_000
	for range draws {
		more := random() - time.Second
		if more < 0 {
			t.Fatalf("a call would take %s less", -more)
		}
		sum += more
	}
	// The mean of ten thousand random values is accurate to one hundredth, rarely to two.
	if mean := sum / draws; mean < 900*time.Microsecond || mean > 1100*time.Microsecond {
		t.Errorf("calls take %s more on average, want about 1ms", mean)
	}
}

func TestQueue(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		name string
		rate int
		at   []time.Duration // of each call
		want []time.Duration // delay of each call
	}{
		{"no bound", 0, []time.Duration{0, 0}, []time.Duration{0, 0}},
		{"one after the other", 100, []time.Duration{0, 0, 0}, []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond}},
		{"a queue that has ended", 100, []time.Duration{0, time.Second}, []time.Duration{10 * time.Millisecond, 10 * time.Millisecond}},
		{"one that has not", 100, []time.Duration{0, 4 * time.Millisecond}, []time.Duration{10 * time.Millisecond, 16 * time.Millisecond}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := &serverQueue{rate: tc.rate}
			for i, at := range tc.at {
				if got := q.takeTurn(now.Add(at)); got != tc.want[i] {
					t.Errorf("call %d waits %s, want %s", i, got, tc.want[i])
				}
			}
		})
	}
}
