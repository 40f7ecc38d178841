package process

import (
	"context"
	"syscall"
	"time"
)

// Handle is a child as those have it who wait for it, signal it and stop it: a *Child, or, in
// tests, what stands in for one.
type Handle interface {
	Name() string
	Pid() int
	Ended() <-chan struct{}
	Done() <-chan struct{}
	Exit() Exit
	LastLines() []string
	Printed() (bytes int64, ago time.Duration)
	Owns(pid int) bool
	Signal(sig syscall.Signal) error
	Stop(ctx context.Context, grace time.Duration, first syscall.Signal) Exit
	End(ctx context.Context, grace time.Duration, first syscall.Signal) error
}

// Starter starts the children of a daemon, as a Supervisor does: see its methods.
type Starter interface {
	Start(ctx context.Context, spec Spec) (Handle, error)
	Own(dir string)
	Reached(ctx context.Context, sig syscall.Signal) bool
	EndAll(ctx context.Context) error
	Close(ctx context.Context) error
}

// Starter returns the Supervisor as a Starter.
func (s *Supervisor) Starter() Starter { return starter{s} }

type starter struct{ *Supervisor }

// Start implements Starter.
func (s starter) Start(ctx context.Context, spec Spec) (Handle, error) {
	child, err := s.Supervisor.Start(ctx, spec)
	if err != nil {
		return nil, err // and no Handle that holds a nil
	}
	return child, nil
}
