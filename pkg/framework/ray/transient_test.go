package ray

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
)

// TestRayTransient checks the last lines of failed starts, as Ray 2.60.0 printed them.
func TestRayTransient(t *testing.T) {
	tests := []struct {
		file string
		code int
		want bool
	}{
		{"version", 1, false},
		{"flag", 2, false},
		{"number", 2, false},
		{"address", 1, false},
		{"no-address", 1, false},
		{"resources", 1, false},
		{"cpu-resource", 1, false},
		{"long-path", 1, false},
		{"port-twice", 1, false},
		{"no-token", 1, false},
		{"wrong-token", 1, false},
		{"no-auth", 1, false},
		{"no-gcs", 1, true},
		{"other-gcs", 1, true},
		{"gcs-port-taken", 1, true},
		{"client-port-taken", 1, true},
		{"dashboard-port-taken", 1, true},
		{"raylet-timeout", 1, true},
		// It prints nothing here; Ray's own logs contain the reason.
		{"agent-port-taken", 1, false},
	}
	for _, tc := range tests {
		t.Run(tc.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "ray-2.60.0-starts", tc.file+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			if got := isTransient(process.Exit{Code: tc.code}, strings.Split(string(text), "\n")); got != tc.want {
				t.Errorf("got %v for:\n%s", got, text)
			}
		})
	}
}

func TestRayTransientByExit(t *testing.T) {
	busy := []string{"OSError: [Errno 98] Address already in use"}
	tests := []struct {
		name  string
		exit  process.Exit
		lines []string
		want  bool
	}{
		{"a port that is taken", process.Exit{Code: 1}, busy, true},
		{"killed meanwhile", process.Exit{Code: -1, Signal: syscall.SIGKILL}, busy, false},
		{"not found", process.Exit{Code: 127}, busy, false},
		{"says nothing", process.Exit{Code: 1}, nil, false},
		{"refused after a wait", process.Exit{Code: 1},
			[]string{"Failed to connect to GCS at address", "RuntimeError: Version mismatch: The cluster"}, false},
		{"says what is not known", process.Exit{Code: 1}, []string{"RuntimeError: the moon is full"}, false},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := isTransient(tc.exit, tc.lines); got != tc.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
