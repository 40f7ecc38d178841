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

// Shell returns the command that runs a line of shell code written by the user.
func Shell(line string) []string { return []string{"/bin/sh", "-c", line} }

// hurried bounds the time for reading a service's own files when a decision depends on them.
const hurried = time.Second

// Serve starts a service and waits until it is ready, within a time limit. From then on it calls
// onDeath when the service ends. A start that fails for a transient reason is repeated. The error
// is a *health.Failure of the given kind, or the cause of ctx.
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

// overruled returns the cause of ctx if ctx has ended for another reason than its deadline,
// otherwise nil.
func overruled(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, health.ErrDeadline) {
		return cause
	}
	return nil
}

// unhung returns a copy of the service with functions that do not block if the service's own files
// are on a disk that hangs.
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

// soon returns the result of look, which reads files; the zero value if they cannot be read in
// time.
func soon[T any](ctx context.Context, look func() T) T {
	ctx, cancel := context.WithTimeoutCause(ctx, hurried, health.ErrDeadline)
	defer cancel()
	said, _ := Answered(ctx, func() (T, error) { return look(), nil })
	return said
}

// startFailure is a failed start. It also holds whether another attempt may succeed.
type startFailure struct {
	*health.Failure
	transient bool
}

// attempt performs one start. It returns a nil failure if the service is ready.
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
	// The process runs: wait until the service is ready.
	err = c.prove(ctx, service, child)
	if err == nil {
		return child, nil
	}
	if cause := overruled(ctx); cause != nil {
		return nil, &startFailure{Failure: health.AsFailure(cause)} // the caller stops all children
	}
	// It is not ready: stop it, and explain why it ended or why it is not ready.
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

// note records how the service must be handled at the end: its own logs, and whether it is
// expendable.
func (c *Children) note(service *framework.Service) {
	c.Evident(service)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abrupt[service.Name] = service.Expendable
}

// hearOut waits briefly for the end of the child's output, which another process, such as tee, may
// still be passing on.
func (c *Children) hearOut(child process.Handle) {
	ctx, cancel := context.WithTimeout(c.life.Hurry, signalSkew)
	defer cancel()
	pause.Await(ctx, child.Done())
}

// prove waits until the service is ready. A service without a probe is ready at once.
func (c *Children) prove(ctx context.Context, service *framework.Service, child process.Handle) error {
	if service.Ready == nil {
		return nil
	}
	var ports []int
	for _, port := range portsOf(service) {
		if port.Last == 0 { // in a range, the service may skip ports that are in use
			ports = append(ports, port.Number)
		}
	}
	return health.WaitReady(ctx, c.cfg.Trail.Probed(service.Name, service.Ready), health.Wait{
		Died: child.Ended(), Owns: child.Owns, Ports: ports, Pace: service.Pace,
	})
}

// portsOf returns all ports on which a service will listen.
func portsOf(service *framework.Service) []framework.Port {
	if service.Port == 0 {
		return service.Ports
	}
	return append(slices.Clip(service.Ports), framework.Port{Name: service.Name, Number: service.Port})
}

// portsFree returns an error if another process already listens on a port of the service: its
// answer would be taken for the service's.
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

// WatchStrangers checks, in the background, whether the framework's cluster accepts clients without
// credentials, and logs a warning if it does. It applies only to frameworks that support
// credentials. The head's service must be ready.
func (c *Children) WatchStrangers(f framework.Framework, head framework.Node, endpoint framework.Endpoint) {
	if guarded, is := f.(framework.Guarded); is {
		c.life.Background(func(context.Context) {
			guarded.Strangers(c.life.Run, head, endpoint, func(sentence string) { c.cfg.Log.Warn(sentence) })
		})
	}
}

// watch calls onDeath when a service ends, whatever its exit code, unless the run has ended.
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

// watchVital calls onDeath when a vital process of a service ends.
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
			// If a signal to all processes is the reason, the daemon receives it within a moment too.
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

// stopPatience is how long the driver may continue after it has ended a service itself.
const stopPatience = 10 * time.Second

// stopOf returns the command line by which the driver is ending a service at this moment; empty if
// there is none.
func (c *Children) stopOf(service *framework.Service) string {
	driver := c.find(Driver)
	if service.Death.Stops == nil || driver == nil {
		return ""
	}
	// The command line of a process cannot be read while its memory is locked, but the failure must be
	// reported.
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

// endsAfter reports whether the driver ends successfully, and in time, after it has ended a service
// by the command stop: it did not need the service any more. The end of the run counts as well.
func (c *Children) endsAfter(stop string, service process.Handle) bool {
	if stop == "" {
		return false
	}
	c.stopTold.Do(func() { // once, not for each process of the service
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

// orStopped returns seen, the observed end of a service, or the driver's command if that explains
// the end.
func orStopped(seen, stop string) string {
	if stop == "" {
		return seen
	}
	return fmt.Sprintf("has ended: the driver has run %q", stop)
}

// deathOf describes the end of a process that should run as long as the job.
func deathOf(exit process.Exit) string {
	if exit.Status() == 0 {
		return "ended with 0, though it should live as long as the job"
	}
	return "died: " + exit.String()
}

// signalSkew is how much later than a child the daemon may receive the same signal: Slurm signals
// the processes of a step one after the other.
const signalSkew = 100 * time.Millisecond

// Skew returns how long after a child's exit to wait for a signal to the daemon that would explain
// the exit. A requested end does not start with SIGKILL, so there is no wait for it. An end by
// SIGTERM was most likely requested, so the wait is longer.
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

// Setup runs a setup command of the user to its end, within a time limit. The error is a
// *health.Failure or the cause of ctx.
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

// About adds the child's name, exit and last lines to f, and returns f.
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

// oomOf returns the record of OOM kills; nil if there were none.
func oomOf(exit process.Exit) *signal.OOM {
	if exit.OOM.Kills == 0 {
		return nil
	}
	return &signal.OOM{Kills: exit.OOM.Kills, Limit: exit.OOM.Limit, Cgroup: exit.OOM.Cgroup}
}

// explained adds explanations from the service's own files to f, and returns f.
func explained(f *health.Failure, explain func() []string) *health.Failure {
	if explain == nil {
		return f
	}
	if signs := explain(); len(signs) > 0 {
		f.What += " (" + strings.Join(signs, "; ") + ")"
	}
	return f
}
