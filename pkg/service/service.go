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

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
)

// ShellCommand returns the command that runs a line of shell code written by the user.
func ShellCommand(line string) []string { return RunInShell("", line) }

// RunInShell returns the command that runs a line in a shell, which may have flags; empty: /bin/sh.
func RunInShell(shell, line string) []string {
	return append(strings.Fields(cmp.Or(shell, "/bin/sh")), "-c", line)
}

// fileReadTimeout bounds the time for reading a service's own files when a decision depends on
// them.
const fileReadTimeout = time.Second

// Program states how a process of a role starts on a node, when it is ready, and what its end means.
type Program struct {
	// Describe describes the service before each start, with other ports if the framework chooses
	// them. It returns nil if this node runs none. Its error is a *health.Failure.
	Describe func() (*framework.Service, error)
	Title    string // of the program in messages; empty: the name of its service
	// Begin starts the process; nil: by the command of the service.
	Begin func(ctx context.Context) (process.Handle, error)
	// Stop ends the process if it is not ready in time; nil: by SIGTERM, with the grace period of the
	// node.
	Stop   func(child process.Handle) process.Exit
	Kind   health.Kind   // its failures'
	Within time.Duration // time limit for its readiness
	MayEnd bool          // an end with 0 is no failure
	// AwaitsPorts reports that a start waits while another user has a port of the program, and is repeated
	// if that user has taken it from the process.
	AwaitsPorts   bool
	StartsOnce    bool // a process that has been started is not started again
	AcceptsBeside bool // reports that another user may listen on other addresses of the ports
}

// Running is the process of a program that has been started.
type Running struct {
	process.Handle
	children   *Children
	program    Program
	service    *framework.Service
	vitalEnded chan string // receives the name of a vital process that has ended
}

// StartProgram starts a program and waits until it is ready. A start that fails for a transient
// reason is repeated. The error is a *health.Failure of the program's kind, or the cause of ctx. The
// result is nil if no process was started; after an error, the caller must stop it.
func (c *Children) StartProgram(ctx context.Context, p Program) (running *Running, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Within, health.ErrDeadline)
	defer cancel()
	if p.Stop == nil {
		p.Stop = func(child process.Handle) process.Exit {
			return child.Stop(c.contexts.Grace, c.cfg.GracePeriod, syscall.SIGTERM)
		}
	}
	service, err := p.Describe()
	saysPort := c.cfg.Log.Warn
	for attempt := 1; ; attempt++ {
		if err != nil || service == nil {
			return running, err
		}
		next, f := c.attemptStart(ctx, p, c.withBoundedCalls(service))
		running = cmp.Or(next, running)
		if f == nil {
			running.watchVitalProcesses()
			return running, nil
		}
		if err := nonDeadlineCause(ctx); err != nil {
			return running, err
		}
		if f.byStranger && p.AwaitsPorts && (next == nil || !p.StartsOnce) {
			saysPort(f.Message + ": waiting until the port is free, at most " + p.Within.String())
			saysPort = c.cfg.Log.Debug
			if !awaitPorts(ctx, service) {
				return running, cmp.Or(nonDeadlineCause(ctx), error(f.Failure))
			}
			attempt--
			continue
		}
		if attempt >= service.MaxStarts || !f.retryable {
			return running, f.Failure
		}
		if service, err = p.Describe(); f.takenPort != 0 && service != nil &&
			slices.ContainsFunc(servicePorts(service), f.isTakenPort) {
			return running, f.Failure // no other port is possible
		}
		c.cfg.Log.Warn("a start failed temporarily: trying again",
			zap.Int("attempt", attempt), zap.String("what", f.Message))
		if !ctxutil.SleepContext(ctx, time.Duration(attempt)*time.Second) {
			return running, cmp.Or(nonDeadlineCause(ctx), error(f.Failure))
		}
	}
}

// portInterval is the interval between two looks for a port to be free.
const portInterval = time.Second

// awaitPorts waits until no other user listens on a port of a service, or ctx ends. It reports whether
// the ports are free.
func awaitPorts(ctx context.Context, service *framework.Service) bool {
	for ctxutil.SleepContext(ctx, portInterval) {
		if holders, err := findHolders(service); err == nil &&
			!slices.ContainsFunc(holders, health.ListeningSocket.IsStrangers) {
			return true
		}
	}
	return false
}

// nonDeadlineCause returns the cause of ctx if ctx has ended for another reason than its deadline,
// otherwise nil.
func nonDeadlineCause(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, health.ErrDeadline) {
		return cause
	}
	return nil
}

// withBoundedCalls returns a copy of the service with functions that do not block if the service's
// own files are on a disk that hangs.
func (c *Children) withBoundedCalls(service *framework.Service) *framework.Service {
	unhung := *service
	if look := service.CheckReady; look != nil {
		unhung.CheckReady = func(ctx context.Context) error {
			_, err := CallBounded(ctx, func() (struct{}, error) { return struct{}{}, look(ctx) })
			return err
		}
	}
	if explain := service.ExitDetection.ExplainExit; explain != nil {
		unhung.ExitDetection.ExplainExit = func() []string { return callInTime(c.contexts.Teardown, explain) }
	}
	if transient := service.IsTransient; transient != nil {
		unhung.IsTransient = func(exit process.Exit, lines []string) bool {
			return callInTime(c.contexts.Teardown, func() bool { return transient(exit, lines) })
		}
	}
	return &unhung
}

// callInTime returns the result of look, which reads files; the zero value if they cannot be read
// in time.
func callInTime[T any](ctx context.Context, look func() T) T {
	ctx, cancel := context.WithTimeoutCause(ctx, fileReadTimeout, health.ErrDeadline)
	defer cancel()
	value, _ := CallBounded(ctx, func() (T, error) { return look(), nil })
	return value
}

// startFailure is a failed start. It also holds whether another attempt may succeed.
type startFailure struct {
	*health.Failure
	retryable  bool
	takenPort  int  // the port that another process has, which is the reason; otherwise 0
	byStranger bool // reports that another user has the port
}

func (f *startFailure) isTakenPort(port framework.Port) bool {
	return port.Number <= f.takenPort && f.takenPort <= max(port.Number, port.LastNumber)
}

// attemptStart performs one start. It returns a nil failure if the service is ready. The process is
// nil if it was not started.
func (c *Children) attemptStart(ctx context.Context, p Program, service *framework.Service) (*Running, *startFailure) {
	if f := c.checkPortsFree(service, p.Kind, p.AcceptsBeside); f != nil {
		return nil, f
	}
	// Record how the service must be handled at the end.
	c.RegisterLogs(service)
	c.setTrait(service.Name, func(t *childTraits) { t.needsNoGrace = service.NeedsNoGrace })
	begin := p.Begin
	if begin == nil {
		begin = func(ctx context.Context) (process.Handle, error) { return c.startProcess(ctx, service) }
	}
	child, err := begin(ctx)
	if own, ok := errors.AsType[*health.Failure](err); ok && child != nil {
		return &Running{child, c, p, service, make(chan string, 1)}, &startFailure{Failure: own}
	}
	if err != nil {
		f := health.NewFailure(p.Kind, "cannot start the %s of %s: %s",
			cmp.Or(p.Title, service.Name), c.nodeName, startReason(service.Name, err))
		if why := StartFailureKind(err); why != health.Internal {
			f.Code = health.OutcomeOfKind(why).Code
		}
		return nil, &startFailure{Failure: f}
	}
	// The process runs: wait until the service is ready.
	running := &Running{child, c, p, service, make(chan string, 1)}
	err = c.awaitReady(ctx, service, child, p.AcceptsBeside)
	if err == nil {
		return running, nil
	}
	if cause := nonDeadlineCause(ctx); cause != nil {
		return running, &startFailure{Failure: health.AsFailure(cause)} // the caller stops all children
	}
	// It is not ready: stop it, and explain why it ended or why it is not ready.
	died := HasEnded(child)
	if died {
		c.AwaitOutput(child)
	}
	exit := p.Stop(child)
	if died {
		// Another process may have been faster on a port that was free before the start.
		if f := c.checkPortsFree(service, p.Kind, false); f != nil && f.takenPort != 0 {
			f.Failure = c.AddChildInfo(f.Failure, child)
			return running, f
		}
		f := health.NewFailure(p.Kind, "the %s of %s died before it was ready: %s", service.Name, c.nodeName, exit)
		transient := service.IsTransient != nil && service.IsTransient(exit, child.LastLines())
		return running, &startFailure{Failure: addExplanation(c.AddChildInfo(f, child),
			service.ExitDetection.ExplainExit), retryable: transient}
	}
	f := health.NewFailure(p.Kind, "the %s of %s is not ready: %v", service.Name, c.nodeName, err)
	_, byStranger := errors.AsType[*health.StrangerError](err)
	if errors.Is(err, health.ErrDeadline) {
		f.Message = fmt.Sprintf("the %s of %s was not ready within %s: %v", service.Name, c.nodeName, p.Within, err)
		if wait, is := errors.AsType[*health.NotReadyError](err); is && wait.Last != nil {
			f.Message = fmt.Sprintf("the %s of %s was not ready within %s (%d %s): %v", service.Name, c.nodeName,
				p.Within, wait.Tries, textutil.PluralForm(wait.Tries, "attempt"), wait.Last)
		}
	}
	f.Child, f.Log, f.Lines = child.Name(), c.LogName(service.Name), child.LastLines()
	return running, &startFailure{Failure: f, byStranger: byStranger}
}

// AwaitOutput waits briefly for the end of the child's output, which another process, such as tee,
// may still be passing on.
func (c *Children) AwaitOutput(child process.Handle) {
	ctx, cancel := context.WithTimeout(c.contexts.Grace, maxSignalSkew)
	defer cancel()
	ctxutil.AwaitDone(ctx, child.Done())
}

// awaitReady waits until the service is ready. A service without a probe is ready at once.
func (c *Children) awaitReady(ctx context.Context, service *framework.Service, child process.Handle,
	acceptsBeside bool) error {
	if service.CheckReady == nil {
		return nil
	}
	var ports []int
	for _, port := range servicePorts(service) {
		if port.LastNumber == 0 { // in a range, the service may skip ports that are in use
			ports = append(ports, port.Number)
		}
	}
	return health.WaitReady(ctx, c.cfg.EventLog.LogProbe(service.Name,
		withListeningPorts(service, child)), health.WaitOptions{
		ChildExited: child.Ended(), OwnsProcess: child.OwnsProcess, Ports: ports,
		MaxPause: service.MaxCheckInterval, AcceptsBeside: acceptsBeside,
	})
}

func servicePorts(service *framework.Service) []framework.Port {
	if service.ReadyPort == 0 {
		return service.Ports
	}
	return append(slices.Clip(service.Ports), framework.Port{Name: service.Name, Number: service.ReadyPort})
}

// checkPortsFree returns a failure if another process already listens on a port of the service: its
// answer would be taken for the service's. It may accept other users who listen beside the service.
func (c *Children) checkPortsFree(service *framework.Service, kind health.Kind, acceptsBeside bool) *startFailure {
	holders, err := findHolders(service)
	if err != nil {
		return &startFailure{Failure: health.NewFailure(health.Internal, "%v", err)}
	}
	if acceptsBeside {
		holders = slices.DeleteFunc(holders, health.ListeningSocket.IsBeside)
	}
	if len(holders) == 0 {
		return nil
	}
	first := holders[0]
	f := &startFailure{retryable: true, takenPort: first.Port, byStranger: first.IsStrangers()}
	ports := servicePorts(service)
	name := ports[slices.IndexFunc(ports, f.isTakenPort)].Name
	f.Failure = health.NewFailure(kind, "cannot start the %s of %s: port %d (%s) is taken: %s",
		service.Name, c.nodeName, first.Port, name, first)
	return f
}

// findHolders returns the listeners on the ports of a service, those of the first port first.
func findHolders(service *framework.Service) (holders []health.ListeningSocket, err error) {
	for _, port := range servicePorts(service) {
		found, err := health.FindListeners(port.Number, max(port.Number, port.LastNumber))
		if err != nil {
			return nil, err
		}
		holders = append(holders, found...)
	}
	return holders, nil
}

// CheckOpenAccess checks, in the background, whether the framework's cluster accepts clients
// without credentials, and logs a warning if it does. It applies only to frameworks that support
// credentials. The head's service must be ready.
func (c *Children) CheckOpenAccess(cluster framework.Cluster) {
	if guarded, is := cluster.Framework.(framework.Authenticator); is {
		c.contexts.Background(func(context.Context) {
			guarded.WarnIfOpen(c.contexts.Run, cluster.Head, cluster.Endpoint,
				func(sentence string) { c.cfg.Log.Warn(sentence) })
		})
	}
}

func (r *Running) watchVitalProcesses() {
	if r.service.ExitDetection.VitalProcesses == nil {
		return
	}
	for _, one := range process.ProcessTree(r.PID()) {
		if !slices.Contains(r.service.ExitDetection.VitalProcesses, one.Name) {
			continue
		}
		r.children.contexts.Background(func(context.Context) {
			if process.AwaitProcessEnd(r.children.contexts.Run, one.PID) != nil {
				return
			}
			select {
			case r.vitalEnded <- one.Name:
			default: // one is sufficient
			}
		})
	}
}

// AwaitFailure waits until the program or one of its vital processes has ended, and returns that as
// a failure. It returns nil if that is no failure, or if ctx or the run ends first: the program has
// ended with 0 and may, or the driver has ended it and succeeds.
func (r *Running) AwaitFailure(ctx context.Context) *health.Failure {
	var vital string
	select {
	case <-ctx.Done():
		return nil
	case vital = <-r.vitalEnded:
	case <-r.Ended():
	}
	seen, delay, reason := time.Now(), maxSignalSkew, "died: its "+vital+" has ended"
	if vital == "" {
		exit := r.Exit()
		delay, reason = SignalDelay(exit), "died: "+exit.String()
		switch {
		case exit.ShellStatus() == 0 && r.program.MayEnd:
			return nil
		case exit.ShellStatus() == 0:
			reason = "ended with 0, but it must run as long as the job"
		case r.program.MayEnd:
			reason = "failed: " + exit.String()
		}
	}
	// If a signal to all processes is the reason, the daemon receives it within a moment, too.
	c, title, explained := r.children, cmp.Or(r.program.Title, r.Name()), func() {}
	if c.cfg.OnExit != nil {
		explained = c.cfg.OnExit()
	}
	stop := c.findStopCommand(r.service)
	if !ctxutil.SleepContext(ctx, delay) || c.contexts.Run.Err() != nil || c.driverEndsAfter(stop, r) {
		explained()
		return nil
	}
	f := health.NewFailure(r.program.Kind, "the %s of %s has ended: the driver has run %q", title, c.nodeName, stop)
	if stop == "" {
		f.Message = fmt.Sprintf("the %s of %s %s", title, c.nodeName, reason)
		_ = addExplanation(f, r.service.ExitDetection.ExplainExit)
	}
	if f.Child, f.Log, f.Lines, f.SeenAt = r.Name(), c.LogName(r.Name()), r.LastLines(), seen; vital == "" {
		_ = c.AddChildInfo(f, r)
	}
	f.Lines = omitNoise(f.Lines, r.service.ExitDetection.IsNoise)
	return f
}

// driverStopTimeout is how long the driver may continue after it has ended a service itself.
const driverStopTimeout = 10 * time.Second

// findStopCommand returns the command line by which the driver is ending a service at this moment;
// empty if there is none.
func (c *Children) findStopCommand(service *framework.Service) string {
	if service.ExitDetection.IsStopCommand == nil {
		return ""
	}
	driver := c.awaitDriverStart()
	if driver == nil {
		return ""
	}
	// The command line of a process cannot be read while its memory is locked, but the failure must be
	// reported.
	found := callInTime(c.contexts.Teardown, func() (commands []string) {
		for _, one := range process.ProcessTree(driver.PID()) {
			if argv := process.CommandLine(one.PID); service.ExitDetection.IsStopCommand(argv) {
				commands = append(commands, strings.Join(argv, " "))
			}
		}
		return commands
	})
	return strings.Join(found[:min(len(found), 1)], "")
}

// awaitDriverStart returns the driver; nil if it was not started. A driver runs before its start has
// returned, and on a busy node it may end a service meanwhile. The wait is bounded.
func (c *Children) awaitDriverStart() process.Handle {
	ctx, cancel := context.WithTimeout(c.contexts.Teardown, fileReadTimeout)
	defer cancel()
	for c.isStarting() && ctxutil.SleepContext(ctx, driverStartPoll) {
	}
	return c.FindChild(DriverName)
}

// driverStartPoll is the interval between checks whether the start of the driver has returned.
const driverStartPoll = 10 * time.Millisecond

// driverEndsAfter reports whether the driver ends successfully, and in time, after it has ended a
// service by the command stop: it did not need the service any more. The end of the run counts as
// well.
func (c *Children) driverEndsAfter(stop string, service process.Handle) bool {
	if stop == "" {
		return false
	}
	c.stopLogged.Do(func() { // once, not for each process of the service
		c.cfg.Log.Warn(fmt.Sprintf("the driver has ended the %s of %s: it has %s to end",
			service.Name(), c.nodeName, driverStopTimeout), zap.String("command", stop))
	})
	driver := c.FindChild(DriverName)
	if driver == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(c.contexts.Run, driverStopTimeout)
	defer cancel()
	if ctxutil.AwaitDone(ctx, driver.Ended()) {
		return driver.Exit().ShellStatus() == 0
	}
	return c.contexts.Run.Err() != nil
}

// maxSignalSkew is how much later than a child the daemon may receive the same signal: Slurm
// signals the processes of a step one after the other.
const maxSignalSkew = 100 * time.Millisecond

// SignalDelay returns how long after a child's exit to wait for a signal to the daemon that would
// explain the exit. A requested end does not start with SIGKILL, so there is no wait for it. An end
// by SIGTERM was most likely requested, so the wait is longer.
func SignalDelay(exit process.Exit) time.Duration {
	switch {
	case exit.Signal == syscall.SIGKILL:
		return 0
	case exit.ShellStatus() == 128+int(syscall.SIGTERM):
		return 10 * maxSignalSkew
	default:
		return maxSignalSkew
	}
}

// RunSetup runs a setup command of the user to its end, within a time limit. The error is a
// *health.Failure or the cause of ctx.
func (c *Children) RunSetup(ctx context.Context, line string, env []string, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, health.ErrDeadline)
	defer cancel()
	setup := framework.NewService("setup", ShellCommand(line), env, nil)
	running, err := c.StartProgram(ctx, Program{
		Title: "setup command", Describe: func() (*framework.Service, error) { return setup, nil },
		Kind: health.SetupFailed, Within: within, MayEnd: true,
	})
	if err != nil {
		return err
	}
	f := running.AwaitFailure(ctx)
	if f == nil && ctx.Err() != nil {
		running.Stop(c.contexts.Grace, c.cfg.GracePeriod, syscall.SIGTERM)
		f = c.AddChildInfo(health.NewFailure(health.SetupFailed,
			"the setup command of %s had not ended after %s", c.nodeName, within), running)
	}
	if cause := nonDeadlineCause(ctx); cause != nil || f == nil {
		return cause
	}
	return f
}

// AddChildInfo adds the child's name, exit, error and last lines to f, and returns f. If the child
// has died of a signal that was passed on, it also changes the kind. more has further outputs of
// the child, in which the error is searched for if its own say none.
func (c *Children) AddChildInfo(
	f *health.Failure, child process.Handle, more ...[]string,
) *health.Failure {
	exit := child.Exit()
	f.Child, f.Log, f.Lines = child.Name(), c.LogName(child.Name()), child.LastLines()
	f.Code, f.ExitText, f.OOM = exit.Code, exit.String(), exit.OOM
	if exit.Signal != 0 {
		f.Signal, f.Code = process.SignalName(exit.Signal), 0
	}
	if clause, is := c.EndedBySignal(child); is {
		f.Kind, f.Message = health.Signalled, f.Message+clause
		if f.WorldRank != nil {
			f.WorldRank.Symptom = "" // it is explained
		}
		return f
	}
	if f.ErrorLine = ErrorLine(child, more...); exit.ShellStatus() == 0 { // it had to run on
		f.ErrorLine = lastError(child)
	}
	if f.ErrorLine != "" {
		f.Message += ": " + f.ErrorLine
	}
	return f
}

// ErrorLine returns the line of a child's output, or of further outputs, that says why it has
// failed, or an empty string.
func ErrorLine(child process.Handle, more ...[]string) string {
	out, err := child.RecentLines()
	return health.FindErrorLine(child.Exit().ShellStatus(), append([][]string{err, out}, more...)...)
}

func omitNoise(lines []string, isNoise func(string) bool) []string {
	if isNoise == nil {
		return lines
	}
	if left := slices.DeleteFunc(slices.Clone(lines), isNoise); len(left) > 0 {
		return left
	}
	return lines
}

// addExplanation adds explanations from the service's own files to f, and returns f.
func addExplanation(f *health.Failure, explain func() []string) *health.Failure {
	if explain == nil {
		return f
	}
	if signs := explain(); len(signs) > 0 {
		f.Message += " (" + strings.Join(signs, "; ") + ")"
	}
	return f
}

// listeningInterval is the time after which a service that is not ready is searched for the ports on
// which it does listen, and the interval between two such searches.
const listeningInterval = 5 * time.Second

// withListeningPorts returns the probe of a service. If the service listens on other ports than that
// of the probe, its error also names them: a probe of the wrong port would fail for ever.
func withListeningPorts(service *framework.Service, child process.Handle) func(context.Context) error {
	if service.ReadyPort == 0 {
		return service.CheckReady
	}
	next, clause := time.Now().Add(listeningInterval), ""
	return func(ctx context.Context) error {
		err := service.CheckReady(ctx)
		if err == nil {
			return nil
		}
		if time.Now().After(next) {
			ports, _ := health.ListeningPorts(child.OwnsProcess) // without an answer there is no clause
			next, clause = time.Now().Add(listeningInterval), describeListening(ports, service.ReadyPort)
		}
		if clause == "" {
			return err
		}
		return fmt.Errorf("nothing listens on port %d; %s", service.ReadyPort, clause)
	}
}

// describeListening returns a clause about the ports on which a service listens, or an empty string
// if it listens on none, or on the expected one.
func describeListening(ports []int, expected int) string {
	if len(ports) == 0 || slices.Contains(ports, expected) {
		return ""
	}
	return fmt.Sprintf("its processes listen on %s %s instead", textutil.PluralForm(len(ports), "port"),
		textutil.FormatRanges(ports))
}
