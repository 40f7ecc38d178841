package advice

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NextSteps returns the next steps for the user, the most likely one first. It names only commands
// that exist in the environment of the job.
func (a *Summary) NextSteps() []string { return slices.Concat(a.causeSteps(), a.drainSteps()) }

// causeSteps returns the steps for the cause, without those that drain nodes.
func (a *Summary) causeSteps() []string {
	if a.Cause == nil || a.Cause.Kind == health.DriverFailed {
		return a.adviseDriver()
	}
	switch kind := a.Cause.Kind; kind {
	case health.DaemonDied:
		return slices.Concat(a.findKiller(a.Cause.FaultyNodes()), a.lostDaemonLog(), a.excludeNodes())
	case health.HostLost:
		return append(a.askAdmins(), a.excludeNodes()...)
	case health.HostHangs:
		hangs := "check for swapping or a mount that hangs: free -m; ps -eo state,pid,wchan:30,args | grep ^D"
		return append([]string{a.onNodes(a.Cause.FaultyNodes()) + hangs}, a.excludeNodes()...)
	case health.CutOff:
		return slices.Concat(a.inspectNetwork(), a.askAdmins(), a.excludeNodes())
	case health.PeerLost:
		return slices.Concat(a.lostDaemonLog(), a.askAdmins(), a.excludeNodes())
	case health.NotReturned:
		return append([]string{"request one node more than the driver needs, and give --nnodes: another attempt then " +
			"continues without a lost node"}, a.excludeNodes()...)
	case health.ServiceDied, health.SandboxDied, health.SetupFailed, health.RankFailed:
		return a.adviseChild(kind)
	case health.RankAborted:
		return a.fullLogStep()
	case health.CheckFailed, health.CheckUser, health.CheckEnvironment, health.NodesDiffer:
		return append(a.checkHints(), a.excludeNodes()...)
	case health.GPUFailed:
		return slices.Concat(a.gpuSteps(), a.askAdmins(), a.excludeNodes())
	case health.ShareUnusable:
		return a.adviseShare()
	case health.DeadlinePassed:
		return slices.Concat(a.suspectLog(), a.longerTimeout(a.Cause.Phase), a.daemonLog(a.Cause.NodeIndex))
	case health.JobDeadlinePassed:
		return append(a.suspectLog(), "give a longer --deadline, or none, if the job needs more time")
	case health.Terminated:
		return a.adviseTerminated()
	case health.Interrupted, health.Signalled:
		return nil
	case health.NotFound:
		return a.adviseNotFound()
	case health.NotExecutable:
		return nil // the message explains what is wrong with the file, and the command that repairs it
	case health.Usage, health.Launch: // the message has the remedy
		return a.compareSettings()
	case health.RequeuesExhausted:
		runs := textutil.QuoteShellWord(filepath.Join(a.LogDir, a.ID.Job)) + "*"
		return []string{"see the result.json of each earlier run: ls -d " + runs}
	default:
		return append(a.daemonLog(a.Cause.NodeIndex), "if the message does not explain it, this is a bug in bringupd: "+
			"keep the run directory and report it")
	}
}

// compareSettings returns the step that finds the settings in which a node differs from the head.
func (a *Summary) compareSettings() []string {
	if a.Cause.Kind != health.Usage || a.Cause.Phase != record.PhaseJoin {
		return nil
	}
	return []string{"compare the settings of the nodes: bringupd --dry-run with the same flags prints " +
		"them"}
}

// maxHints is the maximum number of failed checks for which there is advice.
const maxHints = 4

// checkHints returns the advice of the failed checks, and the command that drains the node.
func (a *Summary) checkHints() []string {
	var report check.Report
	if len(a.Cause.Report) == 0 || json.Unmarshal(a.Cause.Report, &report) != nil {
		return a.askAdmins()
	}
	var steps []string
	for _, f := range report.Findings {
		step := textutil.TerminalLine(f.ID + ": " + f.Hint)
		if f.Verdict == check.Fail && f.Hint != "" && !slices.Contains(steps, step) && len(steps) < maxHints {
			steps = append(steps, step)
		}
	}
	if line := check.DrainCommand(report, a.launcherWords().DrainNode); line != "" {
		steps = append(steps, "ask an administrator to drain it: "+textutil.TerminalLine(line))
	}
	return steps
}

func (a *Summary) gpuSteps() []string {
	event, ok := gpu.DecodeEvent(a.Cause.Report)
	if !ok || event.Action == "" {
		return nil
	}
	return []string{a.onNodes([]int{a.Cause.NodeIndex}) + textutil.TerminalLine(event.Action)}
}

// maxDrainedNodes is the maximum number of nodes for which the steps have a command that drains
// them. The result lists all bad nodes.
const maxDrainedNodes = 4

// drainSteps returns the commands that drain nodes with GPUs that are not fit for another job,
// whatever the result of this one.
func (a *Summary) drainSteps() (steps []string) {
	drain := a.launcherWords().DrainNode
	drained := make(map[string]bool)
	for _, record := range a.gpuEvents() {
		event, ok := gpu.DecodeEvent(record.Detail)
		if !ok || event.Next != gpu.NextUnfit || drained[record.Host] || len(drained) == maxDrainedNodes {
			continue
		}
		report := check.Report{Host: record.Host, Findings: []check.Finding{event.ToFinding()}}
		if line := check.DrainCommand(report, drain); line != "" {
			drained[record.Host] = true
			steps = append(steps, "ask an administrator to drain "+record.Host+", which is not fit for further jobs: "+
				textutil.TerminalLine(line))
		}
	}
	return steps
}

// gpuEvents returns the events of GPUs, starting with the one that has ended the job.
func (a *Summary) gpuEvents() (events []record.Event) {
	failures := a.Consequences
	if a.Cause != nil {
		failures = append([]record.Failure{*a.Cause}, failures...)
	}
	for _, failure := range failures {
		if failure.Kind == health.GPUFailed {
			events = append(events, record.Event{Header: failure.Header, Detail: failure.Report})
		}
	}
	return append(events, a.Events...)
}

// adviseDriver returns the steps for a driver that has ended by itself, or a world of ranks that
// has continued after failures.
func (a *Summary) adviseDriver() []string {
	if a.Code == 0 || a.Outcome != string(health.DriverOutcomeName) || a.RunDir == "" {
		return nil
	}
	switch run := textutil.QuoteShellWord(a.RunDir); {
	case a.HasRanks:
		return []string{"see their output: bringupd logs ranks " + run}
	case a.Driver == "" && a.Cause != nil: // a primary role
		steps := knownStep(adviseProgram(a.Cause.Lines, false))
		return append(slices.Concat(a.otherPort(), steps), "see its output: bringupd logs "+run)
	case a.Driver == "": // ranks of a role have failed
		return []string{"see their output: bringupd logs " + run}
	}
	steps := []string{"read " + a.logPath("driver.log")}
	if a.DriverLines == nil {
		steps = []string{"it printed nothing, so there is no driver.log: " +
			"in a shell script, set -x shows which command failed"}
	}
	if advise := a.Framework.AdviseDriver; advise != nil {
		if step := advise(a.DriverLines); step != "" {
			return append([]string{step}, steps...)
		}
	}
	steps = append(knownStep(adviseProgram(a.DriverLines, false)), steps...)
	switch {
	case a.DriverEnd.OOM != nil:
		steps = append(steps, a.enoughMemory())
	case userSignals[a.Code] != "":
		steps = append([]string{adviseUserSignal(userSignals[a.Code])}, steps...)
	case a.Code == sigkillExitCode:
		steps = a.addKiller(steps, 0)
	}
	return steps
}

// adviseNotFound returns the steps for a driver, or a program to be spawned, that was not found.
func (a *Summary) adviseNotFound() []string {
	// The message quotes a driver whose name contains a quotation mark, and has the shortest form of a
	// path.
	names := []string{a.Driver, strconv.Quote(a.Driver), filepath.Clean(a.Driver)}
	if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(a.Cause.Message, name) }) {
		return []string{"check that the program to spawn exists on " + a.nodeName(a.Cause.NodeIndex) +
			": it is searched for in the directory and the PATH of the process that spawns it"}
	}
	if isShellWord(a.Driver) {
		return []string{fmt.Sprintf("%s is a word of the shell, and no shell reads the command: "+
			"give the whole line to one, as in: -- sh -c '%s …'", a.Driver, a.Driver)}
	}
	var steps []string
	if strings.HasSuffix(a.Driver, ".py") && !strings.ContainsAny(a.Driver, "/ ") {
		steps = append(steps,
			"give a Python program to its interpreter, as in: -- python "+textutil.QuoteShellWord(a.Driver))
	}
	if words := strings.Fields(a.Driver); len(words) > 1 {
		steps = append(steps, fmt.Sprintf("if %s is a whole command line, it was quoted as one word: "+
			"remove the quotes around it, as in: -- %s%s", textutil.QuoteShellWord(a.Driver),
			strings.Join(words[:2], " "), strings.Repeat(" …", min(1, len(words)-2))))
		if !strings.Contains(words[0], "/") {
			return steps // it cannot be the path of a file
		}
	}
	if strings.Contains(a.Driver, "/") {
		return append(steps, fmt.Sprintf(
			"check that %s exists on %s: its file system may not be mounted on the nodes", a.Driver, a.nodeName(0)))
	}
	return append(steps, fmt.Sprintf("give the driver's path, as ./%[1]s for a file of the job's directory: %[1]s is "+
		"searched for in the job's PATH on %[2]s, not in your login's", a.Driver, a.nodeName(0)))
}

// assignment matches a shell's assignment of a variable before a command.
var assignment = textutil.CompileLazily(`^[A-Za-z_][A-Za-z0-9_]*=[A-Za-z0-9_./:,-]*$`)

// isShellWord reports whether a command that was not found means something to a shell only.
func isShellWord(command string) bool {
	words := []string{"cd", "source", ".", "export", "module", "ulimit", "exec", "set"}
	return slices.Contains(words, command) || assignment().MatchString(command)
}

// sigkillExitCode is the exit code after SIGKILL, which the kernel sends if memory runs out.
const sigkillExitCode = 137

// userSignals are, by the exit code of a program that has died of them, the signals that schedulers
// send on request.
var userSignals = map[int]string{
	128 + int(unix.SIGUSR1): "SIGUSR1",
	128 + int(unix.SIGUSR2): "SIGUSR2",
}

// adviseUserSignal returns the step for a program that has died of such a signal.
func adviseUserSignal(name string) string {
	return fmt.Sprintf("%s ends a program that has no handler for it: set one before anything "+
		"else, or leave out what sends it, such as sbatch --signal", name)
}

// fullLogStep returns the step that reads the log about the cause, unless its last lines are the
// whole log.
func (a *Summary) fullLogStep() []string {
	if len(a.Cause.Lines) < maxKeptLines {
		return nil
	}
	return []string{"read all of " + a.logPath(a.Cause.Log)}
}

// suspectLog returns the step that reads the log of the process that is the likely reason why a timeout
// has expired.
func (a *Summary) suspectLog() []string {
	switch {
	case !a.hasSuspect():
		return nil
	case a.Cause.ErrorLine == "":
		return []string{"see why that rank has not ended: " + a.logPath(a.Cause.Log)}
	}
	return []string{fmt.Sprintf("see what led to %s: %s", textutil.TerminalLine(a.Cause.ErrorLine),
		a.logPath(a.Cause.Log))}
}

// hasSuspect reports whether the cause is a timeout, and its log that of the likely reason.
func (a *Summary) hasSuspect() bool {
	isTimeout := a.Cause.Kind == health.DeadlinePassed || a.Cause.Kind == health.JobDeadlinePassed
	return isTimeout && a.Cause.Child == "" && a.Cause.Log != ""
}

// adviseChild returns the steps for a setup command, a service, a sandbox or a rank.
func (a *Summary) adviseChild(kind health.Kind) []string {
	c, steps := a.Cause, append(knownStep(adviseProgram(a.Cause.Lines, true)), a.fullLogStep()...)
	if strings.Contains(c.Message, " has ended: the driver has run ") {
		return []string{"leave it out of the driver: bringupd ends the services after the driver"}
	}
	if a.Framework.LogsProgram != "" && kind == health.ServiceDied && c.Child != "" {
		kept := a.logPath(strings.TrimSuffix(c.Log, ".log") + ".d")
		steps = append(steps, "read "+a.Framework.LogsProgram+", which are kept in "+kept)
	}
	switch {
	case c.OOM != nil:
		steps = append(steps, a.enoughMemory())
	case userSignals[a.Code] == c.Signal && c.Signal != "":
		steps = append(steps, adviseUserSignal(c.Signal))
	case c.Signal == "SIGKILL" || c.Code == sigkillExitCode:
		steps = a.addKiller(steps, c.NodeIndex)
	case c.Child == "" && c.Code == 126: // the message explains what is wrong with the file
	case c.Child == "" && c.Code == 127: // a framework's program is not in the job's PATH
		where := "activate the program's environment in the job's script"
		if a.launcherWords().HowEnded != "" {
			where = "put the program into the image, or its folder into PATH in the manifest"
		}
		steps = append(steps,
			fmt.Sprintf("%s: PATH on %s is the job's, not your login's", where, a.nodeName(c.NodeIndex)))
	case c.Code == 127 || c.Code == 126:
		steps = append(steps, fmt.Sprintf("check that %s has the command that code %d refers to: "+
			"PATH is the job's there, not your login's", a.nodeName(c.NodeIndex), c.Code))
	case c.ExitText != "" && c.Code == 0 && c.Signal == "" && c.ErrorLine == "" && kind != health.SetupFailed:
		steps = append(steps, "keep the command in the foreground as long as the job runs: "+
			"no \"&\" at its end, no option that makes it a daemon")
	case strings.Contains(c.Message, " had not ended after "): // a setup command or a oneshot role
		steps = append(steps, a.longerChildTimeout("role ")...)
	case c.ExitText == "" && c.Child != "" && a.AtPhase == record.PhaseDriver: // a part of a service has ended
	case c.ExitText == "" && c.Child != "":
		steps = slices.Concat(a.otherPort(), steps)
		steps = append(steps, a.longerChildTimeout("the ready of role ")...)
	case c.Child == "" && strings.Contains(c.Message, ") is taken: "): // by the process that the message names
		steps = append(steps, strings.TrimSuffix("give another port; "+a.Framework.FreePortAdvice, "; "))
	case c.Child == "":
		steps = append(steps, a.daemonLog(c.NodeIndex)...)
	}
	return steps
}

// otherPort returns the step for a command that listens on another port than its probe asks.
func (a *Summary) otherPort() []string {
	_, after, found := strings.Cut(a.Cause.Message, "; its processes listen on port ")
	if !found {
		return nil
	}
	port, _, _ := strings.Cut(after, " ")
	return []string{"let the command listen on $BRINGUPD_PORT, or probe tcp:" + port}
}

// longerChildTimeout returns the step that increases the timeout which the child has exceeded. key
// names that of a role, before the role's name.
func (a *Summary) longerChildTimeout(key string) []string {
	if role, _, isInstance := strings.Cut(a.Cause.Child, "."); isInstance { // as in judge.0
		return []string{"if it only needs more time: a longer timeout in " + key + role}
	}
	return a.longerTimeout(record.PhaseWorkers)
}

// maxKeptLines is the maximum number of a child's last lines in a record. Fewer lines are its whole
// output.
const maxKeptLines = 20

// adviseShare returns the steps for an unusable log directory. The final message already has the
// remedy, if it is known.
func (a *Summary) adviseShare() []string {
	var steps []string
	if each := a.launcherWords().RunOnEachNode; each != "" && a.Cause.Phase == record.PhaseJoin {
		steps = append(steps, "see the file system of each node, by a line of the script before bringupd: "+
			each+" stat -f -c %T "+textutil.QuoteShellWord(a.LogDir))
	}
	if a.RunDir != "" && a.Cause.Phase != record.PhaseJoin {
		dir := textutil.QuoteShellWord(a.LogDir)
		steps = append(steps, fmt.Sprintf("%sdf -h %s; df -i %s: this shows a full file system, "+
			"and hangs if the file system does", a.onNodes(a.Cause.FaultyNodes()), dir, dir))
	}
	if len(steps) == 0 {
		return nil // the message has the remedy
	}
	return append(steps, "or give another place with --log-dir")
}

// adviseTerminated returns the steps after a SIGTERM from an unknown sender.
func (a *Summary) adviseTerminated() []string {
	w := a.launcherWords()
	if w.WhyEnded == "" {
		return nil
	}
	var steps []string
	if a.Cause.Phase == record.PhaseJoin || a.Cause.Phase == record.PhaseCheck { // the nodes meet in these
		steps = []string{"see whether a daemon that could not join has ended first: its last lines name the cause"}
	}
	return append(steps,
		"see whether it was "+w.WhyEnded,
		fmt.Sprintf("if it was the time limit: %s for more; to save its work, the driver had %s",
			w.MoreTime, a.ID.Launcher.DescribeGrace(a.DriverGrace, a.GivenGrace)),
	)
}

func (a *Summary) longerTimeout(phase record.Phase) []string {
	flag, timeout := "start-timeout", a.Timeouts.Start
	switch phase {
	case record.PhaseJoin:
		flag, timeout = "join-timeout", a.Timeouts.Join
	case record.PhaseCheck, record.PhaseSandbox, record.PhaseHead, record.PhaseWorkers:
	default:
		return nil
	}
	return []string{fmt.Sprintf("if it only needs more time: --%s=%s (now %s)",
		flag, textutil.FlagDuration(2*timeout), textutil.FlagDuration(timeout))}
}

// inspectNetwork returns the step that finds out why nodes were cut off.
func (a *Summary) inspectNetwork() []string {
	if ended := a.launcherWords().HowEnded; ended != "" {
		return []string{"see what happened to " + a.nodeNames(a.Cause.FaultyNodes()) + ": " + ended}
	}
	return []string{a.onNodes(a.Cause.FaultyNodes()) + "check its network: ip -s link; dmesg -T | grep -i link"}
}

// findKiller returns the step that finds out whether the kernel has killed a process on these
// nodes.
func (a *Summary) findKiller(nodes []int) []string {
	if ended := a.launcherWords().HowEnded; ended != "" {
		return []string{"see how " + a.nodeNames(nodes) + " ended: " + ended}
	}
	return []string{a.onNodes(nodes) + "check whether the kernel killed it because memory ran out: " +
		"dmesg -T | grep -i -e 'out of memory' -e 'killed process'"}
}

// addKiller adds the steps after SIGKILL to those about a program of a node. The state of a pod says
// more than the program's log, so it is the first one.
func (a *Summary) addKiller(steps []string, node int) []string {
	killer := a.findKiller([]int{node})
	if a.launcherWords().HowEnded != "" {
		return slices.Concat(killer, a.moreMemory(), steps)
	}
	return slices.Concat(steps, killer, a.moreMemory())
}

func (a *Summary) enoughMemory() string {
	switch w := a.launcherWords(); {
	case w.MoreMemory != "" && w.AllMemory == "":
		return "raise " + w.MoreMemory + ", or remove the limit"
	case w.MoreMemory != "":
		return fmt.Sprintf("%s for more memory, %s for all memory of a node", w.MoreMemory, w.AllMemory)
	}
	return "give it more memory, or reduce its use"
}

// moreMemory returns the step that gives the job more memory, if it is not certain that memory ran
// out.
func (a *Summary) moreMemory() []string {
	if w := a.launcherWords(); w.MemoryUsed != "" {
		return []string{fmt.Sprintf("if memory ran out (%s): %s", w.MemoryUsed, a.enoughMemory())}
	}
	return []string{"if memory ran out: " + a.enoughMemory()}
}

func (a *Summary) lostDaemonLog() []string {
	if lost := a.Cause.LostNodes; len(lost) > 0 {
		return a.daemonLog(lost[0])
	}
	return nil
}

func (a *Summary) daemonLog(member int) []string {
	if a.RunDir == "" {
		return nil
	}
	kind := launcher.DaemonLogKind(a.ID.StepNameOf(member))
	name := signal.LogName(kind, record.NodeOfMember(member, a.ID.Size), a.ID.Size)
	return []string{"read the log of " + a.nodeName(member) + "'s daemon: " + a.logPath(name)}
}

// askAdmins returns the step for nodes that only administrators can examine.
func (a *Summary) askAdmins() []string {
	w := a.launcherWords()
	if w.ShowNode == "" {
		return nil
	}
	nodes := a.Cause.FaultyNodes()
	hosts := a.nodeNames(nodes)
	given := hosts
	if slices.ContainsFunc(nodes, func(node int) bool { return a.hostName(node) == "" }) {
		given = "HOST" // the launcher provides no names
	}
	return []string{fmt.Sprintf("see what %s reports about %s, and ask the administrators: %s",
		w.Title, hosts, launcher.ForNodes(w.ShowNode, given))}
}

// excludeNodes returns the step that starts the job again without the nodes that caused the
// failure.
func (a *Summary) excludeNodes() []string {
	exclude := a.launcherWords().ExcludeNodes
	if exclude == "" || len(a.BadNodes) == 0 || a.isContinued() {
		return nil
	}
	nodes := launcher.CompactNodeList(a.BadNodes)
	return []string{"try again without " + nodes + ": " + launcher.ForNodes(exclude, nodes)}
}

// isContinued reports whether another attempt or a requeue follows, without the bad nodes.
func (a *Summary) isContinued() bool {
	return a.NextAttempt > 0 || a.Requeue != nil && a.Requeue.Wanted
}

// onNodes returns the beginning of a step for these nodes, or an empty string if all nodes are on
// this machine.
func (a *Summary) onNodes(nodes []int) string {
	if a.ID.Launcher == launcher.LauncherLocal {
		return ""
	}
	return "on " + a.nodeNames(nodes) + ": "
}

// launcherWords returns the commands and terms of the launcher, for use in the steps.
func (a *Summary) launcherWords() launcher.CommandHints {
	return a.ID.Launcher.CommandHints(a.ID.LauncherJob())
}
