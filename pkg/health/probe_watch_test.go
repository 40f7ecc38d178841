package health_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

// try is a try of a probe, with its duration.
type try struct {
	took time.Duration
	err  error
}

// TestTolerance decides about sequences of tries, with a pause of five seconds between two of them.
func TestTolerance(t *testing.T) {
	const s = time.Second
	late, wrong := errors.New("no response"), errors.New("HTTP 503")
	refused := fmt.Errorf("refused: %w", syscall.ECONNREFUSED)
	ready := health.Tolerance{Try: 30 * s, Misses: 3, FailsIfRefused: true}
	alive := health.Tolerance{Try: 20 * s, Misses: 3, After: 60 * s}
	ok := try{s, nil}
	for _, tc := range []struct {
		name  string
		t     health.Tolerance
		tries []try
		// fails is the number of the try by which the probe has failed, from 1; 0: none.
		fails int
		limit time.Duration // of the next try
	}{
		{"quick answers", ready, []try{ok, ok}, 0, 90 * s},
		{"answers after 40 s", ready, []try{{40 * s, nil}, {40 * s, nil}, {40 * s, nil}}, 0, 90 * s},
		{"one stall", ready, []try{{35 * s, late}, ok}, 0, 90 * s},
		{"a stall of two misses", ready, []try{{65 * s, late}}, 0, 30 * s},
		{"no answer at all", ready, []try{ok, {90 * s, late}}, 2, 90 * s},
		{"two wrong answers", ready, []try{{s, wrong}, {s, wrong}, ok, {s, wrong}}, 0, 60 * s},
		{"three wrong answers", ready, []try{{s, wrong}, {s, wrong}, {s, wrong}}, 3, 90 * s},
		{"a refusal", ready, []try{ok, {0, refused}}, 2, 90 * s},
		{"it is alive although it refuses", alive, []try{{0, refused}, {0, refused}, {0, refused}}, 0, 45 * s},
		{"it hangs, and fails by the end of the try", alive, []try{{60 * s, late}}, 1, 60 * s},
		{"it answers as late as it may", alive, []try{{59 * s, nil}, {59 * s, nil}}, 0, 60 * s},
		{"it is dead for a minute", alive,
			[]try{{10 * s, wrong}, {10 * s, wrong}, {10 * s, wrong}, {15 * s, wrong}}, 4, 60 * s},
		{"it is counted from the beginning of the first miss", health.Tolerance{Try: s, Misses: 1, After: 10 * s},
			[]try{{10 * s, late}}, 1, s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, fails := time.Now(), 0
			var streak health.Streak
			for i, one := range tc.tries {
				now = now.Add(5 * s)
				began := now
				now = now.Add(one.took)
				streak = tc.t.Extend(streak, began, one.took, one.err)
				if fails == 0 && one.err != nil && tc.t.IsOver(streak, now) {
					fails = i + 1
				}
			}
			if limit := tc.t.Limit(streak, now.Add(5*s)); fails != tc.fails || limit != tc.limit {
				t.Errorf("failed by try %d, and the next one may last %s: want %d, %s",
					fails, limit, tc.fails, tc.limit)
			}
		})
	}
}

// TestWatchBusyServer verifies with a real server that tries which it answers late are no failure, and
// that one which it does not answer in time is, from the beginning of the try.
func TestWatchBusyServer(t *testing.T) {
	const unit = 50 * time.Millisecond
	stalls := make(chan time.Duration, 10)
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case stall := <-stalls:
			time.Sleep(stall)
		default:
			<-hang
		}
	}))
	defer server.Close()
	defer close(hang)
	probe, err := health.ParseProbe(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		stalls <- 4 * unit // three misses by the fixed time of a try, and none by this one
	}
	ctx, cancel := context.WithCancel(t.Context())
	var results []bool
	var last time.Time
	probe.Watch(ctx, health.Tolerance{Try: 20 * unit, Misses: 2}, 0, unit, func(_ error, hasFailed bool) {
		if results = append(results, hasFailed); !hasFailed {
			last = time.Now()
			return
		}
		cancel()
	})
	if took := time.Since(last); len(results) != 4 || !results[3] || took < 40*unit {
		t.Errorf("got %v, the last after %s", results, took)
	}
}

// TestRefusedProbe verifies that a refused connection is recognised.
func TestRefusedProbe(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	for _, text := range []string{"http://" + address, "tcp://" + address} {
		probe, err := health.ParseProbe(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := probe.Try(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
