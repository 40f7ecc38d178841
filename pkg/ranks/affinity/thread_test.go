package affinity

import (
	"encoding/json"
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
	var p Affinity
	err := json.Unmarshal([]byte(os.Getenv(EnvVariable)), &p)
	difference, unread := p.CompareProcess(os.Getpid())
	cpus, _ := threadAffinity(os.Getpid())
	maps, _ := os.ReadFile("/proc/self/numa_maps") // of each mapping: its address and its policy
	words := strings.Fields(string(maps) + " - -")
	fmt.Printf("cpus %v, memory %s, difference %q, %v, %v", cpus, words[1], difference, unread, err)
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
		restore, note, err := p.BindThread()
		if err != nil {
			t.Errorf("it is not bound: %v", err)
			return
		}
		bound, free := "bind:0", "default"
		if note != "" { // the tests may run in a container
			t.Log(note)
			words := strings.Fields(born(t, p))
			bound = strings.TrimSuffix(words[slices.Index(words, "memory")+1], ",")
			free = bound
		}
		want := fmt.Sprintf(`cpus %v, memory %s, difference "", <nil>, <nil>`, p.CPUs, bound)
		if got := born(t, p); got != want {
			t.Errorf("the child says %s, not %s", got, want)
		}
		if err := restore(); err != nil {
			t.Error(err)
		}
		// After the restore, the affinity of the child differs from p.
		want = fmt.Sprintf(`cpus %v, memory %s, difference "it may also run on CPUs %v; `+
			`its own CPUs are %v", <nil>, <nil>`, before, free, before[:len(before)-1], p.CPUs)
		if got := born(t, p); got != want {
			t.Errorf("the child says %s, not %s", got, want)
		}
	})
}

// TestPrepareFails verifies that places that the kernel would ignore silently are errors, and that
// the thread's affinity is restored. A place without CPUs changes nothing.
func TestPrepareFails(t *testing.T) {
	for _, tc := range []struct {
		name string
		cpus func(own IDSet) IDSet
		says string // empty: no error
	}{
		{"nothing", func(IDSet) IDSet { return nil }, ""},
		{"some CPUs are not there", func(own IDSet) IDSet { return own.union(IDSet{4000}) },
			"the kernel allowed only "},
		{"none is", func(IDSet) IDSet { return IDSet{4000} }, "sched_setaffinity: invalid argument"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			locked(func() {
				before, _ := threadAffinity(0)
				restore, _, err := Affinity{CPUs: tc.cpus(before)}.BindThread()
				switch {
				case tc.says == "" && (err != nil || restore() != nil):
					t.Error(err)
				case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
					t.Errorf("it says %v", err)
				}
				if after, _ := threadAffinity(0); !slices.Equal(before, after) {
					t.Errorf("the thread is on %v, and was on %v", after, before)
				}
			})
		})
	}
}

// TestCompareProcess verifies that an affinity that cannot be read is an error and not a difference,
// and that a process that has restricted itself further has the right place.
func TestCompareProcess(t *testing.T) {
	child := exec.Command("/bin/true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	own, err := threadAffinity(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		p     Affinity
		pid   int
		fails error
	}{
		{"it has ended", Affinity{CPUs: IDSet{0}}, child.Process.Pid, unix.ESRCH},
		{"nothing is bound", Affinity{}, child.Process.Pid, nil},
		{"narrowed", Affinity{CPUs: own.union(IDSet{4000})}, os.Getpid(), nil},
	} {
		difference, err := tc.p.CompareProcess(tc.pid)
		if difference != "" || !errors.Is(err, tc.fails) {
			t.Errorf("%s: %q, %v", tc.name, difference, err)
		}
	}
}
