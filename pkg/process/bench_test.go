package process

import (
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func BenchmarkExec(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExecOutput measures a start with pipes for the output, as children have them.
func BenchmarkExecOutput(b *testing.B) {
	for b.Loop() {
		if _, err := exec.Command("/bin/true").CombinedOutput(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	s := newSupervisor(b)
	for b.Loop() {
		c, err := s.Start(b.Context(), Spec{Name: "true", Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		<-c.Done()
	}
}

func BenchmarkStartStop(b *testing.B) {
	s := newSupervisor(b)
	for b.Loop() {
		c, err := s.Start(b.Context(), Spec{Name: "true", Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		<-c.Done()
		c.Stop(b.Context(), 0, unix.SIGKILL)
	}
}

// BenchmarkFirstChild measures the first child, including the guard's concurrent start, and the end
// of both.
func BenchmarkFirstChild(b *testing.B) {
	for b.Loop() {
		s, err := NewSupervisor(launcher.JobVariables())
		if err != nil {
			b.Fatal(err)
		}
		c, err := s.Start(b.Context(), Spec{Name: "true", Argv: []string{"/bin/true"}})
		if err != nil {
			b.Fatal(err)
		}
		<-c.Done()
		b.StopTimer()
		closeSupervisor(b, s)
		b.StartTimer()
	}
}

func BenchmarkLook(b *testing.B) {
	l := newProcScanner(bootTicks())
	for b.Loop() {
		if _, err := l.scanProcesses(); err != nil {
			b.Fatal(err)
		}
	}
}
