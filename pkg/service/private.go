package service

import (
	"context"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/health"
)

// Private is the attempt's own directory on this node.
type Private struct {
	in     string           // of which it is a part
	owned  func(dir string) // told of what is to be removed when this daemon is killed
	log    *zap.Logger
	within time.Duration // its disk may take to make it
	life   Life

	mu   sync.Mutex
	made string // removed at the end; guarded by mu
}

// NewPrivate returns a directory that is to be made in another, within a time. The
// one that is made is told to owned: should this daemon be killed, it is to be removed.
func NewPrivate(in string, within time.Duration, owned func(dir string), log *zap.Logger, life Life) *Private {
	return &Private{in: in, within: within, owned: owned, log: log, life: life}
}

// Dir returns the directory, which it makes the first time.
func (p *Private) Dir() (string, error) {
	p.mu.Lock()
	dir := p.made
	p.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	ctx, cancel := context.WithTimeoutCause(p.life.Run, p.within, health.ErrDeadline)
	defer cancel()
	return Answered(ctx, func() (string, error) {
		made, err := os.MkdirTemp(p.in, "bu-")
		if err != nil {
			return "", err
		}
		return p.own(made), nil
	})
}

// own takes a directory that was made for the private one, and returns that.
func (p *Private) own(made string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != "" || p.life.Work.Err() != nil { // another was first, or it comes too late
		go func() { _ = os.Remove(made) }()
		return p.made
	}
	p.made = made
	p.owned(made)
	return made
}

// Remove removes the directory, or leaves it on a disk that hangs. Who is in a
// hurry was told to end, and may be killed.
func (p *Private) Remove(hurried bool) {
	p.mu.Lock()
	dir := p.made
	p.mu.Unlock()
	if dir == "" {
		return
	}
	within := removeTime
	if hurried {
		within = hurriedRemoveTime
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, health.ErrDeadline)
	defer cancel()
	_, err := Answered(ctx, func() (struct{}, error) { return struct{}{}, os.RemoveAll(dir) })
	if err != nil {
		p.log.Warn("left the temporary directory, which can't be removed", zap.String("dir", dir), zap.Error(err))
	}
}

const (
	// removeTime is how long the removal of the private directory may take: it may
	// be full of what services have left.
	removeTime = 10 * time.Second
	// hurriedRemoveTime is the same where the daemon was told to end, and may be
	// killed.
	hurriedRemoveTime = 2 * time.Second
)
