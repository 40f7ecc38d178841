package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal"
)

// aRound changes the files and then copies their new contents.
type aRound struct {
	do     func(t *testing.T, dir string)
	limits copyLimits
}

var all = copyLimits{MaxFileTail: 1 << 20, MaxTotal: 1 << 20}

func TestKeeper(t *testing.T) {
	half := strings.Repeat("x", minBytesPerFile/2)
	for _, tc := range []struct {
		name   string
		rounds []aRound
		want   map[string]string
	}{
		{"all of it, and no more twice", []aRound{
			{appends("a.log", "one\n", "b.log", "1\n", "empty.log", ""), all}, {appends("a.log", "two\n"), all}, {nothing, all},
		}, map[string]string{"a.log": "one\ntwo\n", "b.log": "1\n"}},
		{"directories below", []aRound{{appends("events/raylet.log", "one\n", "serve/x/y.log", "1\n", "a/b/c/d/e.log", "far\n"), all}},
			map[string]string{"events.raylet.log": "one\n", "serve.x.y.log": "1\n"}},
		{"no links, no sockets", []aRound{{func(t *testing.T, dir string) {
			appends("a.log", "one\n")(t, dir)
			must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link.log")))
			must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
		}, all}}, map[string]string{"a.log": "one\n"}},
		{"the end of what is new", []aRound{
			{appends("a.log", "one\n"), all}, {appends("a.log", "0123456789"), copyLimits{MaxFileTail: 4, MaxTotal: 100}},
		}, map[string]string{"a.log": "one\n[bringupd: 6 bytes left out]\n6789"}},
		{"so many bytes a round", []aRound{{appends("a.log", half+half+half, "b.log", "short"), copyLimits{MaxFileTail: 1 << 20, MaxTotal: 10}}},
			map[string]string{"a.log": "xxxxxxxxxx"}},
		{"the rest in the next", []aRound{
			{appends("a.log", half+half+half), copyLimits{MaxFileTail: 1 << 20, MaxTotal: minBytesPerFile}}, {nothing, copyLimits{MaxFileTail: 1 << 20, MaxTotal: minBytesPerFile}},
		}, map[string]string{"a.log": half + half + half}},
		{"in the last round the end", []aRound{
			{appends("a.log", "one\n"+half+half+"the end\n"), copyLimits{MaxFileTail: 1 << 20, MaxTotal: 8, IsLast: true}},
		}, map[string]string{"a.log": fmt.Sprintf("[bringupd: %d bytes left out]\nthe end\n", 4+2*len(half))}},
		{"rotated", []aRound{
			{appends("a.out", "one\n"), all},
			{func(t *testing.T, dir string) {
				appends("a.out", "two\n")(t, dir)
				must(t, os.Rename(filepath.Join(dir, "a.out"), filepath.Join(dir, "a.out.1")))
				appends("a.out", "three\n")(t, dir)
			}, all},
			{appends("a.out.1", "late\n", "a.out", "four\n"), all},
		}, map[string]string{"a.out": "one\ntwo\nthree\nlate\nfour\n"}},
		{"begun anew", []aRound{
			{appends("a.log", "one\n"), all},
			{func(t *testing.T, dir string) {
				must(t, os.WriteFile(filepath.Join(dir, "a.log"), []byte("2\n"), 0o600))
			}, all},
		}, map[string]string{"a.log": "one\n2\n"}},
		{"removed", []aRound{
			{appends("a.log", "one\n"), all},
			{func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "a.log"))) }, all},
		}, map[string]string{"a.log": "one\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, from := t.TempDir(), t.TempDir()
			keeper := newLogCopier(plain, from, filepath.Join(d, "x.d"))
			for i, round := range tc.rounds {
				round.do(t, from)
				if err := keeper.copyNew(t.Context(), round.limits); err != nil {
					t.Errorf("round %d: %v", i, err)
				}
			}
			if diff := cmp.Diff(tc.want, contents(t, filepath.Join(d, "x.d"))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestKeeperOfAFullShare verifies that a temporarily full file system loses no part of a log that
// was not too long.
func TestKeeperOfAFullShare(t *testing.T) {
	share := &full{SharedFS: plain}
	d, from := t.TempDir(), t.TempDir()
	keeper := newLogCopier(share, from, filepath.Join(d, "x.d"))
	appends("a.log", "one\n")(t, from)
	share.is.Store(true)
	for range 2 {
		if err := keeper.copyNew(t.Context(), all); !errors.Is(err, syscall.EDQUOT) {
			t.Fatalf("on a full share: %v", err)
		}
		appends("a.log", "two\n")(t, from)
	}
	share.is.Store(false)
	if err := keeper.copyNew(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a.log": "one\ntwo\ntwo\n"}, contents(t, filepath.Join(d, "x.d"))); diff != "" {
		t.Error(diff)
	}
}

// TestKeeperOfAShareThatHangs verifies that a hanging file system blocks one round, and that no
// other round begins meanwhile.
func TestKeeperOfAShareThatHangs(t *testing.T) {
	share := &full{SharedFS: plain, hang: make(chan struct{})}
	d, from := t.TempDir(), t.TempDir()
	keeper := newLogCopier(share, from, filepath.Join(d, "x.d"))
	appends("a.log", "one\n")(t, from)
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := keeper.copyNew(ctx, all); err == nil {
			t.Error("a round came back without an error")
		}
		cancel()
	}
	close(share.hang)
	if err := keeper.copyNew(t.Context(), all); err != nil {
		t.Error(err)
	}
	if calls := share.calls.Load(); calls != 1 {
		t.Errorf("the share was asked %d times", calls)
	}
}

func TestKeeperErrors(t *testing.T) {
	from := t.TempDir()
	appends("a.log", "one\n")(t, from)
	for _, tc := range []struct {
		name string
		from string
		logs string // path that exists in place of the directory; empty: none
		want error
	}{
		{"never made", filepath.Join(from, "missing"), "", nil},
		{"there is no place for it", from, "", fs.ErrNotExist},
		{"something is there", from, "logs/x.d", fs.ErrExist},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := t.TempDir()
			if tc.logs != "" {
				must(t, os.MkdirAll(filepath.Join(d, tc.logs), 0o700))
			}
			if err := newLogCopier(plain, tc.from, filepath.Join(d, "logs", "x.d")).copyNew(t.Context(), all); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	// An unreadable file does not prevent the copy of others.
	d, locked := t.TempDir(), filepath.Join(from, "0.log")
	must(t, os.WriteFile(locked, []byte("x"), 0o600))
	keeper := newLogCopier(plain, from, filepath.Join(d, "x.d"))
	keeper.openFile = func(path string) (*os.File, error) {
		if path == locked {
			return nil, fs.ErrPermission
		}
		return openLogFile(path)
	}
	err := keeper.copyNew(t.Context(), all)
	if got := contents(t, filepath.Join(d, "x.d")); !errors.Is(err, fs.ErrPermission) || got["a.log"] != "one\n" {
		t.Errorf("kept %v: %v", got, err)
	}
	// Once the limit per run is reached, only the last round copies more.
	keeper.bytesCopied = maxCopiedBytes
	appends("a.log", "two\n")(t, from)
	if err := keeper.copyNew(t.Context(), all); err == nil || !strings.Contains(err.Error(), "cannot copy more") {
		t.Errorf("after %d bytes: %v", int64(maxCopiedBytes), err)
	}
	last := all
	last.IsLast = true
	if _ = keeper.copyNew(t.Context(), last); contents(t, filepath.Join(d, "x.d"))["a.log"] != "one\ntwo\n" {
		t.Error("the end was not kept")
	}
}

// full is a file system that accepts no data while it is full, and hangs until it is released.
type full struct {
	signal.SharedFS
	is    atomic.Bool
	hang  chan struct{}
	calls atomic.Int32
}

func (f *full) OpenAppend(path string) (io.WriteCloser, error) {
	f.calls.Add(1)
	if f.hang != nil {
		<-f.hang
	}
	if f.is.Load() {
		return nil, syscall.EDQUOT
	}
	return f.SharedFS.OpenAppend(path)
}

// plain is the file system itself.
var plain = signal.NewDiskFS(new(signal.CallMeter))

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func nothing(*testing.T, string) {}

// appends returns a function that appends texts to files.
func appends(pairs ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		for i := 0; i < len(pairs); i += 2 {
			path := filepath.Join(dir, pairs[i])
			must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			must(t, err)
			_, err = fmt.Fprint(file, pairs[i+1])
			must(t, errors.Join(err, file.Close()))
		}
	}
}

// contents returns the contents of the files in a directory, by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	found := make(map[string]string)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		must(t, err)
		found[entry.Name()] = string(text)
	}
	return found
}
