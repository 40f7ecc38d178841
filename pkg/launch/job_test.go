package launch

import (
	"syscall"
	"testing"

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
