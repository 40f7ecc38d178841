package daemon

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/service"
	"go.uber.org/zap"
)

// private is the attempt's own directory on this node.
type private struct {
	in     string // of which it is a part
	super  *process.Supervisor
	log    *zap.Logger
	within time.Duration // its disk may take to make it
	life   *lifetime

	mu   sync.Mutex
	made string // removed at the end; guarded by mu
}

// dir returns the directory, which it makes the first time.
func (p *private) dir() (string, error) {
	p.mu.Lock()
	dir := p.made
	p.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	ctx, cancel := context.WithTimeoutCause(p.life.life, p.within, errDeadline)
	defer cancel()
	return service.Answered(ctx, func() (string, error) {
		made, err := os.MkdirTemp(p.in, "bu-")
		if err != nil {
			return "", err
		}
		return p.own(made), nil
	})
}

// own takes a directory that was made for the private one, and returns that.
func (p *private) own(made string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != "" || p.life.work.Err() != nil { // another was first, or it comes too late
		go func() { _ = os.Remove(made) }()
		return p.made
	}
	p.made = made
	p.super.Own(made)
	return made
}

// remove removes the directory, or leaves it on a disk that hangs. Who is in a
// hurry was told to end, and may be killed.
func (p *private) remove(hurried bool) {
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
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, errDeadline)
	defer cancel()
	_, err := service.Answered(ctx, func() (struct{}, error) { return struct{}{}, os.RemoveAll(dir) })
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
