package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

func shell(line string) []string { return []string{"/bin/sh", "-c", line} }

// logName is where a child's output goes: the head's service and the driver
// are one a job, all else is one a node.
func (n *node) logName(child string) string {
	child = strings.ReplaceAll(child, " ", "-")
	if child == "driver" || strings.HasSuffix(child, "head") {
		return child + ".log"
	}
	return signal.LogName(child, n.id.Rank, n.id.Size)
}

// start starts a child that logs into the run directory. It is stopped by stop.
func (n *node) start(ctx context.Context, spec process.Spec) (*process.Child, error) {
	log := n.openLog(n.logName(spec.Name))
	spec.Log = log
	n.expect(spec.Name)
	child, err := n.super.Start(ctx, spec)
	n.adopt(spec.Name, child)
	if err != nil {
		_ = log.Close(ctx) // nothing was written
		return nil, err
	}
	n.background(func(ctx context.Context) {
		select {
		case <-ctx.Done():
			return
		case <-child.Ended():
		}
		n.trail.Exited(child.Name(), child.Pid(), child.Exit().String())
		select {
		case <-ctx.Done():
			return
		case <-child.Done():
		}
		if err := log.Close(ctx); ctx.Err() == nil { // else the share hangs, which is known
			n.logged(err)
		}
	})
	n.trail.Event(trail.Start, trail.Fields{Child: spec.Name, PID: child.Pid()})
	return child, nil
}

// openLog returns a log in the run directory, whose lines never wait for the share.
func (n *node) openLog(name string) *signal.Journal {
	file := n.dir.LogFile(signal.Logs, name)
	log := signal.NewJournal()
	log.Eager = true
	log.Dropped = func(lines int) string {
		return fmt.Sprintf("[bringupd: %d lines dropped: the log was not taking them]", lines)
	}
	log.Open(&sizedLog{LogFile: file, left: cmp.Or(n.cfg.LargeLog, largeLog), large: func(size int64) {
		n.log.Warn("a log has become large, and all that is printed goes on to be kept there",
			zap.String("log", file.Path()), zap.Int64("bytes", size))
	}})
	return log
}

// largeLog is from how many bytes on people are told of a child's log. It has no
// bound: what a driver prints is the user's, and an end that is cut off explains
// nothing.
const largeLog = 1 << 30

// sizedLog is a child's log that tells once when it has become large.
type sizedLog struct {
	*signal.LogFile
	size  int64
	left  int64 // until it is large
	large func(size int64)
}

func (l *sizedLog) Write(data []byte) (int, error) {
	n, err := l.LogFile.Write(data)
	l.size += int64(n)
	before := l.left
	l.left -= int64(n)
	if before > 0 && l.left <= 0 {
		l.large(l.size)
	}
	return n, err
}

// serve starts a service, proves it within the deadline, and has its death
// told to onDeath from then on. A start that failed in passing is tried again.
func (n *node) serve(ctx context.Context, service *framework.Service, kind health.Kind, within time.Duration, onDeath func(*failure)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errDeadline)
	defer cancel()
	service = n.unhung(service)
	free, err := n.portsFree(service, kind)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		child, f := n.attempt(ctx, service, kind, free, within)
		if f == nil {
			n.watch(child, kind, service.Explain, onDeath)
			return nil
		}
		if err := context.Cause(ctx); err != nil && !errors.Is(err, errDeadline) {
			return err
		}
		if attempt >= service.Attempts || service.Transient == nil || !f.transient {
			return f.failure
		}
		n.log.Warn("a start failed in passing: trying again",
			zap.String("service", service.Name), zap.Int("attempt", attempt), zap.String("what", f.What))
		if !pause.For(ctx, time.Duration(attempt)*time.Second) {
			if err := context.Cause(ctx); !errors.Is(err, errDeadline) {
				return err
			}
			return f.failure
		}
	}
}

// unhung returns a service whose own files may lie on a disk that hangs: who asks
// for what they say does not.
func (n *node) unhung(service *framework.Service) *framework.Service {
	unhung := *service
	if look := service.Ready; look != nil {
		unhung.Ready = func(ctx context.Context) error {
			_, err := answered(ctx, func() (struct{}, error) { return struct{}{}, look(ctx) })
			return err
		}
	}
	hurry := func() (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(n.work, sickShare, errDeadline)
	}
	if explain := service.Explain; explain != nil {
		unhung.Explain = func() []string {
			ctx, cancel := hurry()
			defer cancel()
			signs, _ := answered(ctx, func() ([]string, error) { return explain(), nil })
			return signs
		}
	}
	if transient := service.Transient; transient != nil {
		unhung.Transient = func(exit process.Exit, lines []string) bool {
			ctx, cancel := hurry()
			defer cancel()
			passing, _ := answered(ctx, func() (bool, error) { return transient(exit, lines), nil })
			return passing
		}
	}
	return &unhung
}

// errDeadline is the cause of a service's context when its time is over.
var errDeadline = errors.New("the deadline passed")

// startFailure is a start that failed, and whether another try may not.
type startFailure struct {
	*failure
	transient bool
}

// attempt makes one start; it returns no failure when the service is up.
func (n *node) attempt(ctx context.Context, service *framework.Service, kind health.Kind, free bool, within time.Duration) (*process.Child, *startFailure) {
	log := n.logName(service.Name)
	n.evident(service)
	child, err := n.start(ctx, process.Spec{Name: service.Name, Argv: service.Argv, Env: service.Env})
	if err != nil {
		return nil, &startFailure{failure: failed(kind, "cannot start the %s of %s: %v", service.Name, n.name(n.id.Rank), err)}
	}
	err = n.prove(ctx, service, child, free)
	if err == nil {
		return child, nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, errDeadline) {
		return nil, &startFailure{failure: asFailure(cause)} // stopAll ends the child
	}
	died := ended(child)
	if died {
		n.hearOut(child)
	}
	exit := child.Stop(n.hurry, n.cfg.Times.StopGrace, syscall.SIGTERM)
	if died {
		f := failed(kind, "the %s of %s died before it was ready: %s", service.Name, n.name(n.id.Rank), exit)
		transient := service.Transient != nil && service.Transient(exit, child.LastLines())
		return nil, &startFailure{f.about(child, log).explained(service.Explain), transient}
	}
	f := failed(kind, "the %s of %s is not ready: %v", service.Name, n.name(n.id.Rank), err)
	if errors.Is(err, errDeadline) {
		f.What = fmt.Sprintf("the %s of %s was not ready within %s: %v", service.Name, n.name(n.id.Rank), within, err)
	}
	f.Child, f.Log, f.Lines = child.Name(), log, child.LastLines()
	return nil, &startFailure{failure: f}
}

// evident notes where the service's own logs are.
func (n *node) evident(service *framework.Service) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if service.Evidence == "" {
		return
	}
	if n.evidence == nil {
		n.evidence = make(map[string]string)
	}
	n.evidence[strings.TrimSuffix(n.logName(service.Name), ".log")+".d"] = service.Evidence
}

func ended(child *process.Child) bool {
	select {
	case <-child.Ended():
		return true
	default:
		return false
	}
}

// hearOut gives whoever passes on what a child has printed, as a tee does, a
// moment to do so.
func (n *node) hearOut(child *process.Child) {
	moment := time.NewTimer(signalSkew)
	defer moment.Stop()
	select {
	case <-child.Done():
	case <-moment.C:
	case <-n.hurry.Done():
	}
}

// prove waits until the service is up. One without a probe is up when it runs.
func (n *node) prove(ctx context.Context, service *framework.Service, child *process.Child, free bool) error {
	if service.Ready == nil {
		return nil
	}
	return health.WaitReady(ctx, n.trail.Probed(service.Name, service.Ready), health.Wait{
		Died: child.Ended(), Owns: child.Owns, Port: service.Port, WasFree: free,
	})
}

// portsFree refuses to start a service where somebody else already listens: a
// stranger's answer would be taken for the service's own.
func (n *node) portsFree(service *framework.Service, kind health.Kind) (bool, error) {
	ports := service.Ports
	if service.Port > 0 {
		ports = append(slices.Clip(ports), framework.Port{Name: service.Name, Number: service.Port})
	}
	for _, port := range ports {
		holders, err := health.Listeners(port.Number)
		if err != nil {
			return false, failed(health.Internal, "%v", err)
		}
		if len(holders) > 0 {
			return false, failed(kind, "cannot start the %s of %s: port %d (%s) is taken: %s",
				service.Name, n.name(n.id.Rank), port.Number, port.Name, holders[0])
		}
	}
	return true, nil
}

// watch tells onDeath of a service's end. Whatever the code, it is a death,
// unless the run is over.
func (n *node) watch(child *process.Child, kind health.Kind, explain func() []string, onDeath func(*failure)) {
	n.background(func(ctx context.Context) {
		select {
		case <-ctx.Done():
			return
		case <-child.Ended():
		}
		exit := child.Exit()
		if !pause.For(n.life, skewOf(exit)) {
			return
		}
		f := failed(kind, "the %s of %s %s", child.Name(), n.name(n.id.Rank), deathOf(exit))
		onDeath(f.about(child, n.logName(child.Name())).explained(explain))
	})
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

// skewOf is how long to wait, after a child's exit, for a signal to the daemon
// that would explain it. KILL is not sent for an end that is asked for, and
// what TERM has ended was most likely asked to.
func skewOf(exit process.Exit) time.Duration {
	switch {
	case exit.Signal == syscall.SIGKILL:
		return 0
	case exit.Status() == 128+int(syscall.SIGTERM):
		return 10 * signalSkew
	default:
		return signalSkew
	}
}

// setup runs the setup command to its end.
func (n *node) setup(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, n.cfg.Times.Setup, errDeadline)
	defer cancel()
	const name = "setup"
	child, err := n.start(ctx, process.Spec{Name: name, Argv: shell(n.cfg.Setup), Env: n.childEnv(n.cfg.Environ, n.launchSeat())})
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, errDeadline) {
		return cause
	}
	if err != nil {
		return failed(health.Setup, "cannot start the setup command of %s: %v", n.name(n.id.Rank), err)
	}
	select {
	case <-child.Ended():
	case <-ctx.Done():
		child.Stop(n.hurry, n.cfg.Times.StopGrace, syscall.SIGTERM)
		if cause := context.Cause(ctx); !errors.Is(cause, errDeadline) {
			return cause
		}
		return failed(health.Setup, "the setup command of %s had not ended after %s", n.name(n.id.Rank), n.cfg.Times.Setup).
			about(child, n.logName(name))
	}
	if exit := child.Exit(); exit.Status() != 0 {
		n.hearOut(child)
		return failed(health.Setup, "the setup command of %s failed: %s", n.name(n.id.Rank), exit).
			about(child, n.logName(name))
	}
	return nil
}

// stopAll ends all children side by side, and returns what would not die.
func (n *node) stopAll(end *ending) (left []string) {
	left = n.stopEach(n.cfg.Times.stopGrace(end), func(*process.Child) bool { return true })
	if n.commands != nil && n.silence() < sickShare {
		n.commands.Settle(sickShare)
	}
	return left
}

// stopEach ends those children side by side, and returns what would not die.
func (n *node) stopEach(grace time.Duration, which func(*process.Child) bool) (left []string) {
	n.mu.Lock()
	children := slices.DeleteFunc(slices.Clone(n.children), func(child *process.Child) bool { return !which(child) })
	n.mu.Unlock()
	problems := make([]error, len(children))
	var stops sync.WaitGroup
	for i, child := range children {
		stops.Go(func() {
			problems[i] = child.Stop(n.hurry, grace, syscall.SIGTERM).Err
			if ended(child) {
				n.trail.Exited(child.Name(), child.Pid(), child.Exit().String())
			}
		})
	}
	stops.Wait()
	for i, problem := range problems {
		if problem != nil {
			left = append(left, fmt.Sprintf("%s: %v", children[i].Name(), problem))
		}
	}
	return left
}
