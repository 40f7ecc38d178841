package memory

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// TestShare checks that names which one client creates, renames, links and removes are visible to
// another one.
func TestShare(t *testing.T) {
	share := NewShare("/share")
	share.Clock = time.Now
	meter := new(signal.CallMeter)
	one, other := share.Access(meter), share.Access(new(signal.CallMeter))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(one.ChangeName(signal.MakeDir, "", "/share/logs"))
	if err := other.ChangeName(signal.MakeDir, "", "/share/logs"); !errors.Is(err, os.ErrExist) {
		t.Errorf("a directory is made twice: %v", err)
	}
	must(one.WriteFile("/share/logs/.new", []byte("text"), true))
	must(one.ChangeName(signal.RenamePath, "/share/logs/.new", "/share/logs/first"))
	must(one.ChangeName(signal.MakeLink, "/share/logs/first", "/share/logs/second"))
	must(one.ChangeName(signal.MakeSymlink, "first", "/share/logs/latest"))
	log, err := one.OpenAppend("/share/logs/log")
	must(err)
	for range 2 {
		_, err = log.Write([]byte("line\n"))
		must(err)
	}
	names, err := other.ListDir("/share/logs", nil)
	slices.Sort(names)
	if err != nil || !slices.Equal(names, []string{"first", "latest", "log", "second"}) {
		t.Errorf("the names are %v: %v", names, err)
	}
	if data, err := other.ReadFile("/share/logs/second"); err != nil || string(data) != "text" {
		t.Errorf("it reads %q: %v", data, err)
	}
	data, facts, err := other.ReadRange("/share/logs/log", 5, 3)
	if err != nil || string(data) != "lin" || facts.Size != 10 || facts.ModTime.IsZero() {
		t.Errorf("the part is %q of %+v: %v", data, facts, err)
	}
	if target, err := other.ReadLink("/share/logs/latest"); err != nil || target != "first" {
		t.Errorf("the link points at %q: %v", target, err)
	}
	share.Change("/share/logs/first", func(f *File) { f.Kind |= 0o644 })
	facts, err = other.Stat("/share/logs/first")
	if err != nil || facts.Mode != 0o644 || facts.Owner != os.Geteuid() {
		t.Errorf("the facts are %+v: %v", facts, err)
	}
	copied := filepath.Join(t.TempDir(), "logs")
	must(share.Export("/share/logs", copied))
	data, err = os.ReadFile(filepath.Join(copied, "log"))
	if err != nil || string(data) != "line\nline\n" {
		t.Errorf("the copy has %q: %v", data, err)
	}
	must(other.ChangeName(signal.RemoveTree, "", "/share/logs"))
	if _, err := one.ReadFile("/share/logs/first"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was removed is read: %v", err)
	}
	kinds := meter.CallStats().ByKind
	if kinds[string(signal.OpLink)] != 1 || kinds[string(signal.OpMkdir)] != 1 {
		t.Errorf("the meter has counted %v", kinds)
	}
}

// refusing is a porter that refuses all calls of one kind.
type refusing struct {
	signal.CallMeter
	op  signal.Op
	err error
}

func (r *refusing) BeginCall(op signal.Op, path string) (time.Time, error) {
	if op == r.op {
		return time.Time{}, r.err
	}
	return r.CallMeter.BeginCall(op, path)
}

// TestShareRefuses checks the errors of a full disk.
func TestShareRefuses(t *testing.T) {
	share := NewShare("/share")
	client := share.Access(&refusing{op: signal.OpWrite, err: syscall.ENOSPC})
	if err := client.WriteFile("/share/file", []byte("text"), false); !errors.Is(err,
		syscall.ENOSPC) {
		t.Errorf("a write returns %v", err)
	}
	if err := client.WriteFile("/share/mark", nil, false); err != nil {
		t.Errorf("a name without data: %v", err)
	}
}
