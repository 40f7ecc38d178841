package doctor

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/prose"
)

// ofNode lists the checks of each node by itself, in the order of the report.
var ofNode = []row{
	{"node.name", judgeOwnName},
	{"head.address", judgeHeadAddress},
	{"head.name", judgeHeadName},
	{"ports", judgeFixedPorts},
	{"ports.given", judgeGivenPorts},
	{"share.record", judgeRecord},
	{"share.rename", judgeRename},
	{"share.links", judgeLinks},
	{"share.inotify", func(p *page) {
		switch heard := p.node.Share.Heard; {
		case heard == nil || !p.several():
		case *heard:
			p.Pass("inotify tells of what other nodes write")
		default:
			p.Pass("inotify does not tell of what other nodes write: it is looked for")
		}
	}},
	{"framework", judgeTool},
	{"mpi", judgeMPI},
	{"left.processes", judgeProcesses},
	{"left.shm", judgeShm},
	{"left.temp", func(p *page) {
		p.left("directories of runs", p.node.Left.Temp, removal(p.node.Left.Temp), "no directory of an earlier run")
	}},
}

// short returns the first component of a host name, in lower case.
func short(host string) string {
	name, _, _ := strings.Cut(strings.ToLower(host), ".")
	return name
}

// judgeOwnName checks the node's host name, and whether the name resolves to the node's own
// address.
func judgeOwnName(p *page) {
	f := p.node
	mend := "mend the node's host name, /etc/hosts or the name service (getent hosts " + f.Hostname + ")"
	own := fmt.Sprintf("its own name, %s, is %s, ", f.OwnName.Host, strings.Join(f.OwnName.Addresses, " "))
	switch launcher := p.Identity.Launcher; {
	case f.NoAddress != "":
		p.Fail(check.User, f.NoAddress, "", "name the interface that peers reach the node by: --interface")
	case launcher.Traits().NamesNodes && f.Host != "" && short(f.Host) != short(f.Hostname):
		p.Warn(check.Node, fmt.Sprintf("the kernel calls it %s, and %s %s", f.Hostname, launcher.Words("").Title, f.Host),
			"one name: frameworks tell their peers the kernel's", mend)
	case f.OwnName.Err != "":
		p.Warn(check.Node, fmt.Sprintf("its own name, %s, can't be resolved: %s", f.OwnName.Host, f.OwnName.Err), "", mend)
	case p.apart() && !overlap(f.OwnName.Addresses, f.Locals):
		p.Fail(check.Node, own+"which is none of its addresses", "", mend)
	case p.apart() && !slices.ContainsFunc(f.OwnName.Addresses, outward):
		p.Warn(check.Node, own+"where no other node reaches it", "an address of the network: what listens by its own name is to be reached", mend)
	default:
		p.Pass("the node finds itself by its own name")
	}
}

// overlap reports whether any of the addresses is a loopback address or one of others.
func overlap(some, others []string) bool {
	return slices.ContainsFunc(some, func(a string) bool {
		addr, err := netip.ParseAddr(a)
		return err == nil && (addr.IsLoopback() || slices.Contains(others, a))
	})
}

// outward reports whether an address can be reached from other machines.
func outward(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && !addr.IsLoopback() && !addr.IsUnspecified()
}

// reached returns the host at which the node has reached the head, by name or by address. It is
// empty if the node has not reached the head. wrong contains the failed attempts.
func (f Facts) reached(byName bool) (at string, wrong []Call) {
	for _, call := range f.Calls {
		switch {
		case call.ByName != byName:
		case call.Err == "":
			at = hostOf(call.To)
		default:
			wrong = append(wrong, call)
		}
	}
	return at, wrong
}

// judgeHeadAddress checks whether the node can connect to the head at one of its addresses.
func judgeHeadAddress(p *page) {
	if !p.several() || len(p.node.Calls) == 0 && p.node.HeadName == nil {
		return
	}
	at, wrong := p.node.reached(false)
	if at != "" {
		p.Pass("the head is reached at " + at)
		return
	}
	var refused []string
	for _, call := range wrong {
		refused = append(refused, fmt.Sprintf("%s: %s", hostOf(call.To), call.Err))
	}
	p.Fail(check.Node, "the head can't be reached at "+strings.Join(refused, "; "), "a connection to any port of the head's",
		"see the firewall and the routes between the nodes; where the address is of the wrong network, name the right one with --interface")
}

// judgeHeadName checks whether the node can connect to the head by its host name.
func judgeHeadName(p *page) {
	head := p.node.HeadName
	if !p.several() || head == nil {
		return
	}
	at, _ := p.node.reached(false)
	named, wrong := p.node.reached(true)
	switch {
	case head.Err != "":
		p.Warn(check.Node, fmt.Sprintf("the head's name, %s, can't be resolved: %s", head.Host, head.Err), "",
			"have programs use the head's address (BRINGUPD_HEAD_ADDRESS), or mend /etc/hosts or the name service")
	case named != "":
		p.Pass("the head is reached by its name, " + head.Host)
	case at == "":
		p.Skip("the head can't be reached at all")
	default:
		var misled []string
		for _, call := range wrong {
			misled = append(misled, call.Err)
		}
		p.Fail(check.Node,
			fmt.Sprintf("the head's name, %s, leads to %s, where the head is not: %s", head.Host, strings.Join(head.Addresses, " "), strings.Join(misled, "; ")),
			"the head, which is at "+at, "mend /etc/hosts or the name service there: getent hosts "+head.Host)
	}
}

// hostOf returns the host of host:port. Messages leave out the port, which is used only by this
// program.
func hostOf(address string) string {
	if at := strings.LastIndexByte(address, ':'); at >= 0 {
		return strings.Trim(address[:at], "[]")
	}
	return address
}

// judgeFixedPorts checks whether the ports of the services are free.
func judgeFixedPorts(p *page) {
	var taken, free []string
	for _, port := range p.node.Ports {
		switch {
		case port.Holder != "":
			taken = append(taken, fmt.Sprintf("%s can't have %d: %s", port.Name, port.Number, port.Holder))
		case port.Fixed:
			free = append(free, fmt.Sprintf("%d (%s)", port.Number, port.Name))
		}
	}
	switch {
	case p.node.NoPorts != "":
		p.Fail(check.User, p.node.NoPorts, "", "mend the flags that give the framework its ports")
	case len(taken) > 0:
		hint := "end what holds it, or give another port"
		if free := framework.TraitsOf(p.Framework).FreePort; free != "" {
			hint += "; " + free
		}
		p.Fail(check.User, strings.Join(taken, "; "), "a port that is free", hint)
	case len(free) > 0:
		p.Pass("free: " + strings.Join(free, ", "))
	default:
		p.Skip("no service is to have a fixed port")
	}
}

// fewPorts is a number of ephemeral ports below which a large job may run out of connections.
const fewPorts = 5000

// judgeGivenPorts checks the kernel's range of ephemeral ports.
func judgeGivenPorts(p *page) {
	const where = "net.ipv4.ip_local_port_range"
	p.Each.Source = where
	low, high := p.node.Ephemeral[0], p.node.Ephemeral[1]
	observed := fmt.Sprintf("the kernel gives ports %d to %d", low, high)
	inside := slices.IndexFunc(p.node.Ports, func(p Port) bool { return p.Fixed && low <= p.Number && p.Number <= high })
	switch {
	case low == 0: // unknown
	case inside >= 0:
		port := p.node.Ports[inside]
		p.Warn(check.User, fmt.Sprintf("%s, and %s is to have %d: a connection may have it when the job starts", observed, port.Name, port.Number),
			"", "give a port outside of that range, or have it kept free: sysctl net.ipv4.ip_local_reserved_ports")
	case high-low+1 < fewPorts:
		p.Warn(check.Node, observed, fmt.Sprintf("at least %d", fewPorts), "widen "+where+", as to 32768 60999")
	default:
		p.Pass(observed)
	}
}

// slowRecord is a time to write a record, of a few hundred bytes, on a shared file system that is
// too slow.
const slowRecord = time.Second

// judgeRecord checks the time to write a record to the shared file system.
func judgeRecord(p *page) {
	switch took := p.node.Share.Record; {
	case took > slowRecord:
		p.Warn(check.Node, "a record takes "+within(took), slowRecord.String(), "see the load of the share's server, and of the network to it")
	case took > 0:
		p.Pass("a record is written within " + within(took))
	}
}

// within rounds a duration up to 10 ms, 100 ms or 1 s, so that similar nodes have equal findings.
// It does not round up longer durations.
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

// judgeRename checks whether files can be written and renamed on the shared file system.
func judgeRename(p *page) {
	switch s := p.node.Share; {
	case s.TrialErr != "":
		p.Fail(check.Node, s.TrialErr, "", "give a --log-dir that every node can write to")
	case s.Trial == nil: // not tested
	case s.Trial.Rename != "":
		p.Fail(check.User, "a file could not take another one's name: "+s.Trial.Rename, "an atomic rename", "give a --log-dir on another file system")
	default:
		p.Pass("a file takes another one's name at once")
	}
}

// judgeLinks checks whether the shared file system supports hard links.
func judgeLinks(p *page) {
	switch s := p.node.Share; {
	case s.TrialErr != "" || s.Trial == nil: // not tested
	case s.Trial.Link != "":
		p.Warn(check.User, "there are no hard links: "+s.Trial.Link, "hard links, by which of two writers one wins",
			"nothing needs to be done: where the head dies a result may then be written twice")
	default:
		p.Pass("hard links work")
	}
}

// judgeTool checks the framework's program on the node.
func judgeTool(p *page) {
	switch t := p.node.Tool; {
	case t == nil: // the framework has no program
	case t.Missing:
		p.Fail(check.User, t.Err, t.Name+" on every node",
			"activate its environment before "+p.Identity.Launcher.Starter()+", install it where all nodes see it, or give its whole path ("+framework.TraitsOf(p.Framework).Program+")")
	case t.Err != "":
		p.Fail(check.User, t.Name+": "+t.Err, "its version", "run it there by hand: "+t.Name+" --version").Lines = t.Lines
	default:
		p.Pass(t.Name + " " + t.Version)
	}
}

// judgeProcesses reports processes of earlier runs.
func judgeProcesses(p *page) {
	var processes, pids []string
	for _, left := range p.node.Left.Processes {
		of := ""
		if left.Run != "" {
			of = " of run " + left.Run
		}
		processes = append(processes, fmt.Sprintf("%d (%s%s)", left.PID, left.Command, of))
		pids = append(pids, fmt.Sprint(left.PID))
	}
	p.left("processes that no daemon minds", processes, "kill "+strings.Join(pids[:min(len(pids), mostLeft)], " "), "no process of an earlier run")
}

// judgeShm reports files in /dev/shm that no process uses.
func judgeShm(p *page) {
	var paths []string
	var size int64
	for _, file := range p.node.Left.Shm {
		size += file.Size
		paths = append(paths, file.Path)
	}
	p.left(fmt.Sprintf("%d MiB of yours that nobody uses", size>>20), paths, removal(paths), "nothing of yours that nobody uses")
}

const mostLeft = 3 // maximum number of items listed in a finding

// left reports what earlier runs have left. mend is the command with which the user can remove it,
// if it is not needed; none is the message if nothing was found.
func (p *page) left(what string, things []string, mend, none string) {
	if len(things) == 0 {
		p.Pass(none)
		return
	}
	said := strings.Join(things[:min(len(things), mostLeft)], ", ")
	if more := len(things) - mostLeft; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	p.Warn(check.User, what+": "+said, "", mend)
}

// removal returns a shell command that removes the paths, at most mostLeft of them.
func removal(paths []string) string {
	words := []string{"rm -r --"}
	for _, path := range paths[:min(len(paths), mostLeft)] {
		words = append(words, prose.ShellWord(filepath.Clean(path)))
	}
	return strings.Join(words, " ")
}
