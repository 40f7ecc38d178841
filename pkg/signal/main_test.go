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

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/twin"
)

func TestMain(m *testing.M) {
	twin.Main()
	goleak.VerifyTestMain(m)
}

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

var errCeiling = errors.New("the ceiling of the test")

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), ceiling, errCeiling)
	t.Cleanup(cancel)
	return ctx
}

// newPlace returns a location in a log directory of the test's own.
func newPlace(t testing.TB) Location {
	t.Helper()
	logs := filepath.Join(t.TempDir(), "logs")
	must(t, os.Mkdir(logs, dirMode))
	return Location{LogDir: logs, Run: "123.0", Key: "facts", Size: 4, Host: "n0"}
}

func create(t testing.TB, p Location) *Dir {
	t.Helper()
	d, err := CreateRun(within(t), p, record.Job{ConfigDigest: "digest", PID: 7})
	must(t, err)
	return d
}

func publish(t testing.TB, d *Dir, sub, name string, rec record.Record) {
	t.Helper()
	must(t, d.PublishRecord(within(t), sub, name, rec, false))
}

// watching runs a watch until the end of the test.
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// names lists a directory without the package, temporary files included.
func names(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	must(t, err)
	all := []string{}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// plain is the disk, with a meter that is not read.
var plain = NewDiskFS(new(CallMeter)).(diskFS)

// before is called before each file operation; if it returns an error, the operation is not made.
type before func(op Op, path string) error

func (b before) BeginCall(op Op, path string) (time.Time, error) { return time.Now(), b(op, path) }

func (b before) EndCall(Op, string, time.Time) {}

// errWritten is returned by an onWrite that has written the file itself.
var errWritten = errors.New("written")

// faulty is a disk some of whose operations a test may replace.
type faulty struct {
	lists    atomic.Int64
	onList   func(path string) ([]string, error) // nil, nil uses the disk
	onLook   func(path string) error             // like onList
	onRead   func(path string) error             // like onList
	onWrite  func(path string, data []byte) error
	onChange func(how Op, from, to string) error // instead of the disk
}

var _ SharedFS = (*faulty)(nil)

func (f *faulty) ListDir(path string, vet func(FileAttributes) error) ([]string, error) {
	f.lists.Add(1)
	if f.onList != nil {
		if names, err := f.onList(path); names != nil || err != nil {
			return names, err
		}
	}
	return plain.ListDir(path, vet)
}

func (f *faulty) HoldDir(path string, vet func(FileAttributes) error) ([]string, error) {
	return f.ListDir(path, vet) // every operation on the test's disk uses a path
}

func (f *faulty) Stat(path string) (FileAttributes, error) {
	if f.onLook != nil {
		if err := f.onLook(path); err != nil {
			return FileAttributes{}, err
		}
	}
	return plain.Stat(path)
}

func (f *faulty) ReadFile(path string) ([]byte, error) {
	if f.onRead != nil {
		if err := f.onRead(path); err != nil {
			return nil, err
		}
	}
	return plain.ReadFile(path)
}

func (f *faulty) ReadRange(path string, offset, most int64) ([]byte, FileAttributes, error) {
	return plain.ReadRange(path, offset, most)
}

func (f *faulty) ReadLink(path string) (string, error) { return plain.ReadLink(path) }

func (f *faulty) FileSystemOf(path string) (files.FileSystem, error) {
	return plain.FileSystemOf(path)
}

func (f *faulty) SpaceOf(path string) (files.Space, error) { return plain.SpaceOf(path) }

func (f *faulty) WriteFile(path string, data []byte, durable bool) error {
	if f.onWrite != nil {
		if err := f.onWrite(path, data); errors.Is(err, errWritten) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return plain.WriteFile(path, data, durable)
}

func (f *faulty) OpenAppend(path string) (io.WriteCloser, error) { return plain.OpenAppend(path) }

func (f *faulty) ChangeName(how Op, from, to string) error {
	if f.onChange != nil {
		return f.onChange(how, from, to)
	}
	return plain.ChangeName(how, from, to)
}

// refusing returns a disk on which changes of one kind fail with an error.
func refusing(refused Op, err error) *faulty {
	return &faulty{onChange: func(how Op, from, to string) error {
		if how == refused {
			return err
		}
		return plain.ChangeName(how, from, to)
	}}
}

// repeating returns a disk on which changes of one kind are made twice, as if the first reply was
// lost.
func repeating(repeated Op) *faulty {
	return &faulty{onChange: func(how Op, from, to string) error {
		err := plain.ChangeName(how, from, to)
		if how == repeated {
			err = plain.ChangeName(how, from, to)
		}
		return err
	}}
}
