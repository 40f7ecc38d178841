//go:build testbed

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// anyAbort returns the abort record, whichever node wrote it.
func anyAbort(j *job) record.Abort {
	j.t.Helper()
	found, err := filepath.Glob(filepath.Join(j.runDir(), signal.ControlDir, "abort.*"))
	if err != nil || len(found) == 0 {
		j.t.Fatalf("no abort was published (%v)\n%s", err, &j.stderr)
	}
	var abort record.Abort
	readJSON(j.t, found[0], &abort)
	return abort
}

// TestALogDirectoryThatIsNotShared checks the report for a log directory in /tmp, which every node
// can write, but which is private to each node.
func TestALogDirectoryThatIsNotShared(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.run(t, launch{nodes: 4, logs: "/tmp/logs", driver: []string{"true"}})
	j.wantCode(66)
	if took := time.Since(j.started); took > 30*time.Second {
		t.Errorf("it took %s to tell", took)
	}
	for _, want := range []string{"n[1-3]", "tmpfs", "--log-dir"} {
		if !strings.Contains(j.stderr.String(), want) {
			t.Errorf("the message lacks %q: %s", want, &j.stderr)
		}
	}
}

// TestALogDirectoryThatOneNodeDoesNotSee checks that the other nodes name the one node that does
// not see the share.
func TestALogDirectoryThatOneNodeDoesNotSee(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	hide := bed.OnNode(t.Context(), 2, "mount", "-t", "tmpfs", "tmpfs", bed.Share())
	hide.Dir = "/"
	if out, err := hide.CombinedOutput(); err != nil {
		t.Fatalf("cannot hide the share: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := bed.OnNode(context.Background(), 2, "umount", "--lazy",
			bed.Share()).CombinedOutput(); err != nil {
			t.Errorf("cannot show the share again: %v: %s", err, out)
		}
	})
	j := bed.run(t, launch{nodes: 4, logs: logs, srun: []string{"--chdir=/"},
		flags: []string{"--join-timeout=10s"}, driver: []string{"true"}})
	j.wantCode(66)
	if cause := j.result().Cause; cause == nil || len(cause.LostNodes) != 1 ||
		cause.LostNodes[0] != 2 {
		t.Errorf("the cause is %+v, want node 2 missing", cause)
	}
}

// TestALogDirectoryThatCannotBeUsed checks the message for each unusable log directory.
func TestALogDirectoryThatCannotBeUsed(t *testing.T) {
	bed := claim(t, fewNodes)
	for _, tc := range []struct {
		name string
		make func(t *testing.T, path string)
		says string
	}{
		{"another's", func(t *testing.T, path string) {
			must(t, os.Mkdir(path, 0o755))
			must(t, os.Chown(path, 65534, 65534))
		}, "belongs to nobody"},
		{"group-writable", func(t *testing.T, path string) {
			must(t, os.Mkdir(path, 0o755))
			must(t, os.Chmod(path, 0o775))
		}, "mode is 0775"},
		{"a link", func(t *testing.T, path string) {
			must(t, os.Symlink("/tmp", path))
		}, "symbolic link"},
		{"a file", func(t *testing.T, path string) {
			must(t, os.WriteFile(path, nil, 0o600))
		}, "not a directory"},
		{"without a parent", func(*testing.T, string) {}, "does not exist"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := bed.place(t)
			tc.make(t, path)
			if tc.name == "without a parent" {
				path += "/below"
			}
			j := bed.run(t, launch{nodes: 2, logs: path, driver: []string{"true"}})
			j.wantCode(66)
			if !strings.Contains(j.stderr.String(), tc.says) {
				t.Errorf("the message lacks %q: %s", tc.says, &j.stderr)
			}
		})
	}
}

// TestALogDirectoryThatTakesNothing checks a full and a read-only file system, on the head's node
// only.
func TestALogDirectoryThatTakesNothing(t *testing.T) {
	bed := claim(t, fewNodes)
	for _, tc := range []struct{ name, options, says string }{
		{"full", "size=4k,nr_inodes=4", "no space left"},
		{"read-only", "ro", "read-only"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := "/tmp/" + tc.name
			bed.onNode(t, 0, "mkdir", "-p", path)
			bed.onNode(t, 0, "mount", "-t", "tmpfs", "-o", "mode=0700,"+tc.options, "tmpfs", path)
			t.Cleanup(func() { bed.onNode(t, 0, "umount", path) })
			j := bed.run(t, launch{nodes: 1, logs: path, driver: []string{"true"}})
			j.wantCode(66)
			if !strings.Contains(j.stderr.String(), tc.says) {
				t.Errorf("the message lacks %q: %s", tc.says, &j.stderr)
			}
		})
	}
}

func (bed *lane) onNode(t *testing.T, node int, argv ...string) {
	t.Helper()
	if out, err := bed.UserOnNode(context.Background(), node, argv...).CombinedOutput(); err != nil {
		t.Errorf("cannot run %v on n%d: %v: %s", argv, node, err, out)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
