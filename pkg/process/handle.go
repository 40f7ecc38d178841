package process

import (
	"context"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/files"
)

// Handle is the interface of a started child for code that waits for it, signals it or stops it. It
// is implemented by *Child and by fakes in tests.
type Handle interface {
	Name() string
	PID() int
	Ended() <-chan struct{}
	Done() <-chan struct{}
	Exit() Exit
	LastLines() []string
	OutputStats() (bytes int64, ago time.Duration)
	OwnsProcess(pid int) bool
	Signal(sig syscall.Signal) error
	Stop(ctx context.Context, grace time.Duration, first syscall.Signal) Exit
	StopProcesses(ctx context.Context, grace time.Duration, first syscall.Signal) error
}

// Starter is the interface of a Supervisor that starts and ends the children of a daemon. See the
// methods of [Supervisor].
type Starter interface {
	Start(ctx context.Context, spec Spec) (Handle, error)
	StartGuard()
	OwnPath(path files.OwnedPath)
	EndIfSilent(limit time.Duration, ended func())
	SignalReachedGuard(ctx context.Context, sig syscall.Signal) bool
	EndAll(ctx context.Context) error
	Close(ctx context.Context) error
}

// AsStarter returns the Supervisor as a Starter.
func (s *Supervisor) AsStarter() Starter { return starter{s} }

type starter struct{ *Supervisor }

// Start implements Starter.
func (s starter) Start(ctx context.Context, spec Spec) (Handle, error) {
	child, err := s.Supervisor.Start(ctx, spec)
	if err != nil {
		return nil, err // not a Handle that holds a nil *Child
	}
	return child, nil
}
