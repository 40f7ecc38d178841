package affinity

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// helperVariable makes the test's binary print its affinity.
const helperVariable = "BINDING_TEST_HELPER"

func helper() bool {
	if os.Getenv(helperVariable) == "" {
		return false
	}
	p, err := ParseAffinity(os.Getenv(EnvVariable))
	differences, unread := p.CompareProcess(os.Getpid())
	cpus, _ := threadAffinity(os.Getpid())
	runtime.LockOSThread()
	memory, _ := memoryPolicyOf(0)
	fmt.Printf("cpus %v, memory %d %v, differences %q, %v, %v", cpus, memory.mode, memory.nodeSet(), differences, unread, err)
	return true
}

// born returns the output of a child that this thread forks.
func born(t *testing.T, p Affinity) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), helperVariable+"=1")
	child.Env = append(child.Env, p.Environ(func(string) bool { return false })...)
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// locked runs a function on a thread of its own, which is not used again.
func locked(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		do()
	}()
	<-done
}

// TestPrepareIsInherited verifies on this machine that a thread is bound, that the processes it
// forks have the right affinity, and that the thread's own is restored.
func TestPrepareIsInherited(t *testing.T) {
	locked(func() {
		before, err := threadAffinity(0)
		if err != nil || len(before) < 2 {
			t.Errorf("this machine has CPUs %v, %v: it takes two", before, err)
			return
		}
		p := Affinity{CPUs: before[len(before)-1:], Mems: IDSet{0}}
		restore, skipped, err := p.BindThread()
		if err != nil || len(skipped) > 0 {
			t.Errorf("it is not bound: %v, %v", err, skipped)
			return
		}
		want := fmt.Sprintf("cpus %v, memory %d 0, differences [], <nil>, <nil>", p.CPUs, unix.MPOL_BIND)
		if got := born(t, p); got != want {
			t.Errorf("the child says %s, not %s", got, want)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
		// After the restore, the affinity of the child differs from p.
		got := born(t, p)
		for _, part := range []string{
			fmt.Sprintf("cpus %v, memory 0 , ", before), "CPUs " + before[:len(before)-1].String() + "; its own CPUs are " + p.CPUs.String(),
			"its memory policy is default; expected bind:0",
		} {
			if !strings.Contains(got, part) {
				t.Errorf("%q is missing in %s", part, got)
			}
		}
	})
}

func TestPrepareOfNothing(t *testing.T) {
	locked(func() {
		before, _ := threadAffinity(0)
		restore, skipped, err := Affinity{GPUs: []string{"0"}}.BindThread()
		if err != nil || len(skipped) > 0 || restore() != nil {
			t.Errorf("%v, %v", skipped, err)
		}
		if after, _ := threadAffinity(0); !slices.Equal(before, after) {
			t.Errorf("the CPUs were %v, and are %v", before, after)
		}
	})
}

// TestPrepareFails verifies that places that the kernel would ignore silently are errors, and that
// the thread's affinity is restored.
func TestPrepareFails(t *testing.T) {
	for _, tc := range []struct {
		name string
		cpus func(own IDSet) IDSet
		says string
	}{
		{"some CPUs are not there", func(own IDSet) IDSet { return own.union(IDSet{4000}) }, "the kernel allowed only "},
		{"none is", func(IDSet) IDSet { return IDSet{4000} }, "sched_setaffinity: invalid argument"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			locked(func() {
				before, _ := threadAffinity(0)
				_, _, err := Affinity{CPUs: tc.cpus(before), Mems: IDSet{0}}.BindThread()
				if err == nil || !strings.HasPrefix(err.Error(), "cannot bind to CPUs ") || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("it says %v", err)
				}
				after, _ := threadAffinity(0)
				if memory, err := memoryPolicyOf(0); !slices.Equal(before, after) || memory.mode != unix.MPOL_DEFAULT {
					t.Errorf("the thread is on %v, and was on %v; its memory is %v, %v", after, before, memory, err)
				}
			})
		})
	}
}

func TestMemoryIsSkipped(t *testing.T) {
	locked(func() {
		restore, skipped, err := Affinity{Mems: IDSet{0, 700}}.BindThread()
		if err != nil || len(skipped) != 1 || !strings.Contains(skipped[0], "not bound to NUMA nodes 0,700: this process may not use 700, only 0") || restore() != nil {
			t.Errorf("%q, %v", skipped, err)
		}
	})
	for _, tc := range []struct {
		err  error
		says string // empty: only an error is required
	}{
		{fmt.Errorf("x: %w", unix.EPERM), "memory is not bound: the system does not permit it, as in most containers (EPERM)"},
		{fmt.Errorf("x: %w", unix.ENOSYS), "memory is not bound: the kernel does not support NUMA (ENOSYS)"},
		{fmt.Errorf("x: %w", unix.EINVAL), ""},
	} {
		if _, skipped, err := skipIfUnavailable(tc.err); skipped != tc.says || (err == nil) != (tc.says != "") {
			t.Errorf("%v: %q, %v", tc.err, skipped, err)
		}
	}
}

// TestDifferencesOfAProcessThatHasEnded verifies that an affinity that cannot be read is an error
// and not a difference.
func TestDifferencesOfAProcessThatHasEnded(t *testing.T) {
	child := exec.Command("/bin/true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	for _, p := range []Affinity{{CPUs: IDSet{0}}, {Mems: IDSet{0}}} {
		differences, err := p.CompareProcess(child.Process.Pid)
		if len(differences) > 0 || err == nil || !strings.HasPrefix(err.Error(), "cannot read the ") || !errors.Is(err, unix.ESRCH) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%v: %q, %v", p, differences, err)
		}
	}
	if differences, err := (Affinity{}).CompareProcess(child.Process.Pid); differences != nil || err != nil {
		t.Errorf("of nothing: %q, %v", differences, err)
	}
}

// TestDifferencesOfOthers verifies that a kernel thread has no memory policy, and that a process
// that has restricted itself further has the right place.
func TestDifferencesOfOthers(t *testing.T) {
	own, err := threadAffinity(0)
	if err != nil {
		t.Fatal(err)
	}
	if differences, err := (Affinity{CPUs: own.union(IDSet{4000})}).CompareProcess(os.Getpid()); len(differences) > 0 || err != nil {
		t.Errorf("narrowed: %q, %v", differences, err)
	}
}

func TestIsBoundTo(t *testing.T) {
	for policy, want := range map[string]bool{
		"bind:0-1": true, "bind=static:0-1": true, "bind:0,1": true, "bind:0": false, "prefer:0-1": false, "default": false, "interleave:0-1": false, "bind:x": false,
	} {
		if isBoundTo(policy, IDSet{0, 1}) != want {
			t.Errorf("%s is not %v", policy, want)
		}
	}
}
