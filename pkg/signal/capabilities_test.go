package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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

func TestEndlessRuns(t *testing.T) {
	p := newPlace(t)
	old := time.Now().Add(-48 * time.Hour)
	age := func(path string) {
		t.Helper()
		err := filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chtimes(name, old, old)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	make := func(run string) *Dir {
		p.Run = run
		return create(t, p)
	}
	make("1.0") // in progress
	age(make("2.0").Path())
	ended := make("3.0")
	if err := os.WriteFile(filepath.Join(ended.Path(), NameResult), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	age(ended.Path())
	quiet := make("4.0") // in progress, visible only by its log
	age(quiet.Path())
	log := filepath.Join(quiet.Path(), LogsDir, "head.log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Dir(log), old, old); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(p.LogDir, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	age(other)
	age(make("5.0").Path()) // another user's run
	p.FS = foreign{plain, "5.0"}
	beats := make("6.0") // in progress, visible only by its heartbeats
	age(beats.Path())
	now := time.Now()
	if err := os.Chtimes(filepath.Join(beats.Path(), NodesDir), now, now); err != nil {
		t.Fatal(err)
	}
	got, err := FindStaleRuns(within(t), p, 24*time.Hour)
	if err != nil || len(got) != 1 || filepath.Base(got[0].Path) != "2.0" || got[0].UnchangedFor < 47*time.Hour {
		t.Errorf("got %+v, %v", got, err)
	}
	p.LogDir = filepath.Join(p.LogDir, "none")
	if got, err = FindStaleRuns(within(t), p, 0); err != nil || got != nil {
		t.Errorf("where there is no log directory: %+v, %v", got, err)
	}
}

// TestStaleRunsLimit verifies that the names beyond the limit are the last ones in their order.
func TestStaleRunsLimit(t *testing.T) {
	p, inspected := newPlace(t), map[string]bool{}
	p.FS = &faulty{
		onList: func(string) (names []string, _ error) {
			for i := range maxScannedRuns + 1 {
				names = append([]string{fmt.Sprintf("%04d", i)}, names...)
			}
			return names, nil
		},
		onLook: func(path string) error {
			inspected[filepath.Base(path)] = true
			return syscall.EACCES
		},
	}
	if _, err := FindStaleRuns(within(t), p, 0); err != nil || len(inspected) != maxScannedRuns || inspected["1000"] {
		t.Errorf("inspected %d names, the last one: %v; %v", len(inspected), inspected["1000"], err)
	}
}

// TestEndlessRunsStall verifies that a run that does not answer ends the search, which returns the
// runs found before.
func TestEndlessRunsStall(t *testing.T) {
	p := newPlace(t)
	old := time.Now().Add(-48 * time.Hour)
	for _, run := range []string{"1.0", "2.0"} {
		p.Run = run
		if err := os.Chtimes(create(t, p).Path(), old, old); err != nil {
			t.Fatal(err)
		}
	}
	hang := make(chan struct{})
	defer close(hang)
	p.FS = &faulty{
		onList: func(path string) ([]string, error) {
			if path == p.LogDir {
				return []string{"1.0", "2.0"}, nil
			}
			return nil, nil
		},
		onLook: func(path string) error {
			if filepath.Base(path) == "2.0" {
				<-hang
				return syscall.EIO
			}
			return nil
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := FindStaleRuns(ctx, p, 24*time.Hour)
	if _, stalled := errors.AsType[*StallError](err); !stalled {
		t.Errorf("got %v", err)
	}
}
