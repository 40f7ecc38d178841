package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/timeline"
)

// told are the events of a rank, each as its word and what it is about.
func told(run *timeline.Run, rank int) []string {
	var all []string
	for _, e := range run.Events {
		if e.Rank == rank {
			name, _, _ := strings.Cut(e.Record+e.State+e.Left+e.Child, ".1") // a kind of node is its own number
			all = append(all, strings.TrimSpace(string(e.Name)+" "+name))
		}
	}
	return all
}

// A reader learns from the events who has published what, who has seen it, and
// what has run.
func TestEventsTellOfAJob(t *testing.T) {
	t.Parallel()
	j := newJob(t, 3, "exit 3")
	j.start().expect(3, 0, 0)
	run, err := timeline.Read(t.Context(), j.run(), timeline.Options{Depth: timeline.Full})
	if err != nil || len(run.Problems) > 0 {
		t.Fatalf("cannot read the run: %v, %q", err, run.Problems)
	}
	for rank, want := range [][]string{
		{"published job", "published 0000.joined", "reached joined", "leave join", "published go", "start driver", "exit driver", "leave driver", "published drain", "reached done", "end"},
		{"saw job", "published 0001.joined", "leave join", "saw drain", "enter", "end"},
		{"saw job", "published 0002.joined", "leave join", "saw drain", "enter", "end"},
	} {
		got := told(run, rank)
		for _, event := range want {
			if !slices.Contains(got, event) {
				t.Errorf("rank %d does not tell of %q: %q", rank, event, got)
			}
		}
	}
	for _, e := range run.Events {
		if e.Name == signal.EventEnd && e.Code != []int{3, 0, 0}[e.Rank] {
			t.Errorf("rank %d says that it ends with %d", e.Rank, e.Code)
		}
		if e.Name == signal.EventExit && (e.Rank != 0 || e.Exit != "exit code 3") {
			t.Errorf("rank %d says that %s ended with %s", e.Rank, e.Child, e.Exit)
		}
	}
	for rank, host := range j.configs[0].Identity.Hosts {
		raw, err := os.ReadFile(filepath.Join(j.run(), signal.Events, signal.EventsName("daemon", rank, 3)))
		if end := fmt.Sprintf(`"event":"end","v":1,"rank":%d,"host":%q`, rank, host); err != nil || !strings.Contains(string(raw), end) {
			t.Errorf("the events of rank %d lack %s: %s, %v", rank, end, raw, err)
		}
	}
	for _, node := range run.Nodes[1:] {
		if !node.Clock.Known || node.Clock.Offset.Abs() > node.Clock.Residual {
			t.Errorf("the clock of rank %d, which is the head's, is said to be %+v", node.Rank, node.Clock)
		}
	}
	if run.Job.Hosts != "n[0-2]" {
		t.Errorf("the job's hosts are %q", run.Job.Hosts)
	}
}

func TestHostList(t *testing.T) {
	for _, test := range []struct {
		name  string
		hosts []string
		want  string
	}{
		{"not told", nil, ""},
		{"in order", []string{"n1", "n2", "n3"}, "n[1-3]"},
		{"in another order", []string{"n3", "n1", "n2"}, "n3,n1,n2"},
		{"one host twice", []string{"n1", "n1"}, "n1,n1"},
		{"one is not known", []string{"n1", ""}, ""},
		{"too long", slices.Repeat([]string{strings.Repeat("b", 200), strings.Repeat("a", 200)}, 400), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := hostList(test.hosts); got != test.want {
				t.Errorf("it is %.100q, want %q", got, test.want)
			}
		})
	}
}

// A probe that never says the same twice fills no timeline, and what it says is
// cut short.
func TestProbesAreToldOfWhenTheyChange(t *testing.T) {
	trail := newTrail()
	lines := &kept{}
	trail.events.Open(lines)
	says := []error{errors.New("refused"), errors.New("refused"), errors.New(strings.Repeat("x", 9000)), nil}
	for i := range 100 {
		says = slices.Insert(says, 3, errors.New(strings.Repeat("y", i+1)))
	}
	look := trail.probed("head", func(context.Context) error {
		said := says[0]
		says = says[1:]
		return said
	})
	for len(says) > 0 {
		_ = look(t.Context())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	trail.close(ctx)
	got := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if len(got) != mostProbes+1 || strings.Count(lines.String(), "refused") != 1 || !strings.Contains(got[mostProbes], `"ok":true`) {
		t.Errorf("%d lines: %s", len(got), lines)
	}
	if strings.Contains(lines.String(), strings.Repeat("x", longestSeen+1)) {
		t.Error("all that a probe saw is there, however long")
	}
}

// kept is a file in memory.
type kept struct{ strings.Builder }

func (*kept) Close() error { return nil }
