package signal

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/test/twin"
)

func TestMain(m *testing.M) {
	twin.Main()
	goleak.VerifyTestMain(m)
}

// ceiling is for waits that end much sooner, on whatever machine.
const ceiling = 60 * time.Second

var errCeiling = errors.New("the ceiling of the test")

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), ceiling, errCeiling)
	t.Cleanup(cancel)
	return ctx
}

// newPlace returns a place in a log directory of the test's own.
func newPlace(t testing.TB) Place {
	t.Helper()
	logs := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(logs, dirMode); err != nil {
		t.Fatal(err)
	}
	return Place{LogDir: logs, Run: "123.0", Key: "facts", Size: 4, Host: "n0"}
}

func create(t testing.TB, p Place) *Dir {
	t.Helper()
	d, err := Create(within(t), p, Job{Digest: "digest", PID: 7})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func publish(t testing.TB, d *Dir, sub, name string, rec Record) {
	t.Helper()
	if err := d.Publish(within(t), sub, name, rec, false); err != nil {
		t.Fatal(err)
	}
}

// watching runs a watch for as long as the test.
func watching(t testing.TB, w *Watch) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// names lists as any program would, temporaries included.
func names(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// plain is the disk, by a meter that nobody reads.
var plain = Disk(new(Meter)).(disk)

// before is asked before each call, which is not made where it returns an error.
type before func(op Op, path string) error

func (b before) Enter(op Op, path string) (time.Time, error) { return time.Now(), b(op, path) }

func (b before) Leave(Op, string, time.Time) {}

// errWritten is the answer of an onWrite that has written the file itself.
var errWritten = errors.New("written")

// faulty is a disk of which a test may answer calls itself.
type faulty struct {
	lists    atomic.Int64
	onList   func(path string) ([]string, error) // nil, nil asks the disk
	onLook   func(path string) error             // as onList
	onRead   func(path string) error             // as onList
	onWrite  func(path string, data []byte) error
	onChange func(how Change, from, to string) error // instead of the disk
}

var _ Share = (*faulty)(nil)

func (f *faulty) List(path string, vet func(Facts) error) ([]string, error) {
	f.lists.Add(1)
	if f.onList != nil {
		if names, err := f.onList(path); names != nil || err != nil {
			return names, err
		}
	}
	return plain.List(path, vet)
}

func (f *faulty) Hold(path string, vet func(Facts) error) ([]string, error) {
	return f.List(path, vet) // each call of the test's disk goes by path
}

func (f *faulty) Look(path string) (Facts, error) {
	if f.onLook != nil {
		if err := f.onLook(path); err != nil {
			return Facts{}, err
		}
	}
	return plain.Look(path)
}

func (f *faulty) Read(path string) ([]byte, error) {
	if f.onRead != nil {
		if err := f.onRead(path); err != nil {
			return nil, err
		}
	}
	return plain.Read(path)
}

func (f *faulty) Part(path string, offset, most int64) ([]byte, Facts, error) {
	return plain.Part(path, offset, most)
}

func (f *faulty) Target(path string) (string, error) { return plain.Target(path) }

func (f *faulty) Kind(path string) (FileSystem, error) { return plain.Kind(path) }

func (f *faulty) Space(path string) (Space, error) { return plain.Space(path) }

func (f *faulty) Write(path string, data []byte, durable bool) error {
	if f.onWrite != nil {
		if err := f.onWrite(path, data); errors.Is(err, errWritten) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return plain.Write(path, data, durable)
}

func (f *faulty) Extend(path string) (io.WriteCloser, error) { return plain.Extend(path) }

func (f *faulty) Change(how Change, from, to string) error {
	if f.onChange != nil {
		return f.onChange(how, from, to)
	}
	return plain.Change(how, from, to)
}
