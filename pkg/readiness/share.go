package readiness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/check"
)

// Share is the directory that all nodes of a job share, as one node sees it
// without a job: a Part. A daemon learns the same of its run directory.
type Share struct {
	Dir string
	// Answer is how long the share may take to answer; 0: shareAnswer.
	Answer time.Duration

	ask func(dir string) check.Share // nil: askShare
}

// shareAnswer is more than a share takes that is any good.
const shareAnswer = 5 * time.Second

var errSilent = errors.New("it does not answer")

// Look asks for the room there, and makes a file that tells the share's time,
// which it removes. A share may hang: then the asking is left behind.
func (s Share) Look(ctx context.Context) []check.Finding {
	if s.Answer == 0 {
		s.Answer = shareAnswer
	}
	if s.ask == nil {
		s.ask = askShare
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Answer, fmt.Errorf("%w within %v", errSilent, s.Answer))
	defer cancel()
	asked := make(chan check.Share, 1)
	go func() { asked <- s.ask(s.Dir) }()
	select {
	case share := <-asked:
		return check.JudgeShare(share)
	case <-ctx.Done():
		return check.JudgeShare(check.Share{Path: s.Dir, SpaceErr: context.Cause(ctx)})
	}
}

// Traits are none: whether all nodes see the same is proven by a run.
func (Share) Traits() []check.Trait { return nil }

// askShare looks at the directory, or at what there is of its path: a run makes
// the rest.
func askShare(dir string) check.Share {
	for {
		_, err := os.Stat(dir)
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			break
		}
		dir = parent
	}
	share := check.Share{Path: dir}
	var stat unix.Statfs_t
	if share.SpaceErr = unix.Statfs(dir, &stat); share.SpaceErr != nil {
		return share
	}
	unit := uint64(stat.Bsize)
	share.Space = &check.Space{Size: stat.Blocks * unit, Free: stat.Bavail * unit, Files: stat.Files, FreeFiles: stat.Ffree}
	share.Offset, share.SpaceErr = askClock(dir)
	return share
}

// askClock returns by how much the share's clock is ahead of ours: a new file
// has the server's time.
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
