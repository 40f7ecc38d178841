package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/signal"
)

// shareCheck is the check of the log directory outside of a job, as seen by this node. It
// implements [nodeCheck]. A daemon checks its run directory instead.
type shareCheck struct {
	dir       string
	timeout   time.Duration                     // time limit for the check
	readFacts func(dir string) check.ShareFacts // reads the facts about the directory
}

// shareTimeout is the time limit for the check. A healthy shared file system is faster.
const shareTimeout = 5 * time.Second

// Inspect checks the free space, and reads the server's clock from a temporary file, which it
// removes. If the file system is unresponsive, the goroutine is left behind.
func (s shareCheck) Inspect(ctx context.Context, _ func([]check.Finding)) []check.Finding {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout,
		fmt.Errorf("the shared file system did not respond within %v", s.timeout))
	defer cancel()
	facts, err := ctxutil.CallBounded(ctx, 0, func() (check.ShareFacts, error) { return s.readFacts(s.dir), nil })
	if err != nil {
		facts = check.ShareFacts{Path: s.dir, SpaceErr: context.Cause(ctx)}
	}
	return check.CheckShare(facts)
}

// Attributes returns nil. Only a run can prove that all nodes see the same directory.
func (shareCheck) Attributes() []check.Attribute { return nil }

// readShareFacts collects the facts about the directory, or about its nearest parent that exists: a
// run creates the rest.
func readShareFacts(dir string) check.ShareFacts {
	for {
		_, err := os.Stat(dir)
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			break
		}
		dir = parent
	}
	space, err := files.SpaceOf(dir)
	if err != nil {
		return check.ShareFacts{Path: dir, SpaceErr: err}
	}
	offset, err := measureClockOffset(dir)
	return check.ShareFacts{Path: dir, Space: &space, SpaceErr: err, Offset: offset, Exposure: signal.ExposureOf(dir)}
}

// measureClockOffset returns how far the server's clock is ahead of the local one. It compares the
// modification time of a new file, which the server sets, with the local time.
func measureClockOffset(dir string) (*time.Duration, error) {
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
