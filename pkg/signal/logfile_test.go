package signal

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
)

// slowOpening is a file system in which opening a log blocks until the test allows it.
type slowOpening struct {
	SharedFS
	asked, let chan struct{}
	file       openFile
}

func (s *slowOpening) OpenAppend(string) (io.WriteCloser, error) {
	close(s.asked)
	<-s.let
	return &s.file, nil
}

// openFile counts how often it was closed.
type openFile struct{ closed int }

func (*openFile) Write(data []byte) (int, error) { return len(data), nil }

func (f *openFile) Close() error {
	f.closed++
	return nil
}

// TestLogFileClosesAfterAWriteThatHung lets the file system hang while a child's log is opened, and
// closes the log meanwhile: no file stays open.
func TestLogFileClosesAfterAWriteThatHung(t *testing.T) {
	share := &slowOpening{asked: make(chan struct{}), let: make(chan struct{})}
	file := &LogFile{access: Access{FS: share}.withDefaults(), path: "/logs/driver.log"}
	wrote, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := file.Write([]byte("a line\n"))
		wrote <- err
	}()
	<-share.asked
	go func() { closed <- file.Close() }()
	close(share.let)
	if err := <-wrote; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if share.file.closed != 1 {
		t.Errorf("it was closed %d times", share.file.closed)
	}
	if _, err := file.Write([]byte("another\n")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a write after the end: %v", err)
	}
}

// stale is a file system in which the first handle of a file becomes stale.
type stale struct {
	SharedFS
	opened []*staleFile
}

type staleFile struct {
	openFile
	gone bool
	data string
}

func (s *stale) OpenAppend(string) (io.WriteCloser, error) {
	file := &staleFile{gone: len(s.opened) == 0}
	s.opened = append(s.opened, file)
	return file, nil
}

func (f *staleFile) Write(data []byte) (int, error) {
	if f.gone {
		return 0, syscall.ESTALE
	}
	f.data += string(data)
	return len(data), nil
}

// TestLogFileIsOpenedAnew verifies that a permanently stale handle is replaced and that no line is
// lost.
func TestLogFileIsOpenedAnew(t *testing.T) {
	share := new(stale)
	file := &LogFile{access: Access{FS: share}.withDefaults(), path: "/logs/daemon-0000.log"}
	for _, line := range []string{"one\n", "two\n"} {
		if n, err := file.Write([]byte(line)); n != len(line) || err != nil {
			t.Errorf("%q: %d, %v", line, n, err)
		}
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if len(share.opened) != 2 || share.opened[1].data != "one\ntwo\n" ||
		share.opened[0].closed != 1 || share.opened[1].closed != 1 {
		t.Errorf("it was opened %d times: %+v", len(share.opened), share.opened)
	}
}

func TestLogFile(t *testing.T) {
	d := create(t, newPlace(t))
	silent := d.NewLogFile(LogsDir, "silent.log")
	if err := silent.Close(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"one\n", "two\n"} {
		file := d.NewLogFile(LogsDir, "child.log")
		if _, err := file.Write([]byte(text)); err != nil {
			t.Error(err)
		}
		if err := errors.Join(file.Close(), file.Close()); err != nil {
			t.Error(err)
		}
	}
	data, err := plain.ReadFile(d.NewLogFile(LogsDir, "child.log").Path())
	if err != nil || string(data) != "one\ntwo\n" {
		t.Errorf("got %q, %v", data, err)
	}
	if got := names(t, d.Path()+"/"+LogsDir); len(got) != 1 {
		t.Errorf("a log that says nothing was made: %v", got)
	}
	if _, err := d.NewLogFile("nowhere", "child.log").Write([]byte("x")); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}
