package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Shell returns what runs a line that a user has written.
func Shell(line string) []string { return []string{"/bin/sh", "-c", line} }

// hurried is how long a service's own files may take to be read, for who is in a
// hurry.
const hurried = time.Second

// Serve starts a service, proves it within the deadline, and has its death
// told to onDeath from then on. A start that failed in passing is tried again.
// Its error is a *health.Failure of that kind, or the cause of ctx.
func (c *Children) Serve(ctx context.Context, service *framework.Service, kind health.Kind, within time.Duration, onDeath func(*health.Failure)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	service = c.unhung(service)
	for attempt := 1; ; attempt++ {
		if err := c.portsFree(service, kind); err != nil {
			return err
		}
		child, f := c.attempt(ctx, service, kind, within)
		if f == nil {
			c.watch(child, kind, service, onDeath)
			c.watchVital(child, kind, service, onDeath)
			return nil
		}
		if err := overruled(ctx); err != nil {
			return err
		}
		if attempt >= service.Attempts || !f.transient {
			return f.Failure
		}
		c.cfg.Log.Warn("a start failed in passing: trying again",
			zap.String("service", service.Name), zap.Int("attempt", attempt), zap.String("what", f.What))
		if !pause.For(ctx, time.Duration(attempt)*time.Second) {
			return cmp.Or(overruled(ctx), error(f.Failure))
		}
	}
}

// overruled returns why ctx has ended, other than by its deadline; nil where it has not.
func overruled(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, health.ErrDeadline) {
		return cause
	}
	return nil
}

// unhung returns a service whose own files may lie on a disk that hangs: who asks
// for what they say does not.
func (c *Children) unhung(service *framework.Service) *framework.Service {
	unhung := *service
	if look := service.Ready; look != nil {
		unhung.Ready = func(ctx context.Context) error {
			_, err := Answered(ctx, func() (struct{}, error) { return struct{}{}, look(ctx) })
			return err
		}
	}
	if explain := service.Death.Explain; explain != nil {
		unhung.Death.Explain = func() []string { return soon(c.life.Work, explain) }
	}
	if transient := service.Transient; transient != nil {
		unhung.Transient = func(exit process.Exit, lines []string) bool {
			return soon(c.life.Work, func() bool { return transient(exit, lines) })
		}
	}
	return &unhung
}

// soon returns what a look at files says; the zero value where they hang.
func soon[T any](ctx context.Context, look func() T) T {
	ctx, cancel := context.WithTimeoutCause(ctx, hurried, health.ErrDeadline)
	defer cancel()
	said, _ := Answered(ctx, func() (T, error) { return look(), nil })
	return said
}

// startFailure is a start that failed, and whether another try may not.
type startFailure struct {
	*health.Failure
	transient bool
}

// attempt makes one start; it returns no failure when the service is up.
func (c *Children) attempt(ctx context.Context, service *framework.Service, kind health.Kind, within time.Duration) (process.Handle, *startFailure) {
	c.note(service)
	child, err := c.begin(ctx, service)
	if err != nil {
		f := health.Failed(kind, "cannot start the %s of %s: %v", service.Name, c.node, err)
		if why := Unstarted(err); why != health.Internal {
			f.Code = health.OutcomeOf(why).Code
		}
		return nil, &startFailure{Failure: f}
	}
	err = c.prove(ctx, service, child)
	if err == nil {
		return child, nil
	}
	if cause := overruled(ctx); cause != nil {
		return nil, &startFailure{Failure: health.AsFailure(cause)} // Stop ends the child
	}
	died := Ended(child)
	if died {
		c.hearOut(child)
	}
	exit := child.Stop(c.life.Hurry, c.cfg.Grace, syscall.SIGTERM)
	if died {
		f := health.Failed(kind, "the %s of %s died before it was ready: %s", service.Name, c.node, exit)
		transient := service.Transient != nil && service.Transient(exit, child.LastLines())
		return nil, &startFailure{explained(c.About(f, child), service.Death.Explain), transient}
	}
	f := health.Failed(kind, "the %s of %s is not ready: %v", service.Name, c.node, err)
	if errors.Is(err, health.ErrDeadline) {
		f.What = fmt.Sprintf("the %s of %s was not ready within %s: %v", service.Name, c.node, within, err)
	}
	f.Child, f.Log, f.Lines = child.Name(), c.LogName(service.Name), child.LastLines()
	return nil, &startFailure{Failure: f}
}

// note keeps in mind what is to be done about a service in the end.
func (c *Children) note(service *framework.Service) {
	c.Evident(service)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abrupt[service.Name] = service.Expendable
}

// hearOut gives whoever passes on what a child has printed, as a tee does, a
// moment to do so.
func (c *Children) hearOut(child process.Handle) {
	ctx, cancel := context.WithTimeout(c.life.Hurry, signalSkew)
	defer cancel()
	pause.Await(ctx, child.Done())
}

// prove waits until the service is up. One without a probe is up when it runs.
func (c *Children) prove(ctx context.Context, service *framework.Service, child process.Handle) error {
	if service.Ready == nil {
		return nil
	}
	var ports []int
	for _, port := range portsOf(service) {
		if port.Last == 0 { // of a range the service may leave out those that others have
			ports = append(ports, port.Number)
		}
	}
	return health.WaitReady(ctx, c.cfg.Trail.Probed(service.Name, service.Ready), health.Wait{
		Died: child.Ended(), Owns: child.Owns, Ports: ports, Pace: service.Pace,
	})
}

// portsOf returns all ports that a service will listen on.
func portsOf(service *framework.Service) []framework.Port {
	if service.Port == 0 {
		return service.Ports
	}
	return append(slices.Clip(service.Ports), framework.Port{Name: service.Name, Number: service.Port})
}

// portsFree refuses to start a service where somebody else already listens: a
// stranger's answer would be taken for the service's own.
func (c *Children) portsFree(service *framework.Service, kind health.Kind) error {
	for _, port := range portsOf(service) {
		holders, err := health.Listeners(port.Number, max(port.Number, port.Last))
		if err != nil {
			return health.Failed(health.Internal, "%v", err)
		}
		if len(holders) > 0 {
			return health.Failed(kind, "cannot start the %s of %s: port %d (%s) is taken: %s",
				service.Name, c.node, holders[0].Port, port.Name, holders[0])
		}
	}
	return nil
}

// WatchStrangers warns in the background if a framework that can keep strangers out of its cluster
// lets them in. Its service is up on the head.
func (c *Children) WatchStrangers(f framework.Framework, head framework.Node, endpoint framework.Endpoint) {
	if guarded, is := f.(framework.Guarded); is {
		c.life.Background(func(context.Context) {
			guarded.Strangers(c.life.Run, head, endpoint, func(sentence string) { c.cfg.Log.Warn(sentence) })
		})
	}
}

// watch tells onDeath of a service's end. Whatever the code, it is a death,
// unless the run is over.
func (c *Children) watch(child process.Handle, kind health.Kind, service *framework.Service, onDeath func(*health.Failure)) {
	c.life.Background(func(ctx context.Context) {
		if !pause.Await(ctx, child.Ended()) {
			return
		}
		exit, stop := child.Exit(), c.stopOf(service)
		if !pause.For(c.life.Run, Skew(exit)) || c.endsAfter(stop, child) {
			return
		}
		f := health.Failed(kind, "the %s of %s %s", child.Name(), c.node, orStopped(deathOf(exit), stop))
		f = c.About(f, child)
		if stop == "" {
			f = explained(f, service.Death.Explain)
		}
		onDeath(f)
	})
}

// watchVital tells onDeath of the end of a process that a service can't do without.
func (c *Children) watchVital(child process.Handle, kind health.Kind, service *framework.Service, onDeath func(*health.Failure)) {
	if service.Death.Vital == nil {
		return
	}
	for _, one := range process.Tree(child.Pid()) {
		if !slices.Contains(service.Death.Vital, one.Name) {
			continue
		}
		c.life.Background(func(context.Context) {
			if process.AwaitGone(c.life.Run, one.PID) != nil {
				return
			}
			// If a signal to all is why, it has come to the daemon, too, in a moment.
			stop := c.stopOf(service)
			if !pause.For(c.life.Run, signalSkew) || c.endsAfter(stop, child) {
				return
			}
			f := health.Failed(kind, "the %s of %s %s", child.Name(), c.node, orStopped("died: its "+one.Name+" has ended", stop))
			f.Child, f.Log, f.Lines = child.Name(), c.LogName(child.Name()), child.LastLines()
			if stop == "" {
				f = explained(f, service.Death.Explain)
			}
			onDeath(f)
		})
	}
}

// stopPatience is for how long the driver may go on after it has ended a service by itself.
const stopPatience = 10 * time.Second

// stopOf returns the command by which the driver is ending a service at this moment; an empty string
// if there is none.
func (c *Children) stopOf(service *framework.Service) string {
	driver := c.find(Driver)
	if service.Death.Stops == nil || driver == nil {
		return ""
	}
	// The command line of a process whose memory is locked does not come, and a death must be told.
	found := soon(c.life.Work, func() (commands []string) {
		for _, one := range process.Tree(driver.Pid()) {
			if argv := process.CommandLine(one.PID); service.Death.Stops(argv) {
				commands = append(commands, strings.Join(argv, " "))
			}
		}
		return commands
	})
	return strings.Join(found[:min(len(found), 1)], "")
}

// endsAfter reports whether the driver ends in time, and well, after it has ended a service by the
// command stop: it needs the service no more then. The end of the run is as good.
func (c *Children) endsAfter(stop string, service process.Handle) bool {
	if stop == "" {
		return false
	}
	c.stopTold.Do(func() { // not for each process of the service
		c.cfg.Log.Warn(fmt.Sprintf("the driver has ended the %s of %s by itself: it has %s to end", service.Name(), c.node, stopPatience), zap.String("command", stop))
	})
	driver := c.find(Driver)
	if driver == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(c.life.Run, stopPatience)
	defer cancel()
	if pause.Await(ctx, driver.Ended()) {
		return driver.Exit().Status() == 0
	}
	return c.life.Run.Err() != nil
}

// orStopped returns what was seen of a service's end, or the driver's command that explains it.
func orStopped(seen, stop string) string {
	if stop == "" {
		return seen
	}
	return fmt.Sprintf("has ended: the driver has run %q", stop)
}

// deathOf says how something has ended that should live as long as the job.
func deathOf(exit process.Exit) string {
	if exit.Status() == 0 {
		return "ended with 0, though it should live as long as the job"
	}
	return "died: " + exit.String()
}

// signalSkew is how much later than a child the daemon may get the same signal:
// Slurm signals all processes of a step, one after the other.
const signalSkew = 100 * time.Millisecond

// Skew returns how long to wait, after a child's exit, for a signal to the daemon
// that would explain it. KILL is not sent for an end that is asked for, and
// what TERM has ended was most likely asked to.
func Skew(exit process.Exit) time.Duration {
	switch {
	case exit.Signal == syscall.SIGKILL:
		return 0
	case exit.Status() == 128+int(syscall.SIGTERM):
		return 10 * signalSkew
	default:
		return signalSkew
	}
}

// Setup runs a command of the user's to its end, within the time that it has. Its
// error is a *health.Failure, or the cause of ctx.
func (c *Children) Setup(ctx context.Context, line string, env []string, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	child, err := c.Start(ctx, process.Spec{Name: "setup", Argv: Shell(line), Env: env})
	if err != nil {
		failed := health.Failed(health.Setup, "cannot start the setup command of %s: %v", c.node, err)
		return cmp.Or(overruled(ctx), error(failed))
	}
	if !pause.Await(ctx, child.Ended()) {
		child.Stop(c.life.Hurry, c.cfg.Grace, syscall.SIGTERM)
		if cause := overruled(ctx); cause != nil {
			return cause
		}
		return c.About(health.Failed(health.Setup, "the setup command of %s had not ended after %s", c.node, within), child)
	}
	if exit := child.Exit(); exit.Status() != 0 {
		c.hearOut(child)
		return c.About(health.Failed(health.Setup, "the setup command of %s failed: %s", c.node, exit), child)
	}
	return nil
}

// About adds what is known of the child that a failure is about, and returns that.
func (c *Children) About(f *health.Failure, child process.Handle) *health.Failure {
	exit := child.Exit()
	f.Child, f.Log, f.Lines = child.Name(), c.LogName(child.Name()), child.LastLines()
	f.Code, f.Exit = exit.Code, exit.String()
	f.OOM = oomOf(exit)
	if exit.Signal != 0 {
		f.Signal, f.Code = process.SignalName(exit.Signal), 0
	}
	return f
}

// oomOf is what a record has of the kernel's count; nil where that says nothing.
func oomOf(exit process.Exit) *signal.OOM {
	if exit.OOM.Kills == 0 {
		return nil
	}
	return &signal.OOM{Kills: exit.OOM.Kills, Limit: exit.OOM.Limit, Cgroup: exit.OOM.Cgroup}
}

// explained adds what the service's own files say.
func explained(f *health.Failure, explain func() []string) *health.Failure {
	if explain == nil {
		return f
	}
	if signs := explain(); len(signs) > 0 {
		f.What += " (" + strings.Join(signs, "; ") + ")"
	}
	return f
}
