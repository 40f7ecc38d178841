package signal

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// noLinks is a file system without hard links that loses a rename.
type noLinks struct{ SharedFS }

func (s noLinks) ChangeName(how NameChange, from, to string) error {
	switch how {
	case MakeLink:
		return syscall.EPERM
	case RenamePath:
		if strings.HasPrefix(filepath.Base(to), ".try-") {
			return syscall.EXDEV
		}
	}
	return s.SharedFS.ChangeName(how, from, to)
}

// overwriting is a file system whose links replace existing names.
type overwriting struct{ SharedFS }

func (s overwriting) ChangeName(how NameChange, from, to string) error {
	if err := s.SharedFS.ChangeName(how, from, to); how != MakeLink || !os.IsExist(err) {
		return err
	}
	return nil
}

func TestTryWhereLinksOverwrite(t *testing.T) {
	p := newPlace(t)
	p.FS = overwriting{NewDiskFS(new(CallMeter)).(diskFS)}
	got, err := create(t, p).TestCapabilities(within(t))
	if err != nil || !strings.Contains(got.Link, "a hard link can replace") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestTry(t *testing.T) {
	d := create(t, newPlace(t))
	got, err := d.TestCapabilities(within(t))
	if err != nil || got != (Capabilities{}) {
		t.Errorf("a local file system: %+v, %v", got, err)
	}
	p := newPlace(t)
	p.FS = noLinks{NewDiskFS(new(CallMeter)).(diskFS)}
	d = create(t, p)
	got, err = d.TestCapabilities(within(t))
	if err != nil || got.Link != "operation not permitted" || got.Rename != "invalid cross-device link" {
		t.Errorf("one without links: %+v, %v", got, err)
	}
	left, err := os.ReadDir(filepath.Join(d.Path(), LogsDir))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.RemoveAll(filepath.Join(d.Path(), LogsDir)); err != nil {
		t.Fatal(err)
	}
	if _, err = d.TestCapabilities(within(t)); err == nil {
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
