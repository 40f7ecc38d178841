package doctor

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

// judgeEach judges each node for itself, and makes one line of what several say.
func judgeEach(c Case) []Finding {
	var all []said
	for _, f := range c.Facts {
		for _, judge := range []func(Case, Facts) []check.Finding{
			judgeOwnName, judgeWayToHead, judgePorts, judgeShare, judgeTool, judgeLeft,
		} {
			for _, finding := range judge(c, f) {
				all = append(all, said{finding, f.Rank, false})
			}
		}
	}
	for _, f := range c.Facts {
		if f.Report == nil {
			continue
		}
		for _, finding := range f.Report.Findings {
			all = append(all, said{finding, f.Rank, true})
		}
	}
	return c.merge(all)
}

func one(f check.Finding) []check.Finding { return []check.Finding{f} }

func short(host string) string {
	name, _, _ := strings.Cut(strings.ToLower(host), ".")
	return name
}

// judgeOwnName judges what the node is called, and whether it finds itself by
// that.
func judgeOwnName(c Case, f Facts) []check.Finding {
	const ID = "node.name"
	wrong := check.Finding{ID: ID, Verdict: check.Warn, Class: check.Node, Hint: "mend the node's host name, /etc/hosts or the name service (getent hosts " + f.Hostname + ")"}
	if f.NoAddress != "" {
		return one(check.Finding{ID: ID, Verdict: check.Fail, Class: check.User, Observed: f.NoAddress, Hint: "name the interface that peers reach the node by: --interface"})
	}
	switch {
	case c.Launcher.Traits().NamesNodes && f.Host != "" && short(f.Host) != short(f.Hostname):
		wrong.Observed = fmt.Sprintf("the kernel calls it %s, and %s %s", f.Hostname, c.Launcher.Words("").Title, f.Host)
		wrong.Expected = "one name: frameworks tell their peers the kernel's"
	case f.OwnName.Err != "":
		wrong.Observed = fmt.Sprintf("its own name, %s, can't be resolved: %s", f.OwnName.Host, f.OwnName.Err)
	case c.apart() && !overlap(f.OwnName.Addresses, f.Locals):
		wrong.Observed = fmt.Sprintf("its own name, %s, is %s, which is none of its addresses", f.OwnName.Host, strings.Join(f.OwnName.Addresses, " "))
		wrong.Verdict = check.Fail
	case c.apart() && !slices.ContainsFunc(f.OwnName.Addresses, outward):
		wrong.Observed = fmt.Sprintf("its own name, %s, is %s, where no other node reaches it", f.OwnName.Host, strings.Join(f.OwnName.Addresses, " "))
		wrong.Expected = "an address of the network: what listens by its own name is to be reached"
	default:
		return one(check.Finding{ID: ID, Verdict: check.Pass, Observed: "the node finds itself by its own name"})
	}
	return one(wrong)
}

func overlap(some, others []string) bool {
	return slices.ContainsFunc(some, func(a string) bool {
		addr, err := netip.ParseAddr(a)
		return err == nil && (addr.IsLoopback() || slices.Contains(others, a))
	})
}

// outward tells whether other machines could reach an address.
func outward(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && !addr.IsLoopback() && !addr.IsUnspecified()
}

// judgeWayToHead judges whether the node reaches the head where the head says it
// is, and by its name.
func judgeWayToHead(c Case, f Facts) []check.Finding {
	if !c.several() || len(f.Calls) == 0 && f.HeadName == nil {
		return nil
	}
	reached, named := "", ""
	var refused, misled []string
	for _, call := range f.Calls {
		switch {
		case call.Err == "" && call.ByName:
			named = call.To
		case call.Err == "":
			reached = call.To
		case call.ByName:
			misled = append(misled, call.Err)
		default:
			refused = append(refused, fmt.Sprintf("%s: %s", hostOf(call.To), call.Err))
		}
	}
	address := check.Finding{ID: "head.address", Verdict: check.Pass, Observed: "the head is reached at " + hostOf(reached)}
	if reached == "" {
		address = check.Finding{
			ID: "head.address", Verdict: check.Fail, Class: check.Node, Observed: "the head can't be reached at " + strings.Join(refused, "; "),
			Expected: "a connection to any port of the head's",
			Hint:     "see the firewall and the routes between the nodes; where the address is of the wrong network, name the right one with --interface",
		}
	}
	name := check.Finding{ID: "head.name", Verdict: check.Pass, Observed: fmt.Sprintf("the head is reached by its name, %s", headName(f))}
	switch {
	case f.HeadName == nil:
		return one(address)
	case f.HeadName.Err != "":
		name = check.Finding{
			ID: "head.name", Verdict: check.Warn, Class: check.Node,
			Observed: fmt.Sprintf("the head's name, %s, can't be resolved: %s", f.HeadName.Host, f.HeadName.Err),
			Hint:     "have programs use the head's address (BRINGUPD_HEAD_ADDRESS), or mend /etc/hosts or the name service",
		}
	case named == "" && reached == "":
		name.Verdict, name.Observed = check.Skip, "the head can't be reached at all"
	case named == "":
		name = check.Finding{
			ID: "head.name", Verdict: check.Fail, Class: check.Node,
			Observed: fmt.Sprintf("the head's name, %s, leads to %s, where the head is not: %s", f.HeadName.Host, strings.Join(f.HeadName.Addresses, " "), strings.Join(misled, "; ")),
			Expected: "the head, which is at " + hostOf(reached),
			Hint:     "mend /etc/hosts or the name service there: getent hosts " + f.HeadName.Host,
		}
	}
	return []check.Finding{address, name}
}

func headName(f Facts) string {
	if f.HeadName == nil {
		return ""
	}
	return f.HeadName.Host
}

// hostOf is the host of host:port, for the port is ours alone.
func hostOf(address string) string {
	if at := strings.LastIndexByte(address, ':'); at >= 0 {
		return strings.Trim(address[:at], "[]")
	}
	return address
}

// fewPorts are not enough for the connections of a large job.
const fewPorts = 5000

// judgePorts judges the ports that services are to have, and those the kernel gives.
func judgePorts(c Case, f Facts) []check.Finding {
	found := []check.Finding{fixedPorts(c, f)}
	low, high := f.Ephemeral[0], f.Ephemeral[1]
	if low == 0 {
		return found
	}
	const ID = "ports.given"
	inside := slices.DeleteFunc(slices.Clone(f.Ports), func(p Port) bool { return !p.Fixed || p.Number < low || p.Number > high })
	observed := fmt.Sprintf("the kernel gives ports %d to %d", low, high)
	const where = "net.ipv4.ip_local_port_range"
	switch {
	case len(inside) > 0:
		return append(found, check.Finding{
			ID: ID, Verdict: check.Warn, Class: check.User, Source: where,
			Observed: fmt.Sprintf("%s, and %s is to have %d: a connection may have it when the job starts", observed, inside[0].Name, inside[0].Number),
			Hint:     "give a port outside of that range, or have it kept free: sysctl net.ipv4.ip_local_reserved_ports",
		})
	case high-low+1 < fewPorts:
		return append(found, check.Finding{
			ID: ID, Verdict: check.Warn, Class: check.Node, Source: where, Observed: observed, Expected: fmt.Sprintf("at least %d", fewPorts),
			Hint: "widen " + where + ", as to 32768 60999",
		})
	}
	return append(found, check.Finding{ID: ID, Verdict: check.Pass, Source: where, Observed: observed})
}

func fixedPorts(c Case, f Facts) check.Finding {
	const ID = "ports"
	if f.NoPorts != "" {
		return check.Finding{ID: ID, Verdict: check.Fail, Class: check.User, Observed: f.NoPorts, Hint: "mend the flags that give the framework its ports"}
	}
	var taken, free []string
	for _, port := range f.Ports {
		switch {
		case port.Holder != "":
			taken = append(taken, fmt.Sprintf("%s can't have %d: %s", port.Name, port.Number, port.Holder))
		case port.Fixed:
			free = append(free, fmt.Sprintf("%d (%s)", port.Number, port.Name))
		}
	}
	switch {
	case len(taken) > 0:
		hint := "end what holds it, or give another port"
		if free := c.Framework.FreePort; free != "" {
			hint += "; " + free
		}
		return check.Finding{
			ID: ID, Verdict: check.Fail, Class: check.User, Observed: strings.Join(taken, "; "), Expected: "a port that is free", Hint: hint,
		}
	case len(free) > 0:
		return check.Finding{ID: ID, Verdict: check.Pass, Observed: "free: " + strings.Join(free, ", ")}
	}
	return check.Finding{ID: ID, Verdict: check.Skip, Observed: "no service is to have a fixed port"}
}

// slowRecord is a record of a few hundred bytes on a share that is of little use.
const slowRecord = time.Second

// judgeShare judges what the node has tried on the share.
func judgeShare(c Case, f Facts) []check.Finding {
	var found []check.Finding
	s := f.Share
	if s.Record > 0 {
		line := check.Finding{ID: "share.record", Verdict: check.Pass, Observed: "a record is written within " + within(s.Record)}
		if s.Record > slowRecord {
			line = check.Finding{
				ID: "share.record", Verdict: check.Warn, Class: check.Node, Observed: "a record takes " + within(s.Record), Expected: slowRecord.String(),
				Hint: "see the load of the share's server, and of the network to it",
			}
		}
		found = append(found, line)
	}
	found = append(found, judgeTrial(s)...)
	if s.Heard != nil && c.several() {
		told := "inotify tells of what other nodes write"
		if !*s.Heard {
			told = "inotify does not tell of what other nodes write: it is looked for"
		}
		found = append(found, check.Finding{ID: "share.inotify", Verdict: check.Pass, Observed: told})
	}
	return found
}

// judgeLogDir judges what is the same for all nodes, and which the head has
// looked at for them: the room on the share, and the runs that never ended.
func judgeLogDir(c Case) []Finding {
	if len(c.Facts) == 0 || c.Facts[0].Rank != 0 {
		return nil
	}
	f := c.Facts[0]
	known := check.Share{Path: c.LogDir, Space: f.Share.Space}
	if !c.several() {
		known.Offset = f.Share.Offset // with others, their clocks are compared
	}
	all := check.JudgeShare(known)
	if f.Share.SpaceErr != "" {
		all = append(all, check.Finding{ID: "host.share", Verdict: check.Unknown, Class: check.Node, Observed: f.Share.SpaceErr})
	}
	var lines []Finding
	for _, finding := range append(all, judgeRuns(c, f.Left)) {
		lines = append(lines, Finding{Finding: finding})
	}
	return lines
}

func judgeRuns(c Case, l Left) check.Finding {
	const ID = "left.runs"
	if l.RunsErr != "" {
		return check.Finding{ID: ID, Verdict: check.Unknown, Class: check.Node, Observed: l.RunsErr}
	}
	var runs, paths []string
	for _, run := range l.Runs {
		runs = append(runs, fmt.Sprintf("%s (quiet for %s)", run.Path, strings.TrimSuffix(run.Quiet.Round(time.Hour).String(), "0m0s")))
		paths = append(paths, run.Path)
	}
	return left(ID, "runs without an end", runs, roles.NoSuchJob+": "+removal(paths), "no run without an end in "+c.LogDir)
}

// within is the least step of 10 ms, 100 ms, 1 s and so on that is not exceeded:
// so that nodes that are alike say the same.
func within(d time.Duration) string {
	step := 10 * time.Millisecond
	for step < d {
		step *= 10
	}
	if step > time.Second {
		return prose.Span(d, time.Minute)
	}
	return step.String()
}

func judgeTrial(s Share) []check.Finding {
	if s.TrialErr != "" {
		return one(check.Finding{
			ID: "share.rename", Verdict: check.Fail, Class: check.Node, Observed: s.TrialErr, Hint: "give a --log-dir that every node can write to",
		})
	}
	if s.Trial == nil {
		return nil
	}
	rename := check.Finding{ID: "share.rename", Verdict: check.Pass, Observed: "a file takes another one's name at once"}
	if s.Trial.Rename != "" {
		rename = check.Finding{
			ID: "share.rename", Verdict: check.Fail, Class: check.User, Observed: "a file could not take another one's name: " + s.Trial.Rename,
			Expected: "an atomic rename", Hint: "give a --log-dir on another file system",
		}
	}
	link := check.Finding{ID: "share.links", Verdict: check.Pass, Observed: "hard links work"}
	if s.Trial.Link != "" {
		link = check.Finding{
			ID: "share.links", Verdict: check.Warn, Class: check.User, Observed: "there are no hard links: " + s.Trial.Link,
			Expected: "hard links, by which of two writers one wins",
			Hint:     "nothing needs to be done: where the head dies a result may then be written twice",
		}
	}
	return []check.Finding{rename, link}
}

// judgeTool judges the framework's program on the node.
func judgeTool(c Case, f Facts) []check.Finding {
	t := f.Tool
	if t == nil {
		return nil
	}
	const ID = "framework"
	switch {
	case t.Missing:
		return one(check.Finding{
			ID: ID, Verdict: check.Fail, Class: check.User, Observed: t.Err, Expected: t.Name + " on every node",
			Hint: "activate its environment before srun, install it where all nodes see it, or give its whole path (" + c.Framework.Program + ")",
		})
	case t.Err != "":
		return one(check.Finding{
			ID: ID, Verdict: check.Fail, Class: check.User, Observed: t.Name + ": " + t.Err, Expected: "its version", Lines: t.Lines,
			Hint: "run it there by hand: " + t.Name + " --version",
		})
	}
	return one(check.Finding{ID: ID, Verdict: check.Pass, Observed: t.Name + " " + t.Version})
}

const mostLeft = 3 // of one kind that are named

// judgeLeft tells what earlier runs have left, and how it is removed: by whoever
// knows that it isn't needed.
func judgeLeft(_ Case, f Facts) []check.Finding {
	var processes, files, kill []string
	for _, p := range f.Left.Processes {
		what := fmt.Sprintf("%d (%s", p.PID, p.Command)
		if p.Run != "" {
			what += " of run " + p.Run
		}
		processes = append(processes, what+")")
		kill = append(kill, fmt.Sprint(p.PID))
	}
	var size int64
	var shm []string
	for _, file := range f.Left.Shm {
		size += file.Size
		shm = append(shm, file.Path)
		files = append(files, file.Path)
	}
	return []check.Finding{
		left("left.processes", "processes that no daemon minds", processes, "kill "+strings.Join(kill[:min(len(kill), mostLeft)], " "), "no process of an earlier run"),
		left("left.shm", fmt.Sprintf("%d MiB of yours that nobody uses", size>>20), files, removal(shm), "nothing of yours that nobody uses"),
		left("left.temp", "directories of runs", f.Left.Temp, removal(f.Left.Temp), "no directory of an earlier run"),
	}
}

// left is a line about things of which there should be none.
func left(id, what string, things []string, mend, none string) check.Finding {
	if len(things) == 0 {
		return check.Finding{ID: id, Verdict: check.Pass, Observed: none}
	}
	said := strings.Join(things[:min(len(things), mostLeft)], ", ")
	if more := len(things) - mostLeft; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return check.Finding{ID: id, Verdict: check.Warn, Class: check.User, Observed: what + ": " + said, Hint: mend}
}

// removal is the command that removes paths, of many those that are named.
func removal(paths []string) string {
	words := []string{"rm -r --"}
	for _, path := range paths[:min(len(paths), mostLeft)] {
		words = append(words, prose.ShellWord(filepath.Clean(path)))
	}
	return strings.Join(words, " ")
}
