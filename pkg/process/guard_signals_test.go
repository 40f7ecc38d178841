package process

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestReached sends signals to a real guard and verifies that each is reported once to the daemon
// if it received the same one (J12).
func TestReached(t *testing.T) {
	t.Parallel()
	const alone = 20 * time.Millisecond // the wait for a signal that is not sent
	s := newSupervisor(t)
	c := start(t, s, Spec{Name: "driver", Argv: []string{"/bin/sleep", "300"}})
	t.Cleanup(func() { c.Stop(context.Background(), 0, unix.SIGKILL) })
	guard := guardOf(t, s.markPrefix)
	reached := func(sig unix.Signal, within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return s.SignalReachedGuard(ctx, sig)
	}
	for _, sig := range ForwardedSignals {
		if reached(sig, alone) {
			t.Errorf("%s has reached the guard, which nobody has signalled", SignalName(sig))
		}
		send(t, guard, sig)
		until(t, "report of "+SignalName(sig), func() (bool, any) {
			return len(s.guardLink.signals.arrivals[sig]) > 0, nil
		})
		for _, other := range ForwardedSignals {
			if got := reached(other, alone); got != (other == sig) {
				t.Errorf("after %s it is %t that %s has reached the guard", SignalName(sig), got, SignalName(other))
			}
		}
		if reached(sig, alone) {
			t.Errorf("%s, sent once, has reached the guard twice", SignalName(sig))
		}
	}
	if now := guardOf(t, s.markPrefix); now != guard {
		t.Errorf("the guard is pid %d, and was %d", now, guard)
	}
}

// TestGuardSignals verifies which signals of the daemon match those that a guard received before,
// after, or long ago.
func TestGuardSignals(t *testing.T) {
	const skew, never = int(maxSignalSkew / time.Millisecond), -1
	for name, tc := range map[string]struct {
		guardSignals []int // when the guard receives SIGUSR1, in milliseconds after the start
		asks         []int // when the daemon receives it
		want         []bool
		waits        int // of the last query
	}{
		"the daemon alone":                {nil, []int{0}, []bool{false}, skew},
		"the guard first":                 {[]int{0}, []int{300}, []bool{true}, 0},
		"the guard later":                 {[]int{400}, []int{0}, []bool{true}, 400},
		"the guard long ago":              {[]int{0}, []int{5000}, []bool{false}, skew},
		"twice":                           {[]int{0, 0}, []int{0, 0}, []bool{true, true}, never},
		"twice, and the guard got one":    {[]int{0}, []int{0, 0}, []bool{true, false}, never},
		"both, and then the daemon alone": {[]int{0}, []int{0, 100}, []bool{true, false}, skew},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Supervisor{guardLink: &guardLink{signals: newGuardSignals()}}
				began := time.Now()
				for _, at := range tc.guardSignals {
					time.AfterFunc(time.Duration(at)*time.Millisecond, func() {
						s.guardLink.signals.addSignal(unix.SIGUSR1, time.Now())
					})
				}
				for i, at := range tc.asks {
					time.Sleep(time.Until(began.Add(time.Duration(at) * time.Millisecond)))
					synctest.Wait()
					asked := time.Now()
					if got := s.SignalReachedGuard(t.Context(), unix.SIGUSR1); got != tc.want[i] {
						t.Errorf("signal %d of the daemon has reached the guard: %t, want %t", i, got, tc.want[i])
					}
					waited := int(time.Since(asked) / time.Millisecond)
					if i == len(tc.asks)-1 && tc.waits != never && waited != tc.waits {
						t.Errorf("the answer took %d ms, want %d", waited, tc.waits)
					}
				}
			})
		})
	}
}
