package health

import (
	"reflect"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestFailureSet verifies the verdict on failures that arrive one after the other, and which nodes
// are lost then.
func TestFailureSet(t *testing.T) {
	now, ended := time.Now(), 0
	var s FailureSet
	passed, earlier, hostOf := []int{}, func() []record.Failure { return nil }, func(int) string { return "" }
	for i, step := range []struct {
		failure ObservedFailure
		lost    map[int]bool
		cause   Kind
	}{
		{ObservedFailure{Failure: record.Failure{Kind: ServiceDied}, ObservedAt: now}, map[int]bool{}, ServiceDied},
		{ObservedFailure{
			Failure:    record.Failure{Kind: HostLost, LostNodes: []int{1, 2}, RecordDelay: time.Second},
			ObservedAt: now,
		}, map[int]bool{1: true, 2: true}, HostLost},
	} {
		s.Add(func() { ended++ }, step.failure)
		if got := s.LostNodes(); ended != i+1 || !reflect.DeepEqual(got, step.lost) {
			t.Errorf("step %d: %v are lost, want %v; ended: %d", i, got, step.lost, ended)
		}
		if got := s.Verdict(passed, earlier, hostOf); got.Cause.Kind != step.cause {
			t.Errorf("step %d: the cause is %s, want %s", i, got.Cause.Kind, step.cause)
		}
	}
}

func TestLossWaitTime(t *testing.T) {
	const silence, heartbeat = 5 * time.Second, time.Second
	for kind, want := range map[Kind]time.Duration{
		ServiceDied: silence, SandboxDied: silence, RankFailed: silence, RankAborted: silence,
		HostLost: heartbeat, DaemonDied: heartbeat,
		Terminated: heartbeat, Interrupted: heartbeat, JobDeadlinePassed: heartbeat, Signalled: heartbeat,
		Launch: 0, CheckFailed: 0, DeadlinePassed: 0,
	} {
		if got := LossWaitTime(kind, silence, heartbeat); got != want {
			t.Errorf("the verdict on %s waits %s, want %s", kind, got, want)
		}
	}
}
