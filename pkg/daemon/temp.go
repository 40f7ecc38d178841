package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/pause"
)

// temp returns the attempt's private directory on this node, which it makes
// the first time.
func (n *node) temp() (string, error) {
	n.mu.Lock()
	dir := n.tempDir
	n.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	ctx, cancel := context.WithTimeoutCause(n.life, n.cfg.Times.Service, errDeadline)
	defer cancel()
	return answered(ctx, func() (string, error) {
		made, err := os.MkdirTemp(n.cfg.TempDir, "bu-")
		if err != nil {
			return "", err
		}
		return n.ownTemp(made), nil
	})
}

// ownTemp takes a directory that was made for the private one, and returns that.
func (n *node) ownTemp(made string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tempDir != "" || n.work.Err() != nil { // another was first, or it comes too late
		go func() { _ = os.Remove(made) }()
		return n.tempDir
	}
	n.tempDir = made
	n.super.Own(made)
	return made
}

const (
	// removeTime is how long the removal of the private directory may take: it may
	// be full of what services have left.
	removeTime = 10 * time.Second
	// hurriedRemoveTime is the same where the daemon was told to end, and may be
	// killed.
	hurriedRemoveTime = 2 * time.Second
)

// removeTemp removes the private directory, or leaves it on a disk that hangs.
func (n *node) removeTemp() {
	n.mu.Lock()
	dir := n.tempDir
	n.mu.Unlock()
	if dir == "" {
		return
	}
	within := removeTime
	if n.told.Load() {
		within = hurriedRemoveTime
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, errDeadline)
	defer cancel()
	_, err := answered(ctx, func() (struct{}, error) { return struct{}{}, os.RemoveAll(dir) })
	if err != nil {
		n.log.Warn("left the temporary directory, which can't be removed", zap.String("dir", dir), zap.Error(err))
	}
}

// answerLag is how much later than its context something may answer that keeps to
// it.
const answerLag = 500 * time.Millisecond

// answered makes calls into a disk of this node, which may hang as a share does,
// and gives them up when ctx ends: the kernel does not let go of who waits.
func answered[T any](ctx context.Context, calls func() (T, error)) (T, error) {
	value, err := pause.Bounded(ctx, answerLag, calls)
	if errors.Is(err, pause.ErrHangs) {
		err = fmt.Errorf("its disk does not answer: %w", context.Cause(ctx))
	}
	return value, err
}
