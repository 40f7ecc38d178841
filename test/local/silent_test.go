package local

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestSilentDaemon stops a daemon for longer than the peer timeout, in a run of roles with a spare. It
// checks that the processes of its node have ended when the spare starts their instance, that the
// daemon, when it goes on, starts none of them again, and that the run ends as if it were not there.
func TestSilentDaemon(t *testing.T) {
	t.Parallel()
	const file = `
spares: 1
roles:
- name: server
  nodes: 2
  restarts: 3
  command: >
    own=$D/$BRINGUPD_ROLE_INDEX.$BRINGUPD_GENERATION;
    [ $BRINGUPD_GENERATION = 0 ] || grep -s State /proc/$(cat $D/1.0)/status >$D/old;
    echo $$ >$own.new; mv $own.new $own; exec sleep 300
- {name: main, nodes: head, primary: true, command: "until [ -e $D/end ]; do sleep 0.1; done"}
`
	dir := t.TempDir()
	config := filepath.Join(dir, "job.yaml")
	if err := os.WriteFile(config, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(filepath.Join(bin, "bringupd"), "local", "--nodes=3", "--job-id=j", "--peer-timeout=2s", "--log-dir="+filepath.Join(dir, "logs"), "--config="+config)
	cmd.Env = append(os.Environ(), "D="+dir, "GORACE=exitcode=199 atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	await := func(path ...string) {
		t.Helper()
		name := filepath.Join(append([]string{dir}, path...)...)
		for deadline := time.Now().Add(ceiling); ; time.Sleep(step) {
			if _, err := os.Stat(name); err == nil {
				return
			}
			if time.Now().After(deadline) {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				<-ended
				t.Fatalf("there is no %s:\n%s", name, said.String())
			}
		}
	}
	await("0.0")
	await("1.0")
	await("logs", "j", "control", "go")
	data, err := os.ReadFile(filepath.Join(dir, "logs", "j", "nodes", "0001.joined"))
	var joined record.Joined
	if err == nil {
		err = json.Unmarshal(data, &joined)
	}
	if err != nil || joined.PID == 0 {
		t.Fatalf("cannot find the daemon of node 1: %v", err)
	}
	if err := syscall.Kill(joined.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await("1.1")
	// The daemon cannot reap its child.
	if old, err := os.ReadFile(filepath.Join(dir, "old")); err != nil || len(old) > 0 && !strings.Contains(string(old), "zombie") {
		t.Errorf("when the spare started the instance, the old process was in %q, error %v", old, err)
	}
	if err := syscall.Kill(joined.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await("logs", "j", "nodes", "0001.failed")
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the job has ended with %v:\n%s", err, said.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "1.2")); err == nil {
		t.Errorf("the instance has been started once more:\n%s", said.String())
	}
}
