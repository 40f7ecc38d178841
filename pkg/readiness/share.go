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

// share is the directory that all nodes of a job share, as one node sees it without a job: a part. A daemon learns the
// same of its run directory.
type share struct {
	dir    string
	answer time.Duration // how long it may take to answer
	ask    func(dir string) check.Share
}

func newShare(dir string) share { return share{dir: dir, answer: shareAnswer, ask: askShare} }

// shareAnswer is more than a share takes that is any good.
const shareAnswer = 5 * time.Second

// Look asks for the room there, and makes a file that tells the share's time, which it removes. A share may hang: then
// the asking is left behind.
func (s share) Look(ctx context.Context, _ func([]check.Finding)) []check.Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, s.answer, fmt.Errorf("it does not answer within %v", s.answer))
	defer cancel()
	told, err := pause.Bounded(ctx, 0, func() (check.Share, error) { return s.ask(s.dir), nil })
	if err != nil {
		told = check.Share{Path: s.dir, SpaceErr: context.Cause(ctx)}
	}
	return check.JudgeShare(told)
}

// Traits are none: whether all nodes see the same is proven by a run.
func (share) Traits() []check.Trait { return nil }

// askShare looks at the directory, or at what there is of its path: a run makes the rest.
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

// askClock returns by how much the share's clock is ahead of ours: a new file has the server's time.
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
