package process

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// narrowed binds the calling thread to the first of the CPUs that this process may use, and with it
// the children that it forks.
func narrowed() (undo func(), err error) {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, err
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	return func() { _ = unix.SchedSetaffinity(0, &all) }, unix.SchedSetaffinity(0, &one)
}

func TestPrepareIsInherited(t *testing.T) {
	s := newSupervisor(t)
	cpus := func(prepare func() (func(), error)) string {
		spec := shell("grep Cpus_allowed_list /proc/self/status")
		spec.Prepare = prepare
		c := start(t, s, spec)
		finished(t, c)
		return strings.Join(c.LastLines(), "\n")
	}
	before := cpus(nil)
	if own := cpus(narrowed); own == before || strings.ContainsAny(own, ",-") {
		t.Errorf("a child that is to run on one CPU has %q, another %q", own, before)
	}
	for range 4 { // the thread that has forked it forks others
		if after := cpus(nil); after != before {
			t.Errorf("a child that comes later has %q, and not %q", after, before)
		}
	}
}

func TestPrepareFails(t *testing.T) {
	s := newSupervisor(t)
	spec := shell("exit 0")
	refusal := errors.New("no such place")
	spec.Prepare = func() (func(), error) { return nil, refusal }
	if _, err := s.Start(t.Context(), spec); !errors.Is(err, refusal) {
		t.Errorf("Start: %v; want %v", err, refusal)
	}
}
