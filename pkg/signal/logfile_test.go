package signal

import (
	"errors"
	"io"
	"os"
	"testing"
)

// slowOpening is a share that opens a log when it is let.
type slowOpening struct {
	Share
	asked, let chan struct{}
	file       openFile
}

func (s *slowOpening) Extend(string) (io.WriteCloser, error) {
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

// TestLogFileClosesAfterAWriteThatHung has a share hang while a child's log is
// opened, and the log closed meanwhile: nothing stays open.
func TestLogFileClosesAfterAWriteThatHung(t *testing.T) {
	share := &slowOpening{asked: make(chan struct{}), let: make(chan struct{})}
	file := &LogFile{share: share, path: "/logs/driver.log"}
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
