package health

import (
	"syscall"
	"testing"
	"time"
)

// notice is a signal and its time since the first.
type notice struct {
	sig syscall.Signal
	at  time.Duration
}

// TestFinalSignals verifies that the graces end before the KILL of a launcher that sends one after
// each TERM, or ALRM at a time limit.
func TestFinalSignals(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name        string
		kill        time.Duration
		sigs        []syscall.Signal // 10 s apart
		driver, all time.Duration
		byLauncher  bool
	}{
		{"qdel", 10 * s, []syscall.Signal{syscall.SIGTERM}, 5 * s, 20 * s / 3, false},
		{"flux cancel", 5 * s, []syscall.Signal{syscall.SIGTERM}, 5 * s / 2, 10 * s / 3, false},
		{"a time limit of Flux", 5 * s, []syscall.Signal{syscall.SIGALRM}, 5 * s / 2, 10 * s / 3, true},
		{"bkill", 10 * s, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}, 15 * s, 10*s + 20*s/3, false},
	} {
		n, start := SignalHistory{LauncherSignals: LauncherSignals{tc.kill, true, true}}, time.Now()
		for i, sig := range tc.sigs {
			n = n.WithSignal(sig, start.Add(time.Duration(10*i)*s))
		}
		driver, all := n.GraceDeadlines(5 * s)
		if d, a := driver.Sub(start).Round(time.Millisecond), all.Sub(start); d != tc.driver ||
			a != tc.all || n.ByLauncher != tc.byLauncher {
			t.Errorf("%s: the driver has %s, all have %s, by the launcher: %v", tc.name, d, a, n.ByLauncher)
		}
	}
}

// TestEndSignals verifies which signals end a run: ALRM only under a launcher whose time limit it is.
func TestEndSignals(t *testing.T) {
	for sig, want := range map[syscall.Signal][2]bool{
		syscall.SIGTERM: {true, true}, syscall.SIGINT: {true, true}, syscall.SIGALRM: {false, true},
		syscall.SIGUSR1: {false, false}, syscall.SIGHUP: {false, false},
	} {
		for i, isFinal := range []bool{false, true} {
			if got := (LauncherSignals{AlarmIsFinal: isFinal}).IsEnd(sig); got != want[i] {
				t.Errorf("%v ends the run: %t (ALRM is final: %t)", sig, got, isFinal)
			}
		}
	}
}

func TestNotices(t *testing.T) {
	const (
		term, intr, cont = syscall.SIGTERM, syscall.SIGINT, syscall.SIGCONT
		ms, s            = time.Millisecond, time.Second
		never            = time.Duration(-1)
	)
	for _, tc := range []struct {
		name        string
		seen        []notice
		end         syscall.Signal
		driver, all time.Duration
	}{
		{"nothing that matters", []notice{{syscall.SIGUSR1, 0}, {cont, s}}, 0, never, never},
		{"TERM alone is early", []notice{{term, 0}}, term, never, never},
		{"INT alone", []notice{{intr, 0}}, intr, never, never},
		{"scancel", []notice{{cont, 0}, {term, 10 * ms}}, term, 15*s + 10*ms, 20*s + 10*ms},
		{"scancel, told in another order", []notice{{term, 0}, {cont, 10 * ms}}, term, 15 * s, 20 * s},
		{"a time limit, which has echoes", []notice{{cont, 0}, {term, 0}, {cont, s}, {term, s}}, term, 15 * s, 20 * s},
		{"a CONT as long ago as may be", []notice{{cont, 0}, {term, s}}, term, 16 * s, 21 * s},
		{"a TERM as late as an echo may be", []notice{{term, 0}, {term, 2 * s}}, term, never, never},
		{"a CONT of long ago", []notice{{cont, 0}, {term, 3 * s}}, term, never, never},
		{"a CONT much later", []notice{{term, 0}, {cont, 3 * s}}, term, never, never},
		{"the time limit after an early TERM",
			[]notice{{term, 0}, {cont, 120 * s}, {term, 120 * s}}, term, 135 * s, 140 * s},
		{"the same, told in another order", []notice{{term, 0}, {term, 120 * s},
			{cont, 120*s + 10*ms}}, term, 135 * s, 140 * s},
		{"and its echo", []notice{{term, 0}, {cont, 120 * s}, {term, 120 * s}, {cont, 121 * s},
			{term, 121 * s}}, term, 135 * s, 140 * s},
		{"and a second thought", []notice{{term, 0}, {cont, 120 * s}, {term, 120 * s},
			{term, 123 * s}}, term, 123*s + ambiguityWindow, 123*s + ambiguityWindow},
		{"the time limit after INT", []notice{{intr, 0}, {cont, 60 * s}, {term, 60 * s}}, intr, 75 * s, 80 * s},
		{"scancel for the second time", []notice{{cont, 0}, {term, 0}, {cont, 5 * s},
			{term, 5 * s}}, term, 5*s + ambiguityWindow, 5*s + ambiguityWindow},
		{"an echo of an early TERM", []notice{{term, 0}, {term, s}}, term, never, never},
		{"a second TERM hurries", []notice{{term, 0}, {term, 3 * s}}, term, 3*s + ambiguityWindow,
			3*s + ambiguityWindow},
		{"a second INT hurries", []notice{{intr, 0}, {intr, 3 * s}}, intr, 3*s + ambiguityWindow,
			3*s + ambiguityWindow},
		{"INT hurries after TERM", []notice{{term, 0}, {intr, 3 * s}}, term, 3*s + ambiguityWindow,
			3*s + ambiguityWindow},
		{"a third changes nothing", []notice{{term, 0}, {term, 3 * s}, {term, 9 * s}}, term, 3*s +
			ambiguityWindow, 3*s + ambiguityWindow},
		{"a time limit does not undo hurry", []notice{{term, 0}, {term, 3 * s}, {cont, 9 * s},
			{term, 9 * s}}, term, 3*s + ambiguityWindow, 3*s + ambiguityWindow},
		{"a hurry in the services' time", []notice{{cont, 0}, {term, 0}, {term, 18 * s}}, term,
			15 * s, 18*s + ambiguityWindow},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var n SignalHistory
			start := time.Now()
			for _, seen := range tc.seen {
				n = n.WithSignal(seen.sig, start.Add(seen.at))
			}
			since := func(at time.Time) time.Duration {
				if at.IsZero() {
					return never
				}
				return at.Sub(start)
			}
			driver, all := n.GraceDeadlines(5 * s)
			if n.endSignal != tc.end || since(driver) != tc.driver || since(all) != tc.all {
				t.Errorf("it ends by %v, the driver after %s, all after %s; want %v, %s, %s",
					n.endSignal, since(driver), since(all), tc.end, tc.driver, tc.all)
			}
		})
	}
}
