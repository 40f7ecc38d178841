package signal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
	"golang.org/x/sys/unix"
)

// exchange exchanges the names of two directories.
func exchange(t *testing.T, a, b string) {
	t.Helper()
	must(t, unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE))
}

// lure makes a tree that resembles a run's, and that every user can read and write.
func lure(t *testing.T, dir, run string) {
	t.Helper()
	for _, sub := range []string{"", run, run + "/" + ControlDir, run + "/" + NodesDir, run + "/" +
		LogsDir, run + "/" + EventsDir, BadNodesDir} {
		path := filepath.Join(dir, sub)
		must(t, errors.Join(os.Mkdir(path, 0o777), os.Chmod(path, 0o777)))
	}
}

// tree returns the paths of all entries below a directory.
func tree(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		paths = append(paths, strings.TrimPrefix(path, dir))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return paths
}

// TestLogDirectoryIsExchanged verifies that a directory that takes the name of the log directory
// after its verification is neither written nor read.
func TestLogDirectoryIsExchanged(t *testing.T) {
	p := newPlace(t)
	p.Access = p.withDefaults()
	head := create(t, p)
	worker := p
	worker.NodeIndex, worker.Access = 1, Access{}
	joined, _, err := NewFinder(worker).AwaitRun(within(t))
	must(t, err)
	there, away := p.LogDir, p.LogDir+"-away"
	lure(t, away, head.Name())
	before := tree(t, away)
	exchange(t, there, away)
	log := head.NewLogFile(LogsDir, "head.log")
	for what, err := range map[string]error{
		"publish": joined.PublishRecord(within(t), NodesDir, NodeName(1, 4, record.StateJoined),
			&record.Joined{PID: 17}, true),
		"mark":      head.WriteMark(within(t), ControlDir, NameGateOpen),
		"beat":      joined.WriteHeartbeat(within(t), NodesDir),
		"once":      head.PublishOnce(within(t), NameResult, &record.Result{}),
		"make":      head.EnsureSubdir(within(t), ExecDir),
		"latest":    head.UpdateLatestLink(within(t)),
		"log":       func() error { _, err := log.Write([]byte("line\n")); return errors.Join(err, log.Close()) }(),
		"bad nodes": func() error { _, err := head.RecordBadNodes(within(t), []string{"n1"}); return err }(),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// All records are written to and read from the original directory under its new name.
	if shown, err := head.ListNames(within(t), NodesDir); err != nil ||
		!slices.Contains(shown, NodeName(1, 4, record.StateJoined)) {
		t.Errorf("nodes: %v, %v", shown, err)
	}
	var rec record.Joined
	if err := head.ReadRecord(within(t), NodesDir, NodeName(1, 4, record.StateJoined),
		&rec); err != nil || rec.PID != 17 {
		t.Errorf("read %+v: %v", rec, err)
	}
	if target, err := os.Readlink(filepath.Join(away, LatestLink)); err != nil || target != head.Name() {
		t.Errorf("the link points at %q: %v", target, err)
	}
	if err := head.RemoveAll(within(t)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(away, head.Name())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run directory is there still: %v", err)
	}
	if after := tree(t, there); !slices.Equal(after, before) {
		t.Errorf("the stranger's directory has %v, and had %v", after, before)
	}
}

// TestStrangersLogDirectory verifies that another node that opens the path meanwhile refuses the
// other user's directory and reads none of its records.
func TestStrangersLogDirectory(t *testing.T) {
	p := newPlace(t)
	head := create(t, p)
	away := p.LogDir + "-away"
	lure(t, away, head.Name())
	if os.Geteuid() == 0 {
		must(t, os.Chown(away, 1, 1))
	}
	exchange(t, p.LogDir, away)
	p.Access = Access{}
	_, _, err := NewFinder(p).AwaitRun(within(t))
	if _, refused := errors.AsType[*DirError](err); !refused {
		t.Errorf("got %v", err)
	}
}

// TestHeldDirectoryIsStale verifies that a descriptor that has become stale on the server or the
// mount is replaced after the directory has been verified again.
func TestHeldDirectoryIsStale(t *testing.T) {
	for _, tc := range []struct {
		name  string
		err   error
		fails int // number of failing calls
		theirs,
		well bool
	}{
		{"the server began anew", syscall.ESTALE, 1, false, true},
		{"the mount began anew", syscall.ENOTCONN, 1, false, true},
		{"it stays so", syscall.ENOTCONN, 99, false, false},
		{"another user has the name now", syscall.ENOTCONN, 1, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			fails, opened := 0, 0
			d := NewDiskFS(before(func(op Op, path string) error {
				if op == OpOpen && path == dir {
					opened++
				}
				if op == OpMkdir && fails > 0 {
					fails--
					return tc.err
				}
				return nil
			})).(diskFS)
			theirs := false
			vet := func(FileAttributes) error {
				if theirs {
					return &DirError{Path: dir, Problem: "it belongs to another"}
				}
				return nil
			}
			if _, err := d.HoldDir(dir, vet); err != nil {
				t.Fatal(err)
			}
			fails, theirs = tc.fails, tc.theirs
			err := d.ChangeName(OpMkdir, "", filepath.Join(dir, "sub"))
			var refused *DirError
			if (err == nil) != tc.well || errors.As(err, &refused) != tc.theirs || opened != 2 {
				t.Errorf("%v, opened %d times", err, opened)
			}
			_, err = os.Stat(filepath.Join(dir, "sub"))
			if (err == nil) != tc.well {
				t.Errorf("the directory: %v", err)
			}
		})
	}
}

// TestDraftsAreNew verifies that a temporary file has an unpredictable name and is never an
// existing file.
func TestDraftsAreNew(t *testing.T) {
	p := newPlace(t)
	var drafts []string
	share := &faulty{onWrite: func(path string, data []byte) error {
		if strings.HasPrefix(filepath.Base(path), ".") && len(data) > 0 {
			drafts = append(drafts, path)
		}
		return nil
	}}
	p.FS = share
	d := create(t, p)
	for range 2 {
		publish(t, d, NodesDir, NodeName(0, 4, record.StateJoined), &record.Mark{})
	}
	must(t, d.PublishOnce(within(t), NameResult, &record.Result{}))
	if len(drafts) != 3 || drafts[0] == drafts[1] {
		t.Errorf("the drafts are %v", drafts)
	}
	for _, path := range drafts {
		if at := strings.LastIndexByte(path, '.'); len(path)-at-1 != 32 {
			t.Errorf("%s has less than 128 random bits", path)
		}
	}
	must(t, os.WriteFile(filepath.Join(d.Path(), "there"), []byte("old"), 0o666))
	if err := plain.WriteFile(filepath.Join(d.Path(), "there"), []byte("new"), false); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there is written: %v", err)
	}
}
