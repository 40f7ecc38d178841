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
func judgeEach(c scene) []Finding {
	var all []said
	for _, f := range c.Facts {
		for _, judge := range []func(scene, Facts) []check.Finding{
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

func short(host string) string {
	name, _, _ := strings.Cut(strings.ToLower(host), ".")
	return name
}

// judgeOwnName judges what the node is called, and whether it finds itself by that.
func judgeOwnName(c scene, f Facts) []check.Finding {
	const id = line("node.name")
	mend := "mend the node's host name, /etc/hosts or the name service (getent hosts " + f.Hostname + ")"
	own := fmt.Sprintf("its own name, %s, is %s, ", f.OwnName.Host, strings.Join(f.OwnName.Addresses, " "))
	finding := id.pass("the node finds itself by its own name")
	switch {
	case f.NoAddress != "":
		finding = id.fail(check.User, f.NoAddress, "", "name the interface that peers reach the node by: --interface")
	case c.Launcher.Traits().NamesNodes && f.Host != "" && short(f.Host) != short(f.Hostname):
		finding = id.warn(check.Node, fmt.Sprintf("the kernel calls it %s, and %s %s", f.Hostname, c.Launcher.Words("").Title, f.Host),
			"one name: frameworks tell their peers the kernel's", mend)
	case f.OwnName.Err != "":
		finding = id.warn(check.Node, fmt.Sprintf("its own name, %s, can't be resolved: %s", f.OwnName.Host, f.OwnName.Err), "", mend)
	case c.apart() && !overlap(f.OwnName.Addresses, f.Locals):
		finding = id.fail(check.Node, own+"which is none of its addresses", "", mend)
	case c.apart() && !slices.ContainsFunc(f.OwnName.Addresses, outward):
		finding = id.warn(check.Node, own+"where no other node reaches it",
			"an address of the network: what listens by its own name is to be reached", mend)
	}
	return []check.Finding{finding}
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

// judgeWayToHead judges whether the node reaches the head where the head says it is, and by its name.
func judgeWayToHead(c scene, f Facts) []check.Finding {
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
	byAddress, byName := line("head.address"), line("head.name")
	address := byAddress.pass("the head is reached at " + hostOf(reached))
	if reached == "" {
		address = byAddress.fail(check.Node, "the head can't be reached at "+strings.Join(refused, "; "), "a connection to any port of the head's",
			"see the firewall and the routes between the nodes; where the address is of the wrong network, name the right one with --interface")
	}
	if f.HeadName == nil {
		return []check.Finding{address}
	}
	head := f.HeadName
	name := byName.pass("the head is reached by its name, " + head.Host)
	switch {
	case head.Err != "":
		name = byName.warn(check.Node, fmt.Sprintf("the head's name, %s, can't be resolved: %s", head.Host, head.Err), "",
			"have programs use the head's address (BRINGUPD_HEAD_ADDRESS), or mend /etc/hosts or the name service")
	case named == "" && reached == "":
		name = byName.skip("the head can't be reached at all")
	case named == "":
		name = byName.fail(check.Node,
			fmt.Sprintf("the head's name, %s, leads to %s, where the head is not: %s", head.Host, strings.Join(head.Addresses, " "), strings.Join(misled, "; ")),
			"the head, which is at "+hostOf(reached), "mend /etc/hosts or the name service there: getent hosts "+head.Host)
	}
	return []check.Finding{address, name}
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
func judgePorts(c scene, f Facts) []check.Finding {
	low, high := f.Ephemeral[0], f.Ephemeral[1]
	if low == 0 {
		return []check.Finding{fixedPorts(c, f)}
	}
	const id, where = line("ports.given"), "net.ipv4.ip_local_port_range"
	inside := slices.IndexFunc(f.Ports, func(p Port) bool { return p.Fixed && low <= p.Number && p.Number <= high })
	observed := fmt.Sprintf("the kernel gives ports %d to %d", low, high)
	given := id.pass(observed)
	switch {
	case inside >= 0:
		given = id.warn(check.User, fmt.Sprintf("%s, and %s is to have %d: a connection may have it when the job starts", observed, f.Ports[inside].Name, f.Ports[inside].Number),
			"", "give a port outside of that range, or have it kept free: sysctl net.ipv4.ip_local_reserved_ports")
	case high-low+1 < fewPorts:
		given = id.warn(check.Node, observed, fmt.Sprintf("at least %d", fewPorts), "widen "+where+", as to 32768 60999")
	}
	given.Source = where
	return []check.Finding{fixedPorts(c, f), given}
}

func fixedPorts(c scene, f Facts) check.Finding {
	const id = line("ports")
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
	case f.NoPorts != "":
		return id.fail(check.User, f.NoPorts, "", "mend the flags that give the framework its ports")
	case len(taken) > 0:
		hint := "end what holds it, or give another port"
		if free := c.Framework.FreePort; free != "" {
			hint += "; " + free
		}
		return id.fail(check.User, strings.Join(taken, "; "), "a port that is free", hint)
	case len(free) > 0:
		return id.pass("free: " + strings.Join(free, ", "))
	default:
		return id.skip("no service is to have a fixed port")
	}
}

// slowRecord is a record of a few hundred bytes on a share that is of little use.
const slowRecord = time.Second

// judgeShare judges what the node has tried on the share.
func judgeShare(c scene, f Facts) (found []check.Finding) {
	const record = line("share.record")
	s := f.Share
	switch {
	case s.Record > slowRecord:
		found = append(found, record.warn(check.Node, "a record takes "+within(s.Record), slowRecord.String(),
			"see the load of the share's server, and of the network to it"))
	case s.Record > 0:
		found = append(found, record.pass("a record is written within "+within(s.Record)))
	}
	found = append(found, judgeTrial(s)...)
	if s.Heard != nil && c.several() {
		told := "inotify tells of what other nodes write"
		if !*s.Heard {
			told = "inotify does not tell of what other nodes write: it is looked for"
		}
		found = append(found, line("share.inotify").pass(told))
	}
	return found
}

// judgeLogDir judges what is the same for all nodes, and which the head has
// looked at for them: the room on the share, and the runs that never ended.
func judgeLogDir(c scene) []Finding {
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
		all = append(all, line("host.share").unknown(f.Share.SpaceErr))
	}
	return whole(append(all, judgeRuns(c, f.Left))...)
}

func judgeRuns(c scene, l Left) check.Finding {
	const id = line("left.runs")
	if l.RunsErr != "" {
		return id.unknown(l.RunsErr)
	}
	var runs, paths []string
	for _, run := range l.Runs {
		runs = append(runs, fmt.Sprintf("%s (quiet for %s)", run.Path, strings.TrimSuffix(run.Quiet.Round(time.Hour).String(), "0m0s")))
		paths = append(paths, run.Path)
	}
	return id.left("runs without an end", runs, roles.NoSuchJob+": "+removal(paths), "no run without an end in "+c.LogDir)
}

// within rounds a time up to 10 ms, 100 ms or 1 s, so that nodes that are alike say the same; longer times are told as
// they are.
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
	renames, links := line("share.rename"), line("share.links")
	switch {
	case s.TrialErr != "":
		return []check.Finding{renames.fail(check.Node, s.TrialErr, "", "give a --log-dir that every node can write to")}
	case s.Trial == nil:
		return nil
	}
	rename, link := renames.pass("a file takes another one's name at once"), links.pass("hard links work")
	if s.Trial.Rename != "" {
		rename = renames.fail(check.User, "a file could not take another one's name: "+s.Trial.Rename, "an atomic rename", "give a --log-dir on another file system")
	}
	if s.Trial.Link != "" {
		link = links.warn(check.User, "there are no hard links: "+s.Trial.Link, "hard links, by which of two writers one wins",
			"nothing needs to be done: where the head dies a result may then be written twice")
	}
	return []check.Finding{rename, link}
}

// judgeTool judges the framework's program on the node.
func judgeTool(c scene, f Facts) []check.Finding {
	const id = line("framework")
	t := f.Tool
	if t == nil {
		return nil
	}
	finding := id.pass(t.Name + " " + t.Version)
	switch {
	case t.Missing:
		finding = id.fail(check.User, t.Err, t.Name+" on every node",
			"activate its environment before "+roles.Starter+", install it where all nodes see it, or give its whole path ("+c.Framework.Program+")")
	case t.Err != "":
		finding = id.fail(check.User, t.Name+": "+t.Err, "its version", "run it there by hand: "+t.Name+" --version")
		finding.Lines = t.Lines
	}
	return []check.Finding{finding}
}

const mostLeft = 3 // of one kind that are named

// judgeLeft tells what earlier runs have left, and how it is removed: by whoever knows that it isn't needed.
func judgeLeft(_ scene, f Facts) []check.Finding {
	var processes, shm, kill []string
	for _, p := range f.Left.Processes {
		what := fmt.Sprintf("%d (%s", p.PID, p.Command)
		if p.Run != "" {
			what += " of run " + p.Run
		}
		processes = append(processes, what+")")
		kill = append(kill, fmt.Sprint(p.PID))
	}
	var size int64
	for _, file := range f.Left.Shm {
		size += file.Size
		shm = append(shm, file.Path)
	}
	return []check.Finding{
		line("left.processes").left("processes that no daemon minds", processes, "kill "+strings.Join(kill[:min(len(kill), mostLeft)], " "), "no process of an earlier run"),
		line("left.shm").left(fmt.Sprintf("%d MiB of yours that nobody uses", size>>20), shm, removal(shm), "nothing of yours that nobody uses"),
		line("left.temp").left("directories of runs", f.Left.Temp, removal(f.Left.Temp), "no directory of an earlier run"),
	}
}

// left is a finding about things of which there should be none.
func (l line) left(what string, things []string, mend, none string) check.Finding {
	if len(things) == 0 {
		return l.pass(none)
	}
	said := strings.Join(things[:min(len(things), mostLeft)], ", ")
	if more := len(things) - mostLeft; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return l.warn(check.User, what+": "+said, "", mend)
}

// removal is the command that removes paths, of many those that are named.
func removal(paths []string) string {
	words := []string{"rm -r --"}
	for _, path := range paths[:min(len(paths), mostLeft)] {
		words = append(words, prose.ShellWord(filepath.Clean(path)))
	}
	return strings.Join(words, " ")
}
