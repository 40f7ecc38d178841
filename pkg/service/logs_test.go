package service

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/signal"
)

// TestCopyLogs verifies that a service's own logs are kept if this node ends the run with a failure,
// or if this is configured, and of a long file the end.
func TestCopyLogs(t *testing.T) {
	const cut = "[bringupd: 4 bytes left out]\n"
	long := strings.Repeat("x", failedTailSize)
	for _, tc := range []struct {
		name           string
		always, failed bool
		want           string // of the long file
	}{
		{"nobody wants them", false, false, ""}, {"it fails", false, true, cut + long},
		{"at the end", true, false, "one\n" + long}, {"at the end of a run that fails", true, true, "one\n" + long},
	} {
		c, from := children(t), t.TempDir()
		write(t, from, "raylet.out", "one\n"+long)
		for range 2 { // it starts again
			logs := framework.ServiceLogs{Dir: from, KeepAlways: tc.always}
			c.RegisterLogs(&framework.Service{Name: "worker", OwnLogs: logs})
		}
		c.CopyLogs(tc.failed)
		got, err := os.ReadFile(filepath.Join(c.dir.Path(), signal.LogsDir, "worker-0000.d", "raylet.out"))
		if string(got) != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %d bytes are kept, want %d: %v", tc.name, len(got), len(tc.want), err)
		}
	}
}

func TestCopiedFiles(t *testing.T) {
	from := t.TempDir()
	for name, text := range map[string]string{
		"a.log": "one\n", "empty.log": "", "events/raylet.log": "two\n", "serve/x/y.log": "3\n",
		"a/b/c/d/e.log": "far\n", "long.log": "0123456789",
	} {
		write(t, from, name, text)
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(from, "link.log")))
	must(t, syscall.Mkfifo(filepath.Join(from, "pipe"), 0o600))
	latest, to := filepath.Join(t.TempDir(), "latest"), filepath.Join(t.TempDir(), "x.d")
	must(t, os.Symlink(from, latest))
	must(t, copyLogs(t.Context(), plain, latest, to, 4))
	got := make(map[string]string)
	entries, err := os.ReadDir(to)
	must(t, err)
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(to, entry.Name()))
		must(t, err)
		got[entry.Name()] = string(text)
	}
	if diff := cmp.Diff(map[string]string{
		"a.log": "one\n", "events.raylet.log": "two\n", "serve.x.y.log": "3\n",
		"long.log": "[bringupd: 6 bytes left out]\n6789",
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestCopyErrors(t *testing.T) {
	from := t.TempDir()
	write(t, from, "a.log", "one\n")
	to := func(t *testing.T) string { return filepath.Join(t.TempDir(), "x.d") }
	hanging := &faulty{SharedFS: plain, hang: make(chan struct{})}
	defer close(hanging.hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var stall *signal.StallError
	if err := copyLogs(ctx, hanging, from, to(t), 10); !errors.As(err, &stall) {
		t.Errorf("on a share that hangs: %v", err)
	}
	for name, tc := range map[string]struct {
		share    signal.SharedFS
		from, to string
		want     error
	}{
		"never made":               {plain, filepath.Join(from, "missing"), to(t), nil},
		"there is no place for it": {plain, from, filepath.Join(to(t), "x.d"), fs.ErrNotExist},
		"something is there":       {plain, from, from, fs.ErrExist},
		"the share is full":        {&faulty{SharedFS: plain}, from, to(t), syscall.EDQUOT},
	} {
		if err := copyLogs(t.Context(), tc.share, tc.from, tc.to, 10); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

// faulty is a file system that accepts no data, or hangs until it is released.
type faulty struct {
	signal.SharedFS
	hang chan struct{}
}

func (f *faulty) OpenAppend(string) (io.WriteCloser, error) {
	if f.hang != nil {
		<-f.hang
	}
	return nil, syscall.EDQUOT
}

// plain is the file system itself.
var plain = signal.NewDiskFS(new(signal.CallMeter))

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write writes a file, with the directories above it.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}
