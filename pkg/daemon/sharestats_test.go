package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

func TestArrivalsSample(t *testing.T) {
	published := time.Now()
	for _, tc := range []struct {
		name  string
		looks [][]int
		want  []int
	}{
		{"nobody", nil, nil},
		{"the head alone", [][]int{{0}}, nil},
		{"fewer than are asked for", [][]int{{0, 2}, {0, 1, 2}}, []int{2, 1}},
		{"the first and the last among them", [][]int{{0, 7}, {0, 1, 2, 3, 7}, {0, 1, 2, 3, 4, 5, 6, 7}}, []int{7, 2, 4, 6}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := newArrivals(published)
			for i, ranks := range tc.looks {
				a.note(ranks, published.Add(time.Duration(i)*time.Second))
			}
			if got := a.sample(tripSample); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestArrivalsTrip(t *testing.T) {
	published := time.Now()
	a := newArrivals(published)
	a.note([]int{1}, published.Add(50*time.Millisecond))
	a.note([]int{1, 2}, published.Add(time.Second))
	for _, tc := range []struct {
		name   string
		rank   int
		joined signal.JoinedRecord
		want   time.Duration
		ok     bool
	}{
		{"it waited", 1, signal.JoinedRecord{Answer: 20 * time.Millisecond, Waited: true}, 30 * time.Millisecond, true},
		{"it came late", 2, signal.JoinedRecord{Answer: 20 * time.Millisecond}, 980 * time.Millisecond, false},
		{"it says that it took longer than it can have", 1, signal.JoinedRecord{Answer: time.Minute, Waited: true}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, ok := a.trip(tc.rank, tc.joined)
			if got.Rank != tc.rank || got.Took != tc.want || ok != tc.ok {
				t.Errorf("got %+v, %t; want %s, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
}

// What the head tells at the end is what each daemon has counted.
func TestShareStats(t *testing.T) {
	j := newJob(t, 3, "true").all(func(c *Config) { c.ShareStats = true })
	j.start().expect(0, 0, 0)
	report := j.result().Share
	if report == nil || report.Head.Calls == 0 || report.Head.ByKind["open"] == 0 || report.Head.Slowest.Took == 0 {
		t.Errorf("the result tells of the share: %+v", report)
	}
	for rank := 1; rank < 3; rank++ {
		done := record[signal.DoneRecord](j, signal.Nodes, signal.NodeName(rank, 3, signal.Done))
		if done.Share == nil || done.Share.ByKind["link"] == 0 {
			t.Errorf("rank %d tells of the share: %+v", rank, done.Share)
		}
	}
	for _, want := range []string{"all 2", "rename", "the slowest:"} {
		if !strings.Contains(j.said(), want) {
			t.Errorf("the head does not say %q: %s", want, j.said())
		}
	}
}
