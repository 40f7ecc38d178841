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
	"github.com/bringupd/bringupd/pkg/signal"
)

// share is the directory that all nodes of a job share, as one node sees it
// without a job: a part. A daemon learns the same of its run directory.
type share struct {
	dir string
	// answer is how long the share may take to answer; 0: shareAnswer.
	answer time.Duration

	ask func(dir string) check.Share // nil: askShare
}

// shareAnswer is more than a share takes that is any good.
const shareAnswer = 5 * time.Second

var errSilent = errors.New("it does not answer")

// Look asks for the room there, and makes a file that tells the share's time,
// which it removes. A share may hang: then the asking is left behind.
func (s share) Look(ctx context.Context) []check.Finding {
	if s.answer == 0 {
		s.answer = shareAnswer
	}
	if s.ask == nil {
		s.ask = askShare
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.answer, fmt.Errorf("%w within %v", errSilent, s.answer))
	defer cancel()
	asked := make(chan check.Share, 1)
	go func() { asked <- s.ask(s.dir) }()
	select {
	case told := <-asked:
		return check.JudgeShare(told)
	case <-ctx.Done():
		return check.JudgeShare(check.Share{Path: s.dir, SpaceErr: context.Cause(ctx)})
	}
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
	return check.Share{Path: dir, Space: &space, SpaceErr: err, Offset: offset}
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
