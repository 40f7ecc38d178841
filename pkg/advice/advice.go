package advice

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Advise returns the next steps for the user, the most likely one first. It names only commands
// that exist in the environment of the job.
func (a *Account) Advise() []string { return slices.Concat(a.advise(), a.drains()) }

// advise returns the steps for the cause, without those that drain nodes.
func (a *Account) advise() []string {
	if a.Cause == nil {
		return a.adviseDriver()
	}
	switch kind := health.Kind(a.Cause.Kind); kind {
	case health.DaemonDied:
		return slices.Concat(a.killer(a.blamed()), a.ownLogs(), a.without())
	case health.HostLost:
		return slices.Concat(a.askAdmins(), a.without())
	case health.HostHangs:
		return append([]string{a.on(a.blamed()) + "look for swapping or a mount that hangs: free -m; dmesg -T | tail -50; ps -eo state,pid,wchan:30,args | grep ^D"},
			a.without()...)
	case health.CutOff:
		return slices.Concat([]string{a.on(a.blamed()) + "look at its network: ip -s link; dmesg -T | grep -i link"}, a.askAdmins(), a.without())
	case health.PeerLost:
		return slices.Concat(a.killer(a.blamed()), a.ownLogs(), a.askAdmins(), a.without())
	case health.NotBack:
		return append([]string{"ask for a node more than the driver needs, and give --nnodes: another attempt then goes on without a node that is lost"}, a.without()...)
	case health.ServiceDied, health.SandboxDied, health.Setup, health.RankFailed:
		return a.adviseChild(kind)
	case health.RankAborted:
		return a.wholeLog()
	case health.Check, health.CheckUser, health.CheckEnvironment, health.NodesDiffer:
		return append(a.hints(), a.without()...)
	case health.GPUFailed:
		return slices.Concat(a.gpuAction(), a.askAdmins(), a.without())
	case health.Share:
		return a.adviseShare()
	case health.Deadline:
		return append(a.longer(a.Cause.Phase), a.daemonLog(a.Cause.Rank)...)
	case health.TimeUp:
		return []string{"give a longer --deadline, or none, if the job needs more time"}
	case health.Terminated:
		return a.adviseTerminated()
	case health.Interrupted:
		return nil
	case health.NotFound:
		return a.adviseNotFound()
	case health.NotExecutable:
		return nil // the message explains what is wrong with the file, and the command that repairs it
	case health.Usage, health.Launch:
		return []string{"bringupd --dry-run with the same flags shows what is in force, and touches nothing"}
	case health.GaveUp:
		return []string{"look at the runs before this one, of which each has a result.json: ls -d " + prose.ShellWord(filepath.Join(a.LogDir, a.ID.Job)) + "*"}
	default:
		return append(a.daemonLog(a.Cause.Rank), "where the message doesn't explain it, this is a mistake of bringupd's: keep the run directory and report it")
	}
}

// mostHints is the maximum number of failed checks for which there is advice.
const mostHints = 4

// hints returns the advice of the failed checks, and the command that drains the node.
func (a *Account) hints() []string {
	var report check.Report
	if len(a.Cause.Report) == 0 || json.Unmarshal(a.Cause.Report, &report) != nil {
		return a.askAdmins()
	}
	var steps []string
	for _, f := range report.Findings {
		step := prose.Said(f.ID + ": " + f.Hint)
		if f.Verdict == check.Fail && f.Hint != "" && !slices.Contains(steps, step) && len(steps) < mostHints {
			steps = append(steps, step)
		}
	}
	if drain := a.words().Drain; drain != nil {
		if line := check.DrainLine(report, drain); line != "" {
			steps = append(steps, "have an admin drain it: "+prose.Said(line))
		}
	}
	return steps
}

// gpuAction returns what to do about a GPU that has failed.
func (a *Account) gpuAction() []string {
	event, ok := gpu.ReadJudged(a.Cause.Report)
	if !ok || event.Action == "" {
		return nil
	}
	return []string{a.on([]int{a.Cause.Rank}) + prose.Said(event.Action)}
}

// mostDrained is the maximum number of nodes for which the steps have a command that drains them.
// The result lists all bad nodes.
const mostDrained = 4

// drains returns the commands that drain nodes with GPUs that are not fit for another job, whatever
// the result of this one.
func (a *Account) drains() (steps []string) {
	drain := a.words().Drain
	if drain == nil {
		return nil
	}
	drained := make(map[string]bool)
	for _, record := range a.gpuEvents() {
		event, ok := gpu.ReadJudged(record.Detail)
		if !ok || event.Next != gpu.NextUnfit || drained[record.Host] || len(drained) == mostDrained {
			continue
		}
		if line := check.DrainLine(check.Report{Host: record.Host, Findings: []check.Finding{event.Finding()}}, drain); line != "" {
			drained[record.Host] = true
			steps = append(steps, "have an admin drain "+record.Host+", which is not fit for another job: "+prose.Said(line))
		}
	}
	return steps
}

// gpuEvents returns the events of GPUs, starting with the one that has ended the job.
func (a *Account) gpuEvents() (events []signal.EventRecord) {
	failures := a.Consequences
	if a.Cause != nil {
		failures = append([]signal.FailedRecord{*a.Cause}, failures...)
	}
	for _, failure := range failures {
		if health.Kind(failure.Kind) == health.GPUFailed {
			events = append(events, signal.EventRecord{Header: failure.Header, Detail: failure.Report})
		}
	}
	return append(events, a.Events...)
}

// adviseDriver returns the steps for a driver that has ended by itself, or a world of ranks that
// has continued after failures.
func (a *Account) adviseDriver() []string {
	if a.Code == 0 || a.Word != string(health.Driven) || a.Path == "" {
		return nil
	}
	if a.World {
		return []string{"see what they have printed: bringupd logs ranks " + prose.ShellWord(a.Path)}
	}
	steps := []string{"read " + a.log("driver.log")}
	if a.DriverSilent {
		steps = []string{"it printed nothing, so there is no driver.log: " +
			"in a shell script, set -x shows which command failed"}
	}
	switch {
	case a.DriverEnd.OOM != nil:
		steps = append(steps, a.enoughMemory())
	case a.Code == memoryCode:
		steps = slices.Concat(steps, a.killer([]int{0}), a.moreMemory())
	}
	return steps
}

// adviseNotFound returns the steps for a driver, or a program to be spawned, that was not found.
func (a *Account) adviseNotFound() []string {
	// The message quotes a driver whose name contains a quotation mark.
	what := a.Cause.What
	if !strings.Contains(what, a.Driver) && !strings.Contains(what, strconv.Quote(a.Driver)) {
		return []string{"see whether what was to be spawned is there on " + a.name(a.Cause.Rank) +
			": it is looked for in the directory and the PATH of who spawns it"}
	}
	var steps []string
	if words := strings.Fields(a.Driver); len(words) > 1 {
		steps = append(steps, fmt.Sprintf("if %s is a whole line, it was quoted as one word: "+
			"leave out the quotes around it, as in: -- %s %s …", prose.ShellWord(a.Driver), words[0], words[1]))
		if !strings.Contains(words[0], "/") {
			return steps // it cannot be the path of a file
		}
	}
	if strings.Contains(a.Driver, "/") {
		return append(steps, fmt.Sprintf(
			"see whether %s is there on %s: its file system may not be mounted on the nodes", a.Driver, a.name(0)))
	}
	return append(steps, fmt.Sprintf("give the driver's path: %s is looked for in the job's PATH on %s, not in that of your login",
		a.Driver, a.name(0)))
}

// memoryCode is the exit code after SIGKILL, which the kernel sends if memory runs out.
const memoryCode = 137

// wholeLog returns the step that reads the log about the cause, unless its last lines are the whole
// log.
func (a *Account) wholeLog() []string {
	if len(a.Cause.Lines) < keptLines {
		return nil
	}
	return []string{"read the whole of " + a.log(a.Cause.Log)}
}

// adviseChild returns the steps for a setup command, a service, a sandbox or a rank.
func (a *Account) adviseChild(kind health.Kind) []string {
	c, w := a.Cause, a.words()
	steps := a.wholeLog()
	if a.OwnLogs != "" && kind == health.ServiceDied && c.Child != "" {
		steps = append(steps, "read "+a.OwnLogs+", which are kept in "+a.log(strings.TrimSuffix(c.Log, ".log")+".d"))
	}
	switch {
	case c.OOM != nil:
		steps = append(steps, a.enoughMemory())
	case c.Signal == "SIGKILL" || c.Code == memoryCode:
		steps = slices.Concat(steps, a.killer([]int{c.Rank}), a.moreMemory())
	case c.Child == "" && c.Code == 126: // the message explains what is wrong with the file
	case c.Child == "" && c.Code == 127:
		steps = append(steps, a.findProgram())
	case c.Code == 127 || c.Code == 126:
		steps = append(steps, fmt.Sprintf("see whether %s has the command that code %d speaks of: PATH is the job's there, not that of your login", a.name(c.Rank), c.Code))
	case c.Exit != "" && c.Code == 0 && c.Signal == "" && kind != health.Setup:
		steps = append(steps, "have the command stay in the foreground as long as the job lives: no \"&\" at its end, no option that makes a daemon of it")
	case c.Exit == "" && c.Child != "":
		steps = append(steps, a.longer(phaseOf(kind))...)
	case c.Child == "":
		steps = append(steps, a.daemonLog(c.Rank)...)
	}
	if w.Exclude != nil && kind == health.Setup && c.Exit != "" {
		steps = append(steps, "if it is this node alone: "+w.Exclude(a.host(c.Rank)))
	}
	return steps
}

// keptLines is the maximum number of a child's last lines in a record. Fewer lines are its whole
// output.
const keptLines = 20

// phaseOf returns the phase whose timeout a child has exceeded.
func phaseOf(kind health.Kind) string {
	switch kind {
	case health.Setup:
		return "check"
	case health.SandboxDied:
		return "sandbox"
	default:
		return "workers"
	}
}

// adviseShare returns the steps for an unusable log directory. The final message already has the
// remedy, if it is known.
func (a *Account) adviseShare() []string {
	var steps []string
	if each := a.words().OnEach; each != "" && a.Cause.Phase == "join" {
		steps = append(steps, "see what each node has there, by a line of the script before bringupd's: "+each+" stat -f -c %T "+prose.ShellWord(a.LogDir))
	}
	if a.Path != "" && a.Cause.Phase != "join" {
		steps = append(steps, fmt.Sprintf("%sdf -h %s; df -i %s: it shows a file system that is full, and hangs with one that does", a.on(a.blamed()), prose.ShellWord(a.LogDir), prose.ShellWord(a.LogDir)))
	}
	return append(steps, "or give another place with --log-dir")
}

// adviseTerminated returns the steps after a SIGTERM from an unknown sender.
func (a *Account) adviseTerminated() []string {
	w := a.words()
	if w.WhyEnded == "" {
		return nil
	}
	return []string{
		"see whether it was " + w.WhyEnded,
		fmt.Sprintf("if it was the time limit: %s for more; the driver had %s to save its work (--driver-grace, "+
			"or what is left until the launcher's KILL)", w.Time, prose.FlagTime(a.DriverGrace)),
	}
}

// longer returns the step that increases the timeout which a phase has exceeded.
func (a *Account) longer(phase string) []string {
	bound, known := a.Bounds[phase]
	if !known {
		return nil
	}
	return []string{fmt.Sprintf("if it only needs more time: --%s=%s (now %s)", bound.Flag, prose.FlagTime(2*bound.Time), prose.FlagTime(bound.Time))}
}

// blamed returns the nodes that the cause is about.
func (a *Account) blamed() []int {
	if len(a.Cause.Lost) > 0 {
		return a.Cause.Lost
	}
	return []int{a.Cause.Rank}
}

// killer returns the step that finds out whether the kernel has killed a process on these nodes.
func (a *Account) killer(ranks []int) []string {
	return []string{a.on(ranks) + "see whether the kernel killed it for want of memory: dmesg -T | grep -i -e 'out of memory' -e 'killed process'"}
}

// findProgram returns the step for a framework's program that is not in the job's PATH.
func (a *Account) findProgram() string {
	step := fmt.Sprintf("activate the environment that has the program in the job's script: "+
		"PATH on %s is the job's, not that of your login", a.name(a.Cause.Rank))
	if a.ProgramFlag != "" {
		step += "; or give its path with " + a.ProgramFlag
	}
	return step
}

// enoughMemory returns the step for a program that has run out of memory.
func (a *Account) enoughMemory() string {
	if w := a.words(); w.Memory != "" {
		return fmt.Sprintf("%s for more memory, %s for all that a node has", w.Memory, w.AllMemory)
	}
	return "give it more memory, or have it use less"
}

// moreMemory returns the step that gives the job more memory, if it is not certain that memory ran
// out.
func (a *Account) moreMemory() []string {
	if w := a.words(); w.MemoryUsed != "" {
		return []string{fmt.Sprintf("if it was memory, which %s tells: %s for more, %s for all that a node has", w.MemoryUsed, w.Memory, w.AllMemory)}
	}
	return []string{"if it was memory: give it more, or have it use less"}
}

// ownLogs returns the step that reads the log of a lost daemon.
func (a *Account) ownLogs() []string {
	if lost := a.Cause.Lost; len(lost) > 0 {
		return a.daemonLog(lost[0])
	}
	return nil
}

// daemonLog returns the step that reads the log of a daemon.
func (a *Account) daemonLog(rank int) []string {
	if a.Path == "" {
		return nil
	}
	return []string{"read the log of " + a.name(rank) + "'s daemon: " + a.log(signal.LogName("daemon", rank, a.ID.Size))}
}

// askAdmins returns the step for nodes that only administrators can examine.
func (a *Account) askAdmins() []string {
	w := a.words()
	if w.ShowNode == nil {
		return nil
	}
	hosts := a.who(a.blamed())
	return []string{fmt.Sprintf("see what %s knows of %s, and ask the admins what became of it: %s", w.Title, hosts, w.ShowNode(hosts))}
}

// without returns the step that starts the job again without the nodes that caused the failure.
func (a *Account) without() []string {
	exclude := a.words().Exclude
	if exclude == nil || len(a.Nodes) == 0 {
		return nil
	}
	nodes := roles.CompactNodeList(a.Nodes)
	return []string{"try again without " + nodes + ": " + exclude(nodes)}
}

// on returns the beginning of a step for these nodes, or an empty string if all nodes are on this
// machine.
func (a *Account) on(ranks []int) string {
	if a.ID.Launcher == roles.Local {
		return ""
	}
	return "on " + a.who(ranks) + ": "
}

// words returns the commands and terms of the launcher, for use in the steps.
func (a *Account) words() roles.Words { return a.ID.Launcher.Words(a.ID.Job) }
