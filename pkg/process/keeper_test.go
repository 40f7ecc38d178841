package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKeeperEndsWhatHides covers a killed proxy that leaves ranks in sessions of their own, which
// neither their environment nor their parent identifies.
func TestKeeperEndsWhatHides(t *testing.T) {
	s := newSupervisor(t)
	const ceiling = time.Minute // a scan of /proc on a busy machine takes seconds
	for name, tc := range map[string]struct {
		script string
		code   int
	}{
		"killed":     {`(exec env -i setsid sleep 1000) & echo $! > "$FILE"; sleep 0.2; kill -9 $$`, 137},
		"daemonizes": {`(setsid sh -c 'echo $$ > "$FILE"; exec sleep 1000' &); until [ -s "$FILE" ]; do sleep 0.01; done; exit 3`, 3},
		"stubborn":   {`(exec setsid sh -c 'trap "" TERM; echo $$ > "$FILE"; while :; do sleep 0.1; done') & sleep 0.5; exit 4`, 4},
		"alone":      {`echo $$ > "$FILE"; exit 7`, 7},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pid")
			child, err := s.Start(t.Context(), Spec{Name: name, Argv: WithKeeper("/bin/sh", "-c", tc.script), Env: append(os.Environ(), "FILE="+file, "GORACE=atexit_sleep_ms=0")})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			<-child.Ended()
			if code := child.Exit().ShellStatus(); code != tc.code || time.Since(began) > ceiling {
				t.Errorf("it has ended by %d after %s", code, time.Since(began))
			}
			text, err := os.ReadFile(file)
			pid, atoiErr := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil || atoiErr != nil {
				t.Fatal(err, atoiErr)
			}
			if err := syscall.Kill(pid, 0); err == nil {
				t.Errorf("process %d lives on", pid)
			}
		})
	}
}

func TestTree(t *testing.T) {
	s := newSupervisor(t)
	child, err := s.Start(t.Context(), Spec{Name: "tree", Argv: []string{"sh", "-c", "(sleep 1000; :) & wait"}, Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	var found []TreeProcess
	// The third process is a shell, too, until it has executed sleep.
	complete := func() bool { return len(found) == 3 && found[2].Name == "sleep" }
	for end := time.Now().Add(30 * time.Second); !complete() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		found = ProcessTree(child.PID())
	}
	if !complete() || found[0].PID != child.PID() || found[1].Parent != child.PID() || found[2].Parent != found[1].PID {
		t.Errorf("of %d there are %+v", child.PID(), found)
	}
	child.Stop(t.Context(), time.Second, syscall.SIGTERM)
}
