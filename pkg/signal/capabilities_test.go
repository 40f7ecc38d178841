package signal

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// noRename is a file system on which a rename across directories fails.
type noRename struct{ SharedFS }

func (s noRename) ChangeName(how NameChange, from, to string) error {
	if how == RenamePath && strings.HasPrefix(filepath.Base(to), ".try-") {
		return syscall.EXDEV
	}
	return s.SharedFS.ChangeName(how, from, to)
}

func TestTryRename(t *testing.T) {
	d := create(t, newPlace(t))
	if problem, err := d.TestRename(within(t)); err != nil || problem != "" {
		t.Errorf("a local file system: %s, %v", problem, err)
	}
	p := newPlace(t)
	p.FS = noRename{NewDiskFS(new(CallMeter)).(diskFS)}
	d = create(t, p)
	if problem, err := d.TestRename(within(t)); err != nil || problem != "invalid cross-device link" {
		t.Errorf("one without renames: %s, %v", problem, err)
	}
	left, err := os.ReadDir(filepath.Join(d.Path(), LogsDir))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.RemoveAll(filepath.Join(d.Path(), LogsDir)); err != nil {
		t.Fatal(err)
	}
	if _, err = d.TestRename(within(t)); err == nil {
		t.Error("no error where nothing can be written")
	}
}

func TestRemoveRun(t *testing.T) {
	d := create(t, newPlace(t))
	if err := d.RemoveAll(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(d.Path()); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
