package readiness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
)

// share is the check of the log directory outside of a job, as seen by this node. It implements
// [part]. A daemon checks its run directory instead.
type share struct {
	dir    string
	answer time.Duration                // time limit for the check
	ask    func(dir string) check.Share // reads the facts about the directory
}

// newShare returns the check of the log directory dir.
func newShare(dir string) share { return share{dir: dir, answer: shareAnswer, ask: askShare} }

// shareAnswer is the time limit for the check. A healthy shared file system is faster.
const shareAnswer = 5 * time.Second

// Look checks the free space, and reads the server's clock from a temporary file, which it removes.
// If the file system is unresponsive, the goroutine is left behind.
func (s share) Look(ctx context.Context, _ func([]check.Finding)) []check.Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, s.answer, fmt.Errorf("it does not answer within %v", s.answer))
	defer cancel()
	told, err := pause.Bounded(ctx, 0, func() (check.Share, error) { return s.ask(s.dir), nil })
	if err != nil {
		told = check.Share{Path: s.dir, SpaceErr: context.Cause(ctx)}
	}
	return check.JudgeShare(told)
}

// Traits returns nil. Only a run can prove that all nodes see the same directory.
func (share) Traits() []check.Trait { return nil }

// askShare collects the facts about the directory, or about its nearest parent that exists: a run
// creates the rest.
func askShare(dir string) check.Share {
	for {
		_, err := os.Stat(dir)
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			break
		}
		dir = parent
	}
	space, err := signal.SpaceOf(dir)
	if err != nil {
		return check.Share{Path: dir, SpaceErr: err}
	}
	offset, err := askClock(dir)
	return check.Share{Path: dir, Space: &space, SpaceErr: err, Offset: offset, Exposure: signal.ExposureOf(dir)}
}

// askClock returns how far the server's clock is ahead of the local one. It compares the
// modification time of a new file, which the server sets, with the local time.
func askClock(dir string) (*time.Duration, error) {
	before := time.Now()
	file, err := os.CreateTemp(dir, ".bringupd-check-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write([]byte{'.'})
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	info, err := os.Stat(file.Name())
	if err != nil {
		return nil, err
	}
	offset := info.ModTime().Sub(before.Add(time.Since(before) / 2))
	return &offset, nil
}
