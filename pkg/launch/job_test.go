package launch

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

func TestCode(t *testing.T) {
	ended := func(code int) process.Exit { return process.Exit{Code: code} }
	killed := process.Exit{Code: -1, Signal: syscall.SIGKILL}
	for _, tc := range []struct {
		name  string
		exits []process.Exit
		want  int
	}{
		{"alone", []process.Exit{ended(3)}, 3},
		{"the head's, whatever the workers'", []process.Exit{ended(0), ended(76), killed}, 0},
		{"a worker was killed", []process.Exit{ended(76), killed, ended(76)}, 76},
		{"the head was killed", []process.Exit{killed, ended(76), ended(76)}, 76},
		{"the head and a worker were killed", []process.Exit{killed, killed, ended(76)}, 76},
		{"all were killed", []process.Exit{killed, killed}, 137},
		{"the head was killed at the end", []process.Exit{killed, ended(0)}, 137},
		{"the head alone was killed", []process.Exit{killed}, 137},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ExitCode(tc.exits); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}

// TestPatience checks that a daemon that does not end after the others is killed, and that a head
// goes on if the others have only been killed.
func TestPatience(t *testing.T) {
	for _, tc := range []struct {
		name   string
		lines  []string // of the daemons
		code   int
		killed []int
	}{
		{"a worker is frozen", []string{"exit 3", "kill -STOP $$"}, 3, []int{1}},
		{"the head is frozen", []string{"kill -STOP $$", "exit 76", "exit 76"}, 76, []int{0}},
		{"the head goes on without spares", []string{"sleep 0.5; exit 3", "kill -KILL $$"}, 3, nil},
		{"all end", []string{"exit 3", "sleep 0.01"}, 3, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var killed []int
			job := Job{EndTimeout: 300 * time.Millisecond, OnKill: func(node int) { killed = append(killed, node) }}
			for _, line := range tc.lines {
				job.Specs = append(job.Specs, process.Spec{Name: "daemon",
					Argv: []string{"sh", "-c", line}, Env: os.Environ()})
			}
			exits, err := job.Run()
			if err != nil {
				t.Fatal(err)
			}
			if code := ExitCode(exits); code != tc.code || !slices.Equal(killed, tc.killed) {
				t.Errorf("the code is %d, and %v were killed, want %d and %v", code, killed, tc.code, tc.killed)
			}
		})
	}
}
