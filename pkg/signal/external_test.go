package signal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestOpenExisting(t *testing.T) {
	p := newPlace(t)
	old := create(t, p)
	p.Run, p.Key = "124.0", "other"
	d := create(t, p)
	base := filepath.Dir(p.LogDir)
	relative, err := filepath.Rel(workingDirectory(t), d.Path())
	must(t, err)
	point(t, filepath.Join(base, "linked-logs"), p.LogDir)
	for _, dir := range []*Dir{old, d} {
		must(t, dir.UpdateLatestLink(within(t)))
	}
	for _, tc := range []struct {
		name string
		path string
		want *Dir // nil for an error
	}{
		{"a run directory", old.Path(), old},
		{"a run directory, relative", relative, d},
		{"nothing", filepath.Join(base, "nothing"), nil},
		{"a file", put(t, filepath.Join(base, "file"), ""), nil},
		{"a log directory", p.LogDir, nil},
		{"a link to a run", filepath.Join(p.LogDir, LatestLink), nil},
		{"a directory with nothing in it", mkdir(t, filepath.Join(base, "empty"), dirMode), nil},
		{"a link to the log directory", filepath.Join(base, "linked-logs"), nil},
		{"another's", disown(t, mkdir(t, filepath.Join(base, "other"), dirMode)), nil},
		{"writable by others", mkdir(t, filepath.Join(base, "open"), 0o777), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, job, err := OpenExisting(within(t), tc.path, "login")
			if tc.want == nil {
				if err == nil {
					t.Errorf("opened %s", got.Path())
				}
				return
			}
			must(t, err)
			if got.Path() != tc.want.Path() || got.Nonce() != tc.want.Nonce() || job.Size != 4 ||
				got.FileSystem() != d.FileSystem() || got.Name() != tc.want.Name() {
				t.Errorf("opened %+v with %+v", got, job)
			}
		})
	}
}

// TestOpenExistingAsksAgain verifies that temporary errors of the shared file system are tolerated
// for callers outside the job, too.
func TestOpenExistingAsksAgain(t *testing.T) {
	p := newPlace(t)
	d := create(t, p)
	asked := make(map[string]bool)
	once := func(kind string, answer error) error {
		if asked[kind] {
			return nil
		}
		asked[kind] = true
		return answer
	}
	p.LogDir = d.Path()
	p.FS = &faulty{
		onList: func(string) ([]string, error) { return nil, once("list", syscall.ENOENT) },
		onRead: func(string) error { return once("read", syscall.EIO) },
	}
	got, _, err := p.openExistingRun(within(t))
	if err != nil || got.Nonce() != d.Nonce() {
		t.Fatalf("opened %v, %v", got, err)
	}
	clear(asked)
	if over, err := got.HasEnded(within(t)); err != nil || over {
		t.Errorf("it has ended: %t, %v", over, err)
	}
}

func workingDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	must(t, err)
	return dir
}

// TestOpenExistingOfAnotherVersion verifies that an existing record that cannot be read is not
// reported as missing.
func TestOpenExistingOfAnotherVersion(t *testing.T) {
	p := newPlace(t)
	p.LogDir = filepath.Join(p.LogDir, "deeper")
	path := run(t, &p, `{"v":3,"nonce":"ours"}`+"\n")
	_, _, err := OpenExisting(within(t), path, "login")
	if err == nil || errors.Is(err, errAbsent) {
		t.Errorf("got %v", err)
	}
}

func TestRequestStop(t *testing.T) {
	d := create(t, newPlace(t))
	for range 2 {
		outside, _, err := OpenExisting(within(t), d.Path(), "login")
		must(t, err)
		must(t, outside.RequestStop(within(t)))
	}
	if got := names(t, filepath.Join(d.Path(), ControlDir)); !slices.Equal(got, []string{NameJob, NameStop}) {
		t.Errorf("there is %v", got)
	}
	var rec record.Mark
	if err := d.ReadRecord(within(t), ControlDir, NameStop, &rec); err != nil ||
		rec.Host != "login" || rec.NodeIndex != outsideIndex {
		t.Errorf("got %+v, %v", rec, err)
	}
}

func TestPublishOnce(t *testing.T) {
	const writers = 32
	p := newPlace(t)
	p.Size = 64
	d := create(t, p)
	var won atomic.Int64
	winner := -1
	var writing sync.WaitGroup
	for node := range writers {
		writing.Go(func() {
			err := d.ForNode(node).PublishOnce(within(t), NameResult, &record.Result{Code: node})
			switch {
			case err == nil:
				won.Add(1)
				winner = node // only one goroutine writes this, or the race detector reports it
			case !errors.Is(err, ErrAlreadyPublished):
				t.Error(err)
			}
		})
	}
	writing.Wait()
	var result record.Result
	if err := d.ReadRecord(within(t), "", NameResult, &result); err != nil || won.Load() != 1 ||
		result.Code != winner || result.NodeIndex != winner {
		t.Errorf("%d won, the last of them %d; there is %+v, %v", won.Load(), winner, result, err)
	}
	if got := names(t, d.Path()); !slices.Equal(got, []string{ControlDir, EventsDir, LogsDir, NodesDir, NameResult}) {
		t.Errorf("there is %v", got)
	}
}

func TestPointLatest(t *testing.T) {
	p := newPlace(t)
	d := create(t, p)
	for range 2 {
		must(t, d.UpdateLatestLink(within(t)))
	}
	if target, err := os.Readlink(filepath.Join(p.LogDir, LatestLink)); err != nil || target != d.Name() {
		t.Errorf("it points at %q, %v", target, err)
	}
	t.Run("what is not a link stays", func(t *testing.T) {
		p := newPlace(t)
		d := create(t, p)
		put(t, filepath.Join(p.LogDir, LatestLink), "somebody's own")
		if err := d.UpdateLatestLink(within(t)); err == nil {
			t.Error("no error")
		}
		if got := names(t, p.LogDir); !slices.Equal(got, []string{p.Run, LatestLink}) {
			t.Errorf("there is %v", got)
		}
	})
	t.Run("the time is over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.UpdateLatestLink(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
