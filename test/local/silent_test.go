package local

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
	config := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(config, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	j := startLocal(t, 3, []string{"--peer-timeout=2s", "--config=" + config}, "")
	for _, name := range []string{"0.0", "1.0", "logs/j/control/go"} {
		j.NeedFile(filepath.Join(j.Dir, name))
	}
	daemon := j.Daemon(1)
	j.Signal(daemon, syscall.SIGSTOP)
	j.NeedFile(filepath.Join(j.Dir, "1.1"))
	// The daemon cannot reap its child.
	old, err := os.ReadFile(filepath.Join(j.Dir, "old"))
	if err != nil || len(old) > 0 && !strings.Contains(string(old), "zombie") {
		t.Errorf("when the spare started the instance, the old process was in %q, error %v", old, err)
	}
	j.Signal(daemon, syscall.SIGCONT)
	j.NeedFile(j.Path("nodes", "0001.failed"))
	j.Write("end", "")
	if code := j.AwaitEnd(ceiling); code != 0 {
		t.Errorf("the job has ended with %d:\n%s", code, &j.Said)
	}
	if _, err := os.Stat(filepath.Join(j.Dir, "1.2")); err == nil {
		t.Errorf("the instance has been started once more:\n%s", &j.Said)
	}
}
