//go:build stacks

package stackdump

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestRealStacks reads the stacks of real programs with real debuggers. BRINGUPD_TEST_PYSPY is the
// path of py-spy.
func TestRealStacks(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "planted.py")
	const text = `import os, sys, threading
def load():
    return os.read(0, 1)
def spin():
    while True:
        pass
def join():
    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
def main():
    globals()[sys.argv[1]]()
main()
`
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const c = `#include <unistd.h>
static void step(void) { sleep(3600); }
int main(void) { step(); return 0; }`
	for _, tc := range []struct {
		name string
		argv []string
		want []string // alternatives: a Python loop that spins is on one of two lines
	}{
		{"Python in a system call", []string{python, program, "load"}, []string{"in read at planted.py:3"}},
		{"Python in its library", []string{python, program, "join"}, []string{"in Thread.join at planted.py:10"}},
		{"Python that spins", []string{python, program, "spin"},
			[]string{"busy at planted.py:5", "busy at planted.py:6"}},
		{"C", []string{compiled(t, c)}, []string{"in sleep at planted.c:2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("PATH", os.Getenv("BRINGUPD_TEST_PYSPY")+":"+os.Getenv("PATH"))
			node := NodeInspection{Children: []Child{{Name: "rank 0", PID: begin(t, tc.argv...)}},
				ReadStacks: true, Duration: time.Second}
			for deadline := time.Now().Add(ceiling); ; {
				var last ChildReport
				node.InspectChildren(t.Context(), func(seen ChildReport) { last = seen })
				for _, want := range tc.want {
					if last.describeActivity() == want {
						return
					}
				}
				if time.Now().After(deadline) {
					t.Fatalf("it says %q, want one of %q: %+v, %+v", last.describeActivity(),
						tc.want, last.Process, last.Stack)
				}
			}
		})
	}
}
