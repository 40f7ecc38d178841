package doctor

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
)

// nodeChecks lists the checks of each node by itself, in the order of the report.
var nodeChecks = []reportRow{
	{"node.name", checkOwnName},
	{"head.address", checkHeadAddress},
	{"head.name", checkHeadName},
	{"ports", checkFixedPorts},
	{"ports.given", checkEphemeralPorts},
	{"share.record", checkRecordTime},
	{"share.rename", checkRename},
	{"share.links", checkHardLinks},
	{"share.inotify", func(p *checkContext) {
		switch heard := p.nodeFacts.Share.InotifyWorks; {
		case heard == nil || !p.hasPeers():
		case *heard:
			p.AddPass("inotify tells of what other nodes write")
		default:
			p.AddPass("inotify does not tell of what other nodes write: it is looked for")
		}
	}},
	{"framework", checkFrameworkProgram},
	{"mpi", checkMPI},
	{"left.processes", checkStrayProcesses},
	{"left.shm", checkSharedMemory},
	{"left.temp", func(p *checkContext) {
		p.reportLeftovers("directories of runs", p.nodeFacts.Leftovers.Temp, removalCommand(p.nodeFacts.Leftovers.Temp), "no directory of an earlier run")
	}},
}

// shortHostName returns the first component of a host name, in lower case.
func shortHostName(host string) string {
	name, _, _ := strings.Cut(strings.ToLower(host), ".")
	return name
}

// checkOwnName checks the node's host name, and whether the name resolves to the node's own
// address.
func checkOwnName(p *checkContext) {
	f := p.nodeFacts
	mend := "mend the node's host name, /etc/hosts or the name service (getent hosts " + f.Hostname + ")"
	own := fmt.Sprintf("its own name, %s, is %s, ", f.OwnName.Host, strings.Join(f.OwnName.Addresses, " "))
	switch launcher := p.Identity.Launcher; {
	case f.AddressErr != "":
		p.AddFailure(check.ClassUser, f.AddressErr, "", "name the interface that peers reach the node by: --interface")
	case launcher.Traits().NamesNodes && f.Host != "" && shortHostName(f.Host) != shortHostName(f.Hostname):
		p.AddWarning(check.ClassNode, fmt.Sprintf("the kernel calls it %s, and %s %s", f.Hostname, launcher.CommandHints("").Title, f.Host),
			"one name: frameworks tell their peers the kernel's", mend)
	case f.OwnName.Err != "":
		p.AddWarning(check.ClassNode, fmt.Sprintf("its own name, %s, can't be resolved: %s", f.OwnName.Host, f.OwnName.Err), "", mend)
	case p.onSeparateHosts() && !hasOwnAddress(f.OwnName.Addresses, f.LocalAddresses):
		p.AddFailure(check.ClassNode, own+"which is none of its addresses", "", mend)
	case p.onSeparateHosts() && !slices.ContainsFunc(f.OwnName.Addresses, isReachable):
		p.AddWarning(check.ClassNode, own+"where no other node reaches it", "an address of the network: what listens by its own name is to be reached", mend)
	default:
		p.AddPass("the node finds itself by its own name")
	}
}

// hasOwnAddress reports whether any of the addresses is a loopback address or one of others.
func hasOwnAddress(some, others []string) bool {
	return slices.ContainsFunc(some, func(a string) bool {
		addr, err := netip.ParseAddr(a)
		return err == nil && (addr.IsLoopback() || slices.Contains(others, a))
	})
}

// isReachable reports whether an address can be reached from other machines.
func isReachable(address string) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && !addr.IsLoopback() && !addr.IsUnspecified()
}

// reachedHead returns the host at which the node has reached the head, by name or by address. It is
// empty if the node has not reached the head. wrong contains the failed attempts.
func (f Facts) reachedHead(byName bool) (at string, wrong []ConnectAttempt) {
	for _, call := range f.Attempts {
		switch {
		case call.ByName != byName:
		case call.Err == "":
			at = hostPart(call.To)
		default:
			wrong = append(wrong, call)
		}
	}
	return at, wrong
}

// checkHeadAddress checks whether the node can connect to the head at one of its addresses.
func checkHeadAddress(p *checkContext) {
	if !p.hasPeers() || len(p.nodeFacts.Attempts) == 0 && p.nodeFacts.HeadName == nil {
		return
	}
	at, wrong := p.nodeFacts.reachedHead(false)
	if at != "" {
		p.AddPass("the head is reached at " + at)
		return
	}
	var refused []string
	for _, call := range wrong {
		refused = append(refused, fmt.Sprintf("%s: %s", hostPart(call.To), call.Err))
	}
	p.AddFailure(check.ClassNode, "the head can't be reached at "+strings.Join(refused, "; "), "a connection to any port of the head's",
		"see the firewall and the routes between the nodes; where the address is of the wrong network, name the right one with --interface")
}

// checkHeadName checks whether the node can connect to the head by its host name.
func checkHeadName(p *checkContext) {
	head := p.nodeFacts.HeadName
	if !p.hasPeers() || head == nil {
		return
	}
	at, _ := p.nodeFacts.reachedHead(false)
	named, wrong := p.nodeFacts.reachedHead(true)
	switch {
	case head.Err != "":
		p.AddWarning(check.ClassNode, fmt.Sprintf("the head's name, %s, can't be resolved: %s", head.Host, head.Err), "",
			"have programs use the head's address (BRINGUPD_HEAD_ADDRESS), or mend /etc/hosts or the name service")
	case named != "":
		p.AddPass("the head is reached by its name, " + head.Host)
	case at == "":
		p.AddSkip("the head can't be reached at all")
	default:
		var misled []string
		for _, call := range wrong {
			misled = append(misled, call.Err)
		}
		p.AddFailure(check.ClassNode,
			fmt.Sprintf("the head's name, %s, leads to %s, where the head is not: %s", head.Host, strings.Join(head.Addresses, " "), strings.Join(misled, "; ")),
			"the head, which is at "+at, "mend /etc/hosts or the name service there: getent hosts "+head.Host)
	}
}

// hostPart returns the host of host:port. Messages leave out the port, which is used only by this
// program.
func hostPart(address string) string {
	if at := strings.LastIndexByte(address, ':'); at >= 0 {
		return strings.Trim(address[:at], "[]")
	}
	return address
}

// checkFixedPorts checks whether the ports of the services are free.
func checkFixedPorts(p *checkContext) {
	var taken, free []string
	for _, port := range p.nodeFacts.Ports {
		switch {
		case port.Holder != "":
			taken = append(taken, fmt.Sprintf("%s can't have %d: %s", port.Name, port.Number, port.Holder))
		case port.Fixed:
			free = append(free, fmt.Sprintf("%d (%s)", port.Number, port.Name))
		}
	}
	switch {
	case p.nodeFacts.PortsErr != "":
		p.AddFailure(check.ClassUser, p.nodeFacts.PortsErr, "", "mend the flags that give the framework its ports")
	case len(taken) > 0:
		hint := "end what holds it, or give another port"
		if free := framework.TraitsOf(p.Framework).FreePortAdvice; free != "" {
			hint += "; " + free
		}
		p.AddFailure(check.ClassUser, strings.Join(taken, "; "), "a port that is free", hint)
	case len(free) > 0:
		p.AddPass("free: " + strings.Join(free, ", "))
	default:
		p.AddSkip("no service is to have a fixed port")
	}
}

// minEphemeralPorts is a number of ephemeral ports below which a large job may run out of
// connections.
const minEphemeralPorts = 5000

// checkEphemeralPorts checks the kernel's range of ephemeral ports.
func checkEphemeralPorts(p *checkContext) {
	const where = "net.ipv4.ip_local_port_range"
	p.Template.Source = where
	low, high := p.nodeFacts.EphemeralPorts[0], p.nodeFacts.EphemeralPorts[1]
	observed := fmt.Sprintf("the kernel gives ports %d to %d", low, high)
	inside := slices.IndexFunc(p.nodeFacts.Ports, func(p Port) bool { return p.Fixed && low <= p.Number && p.Number <= high })
	switch {
	case low == 0: // unknown
	case inside >= 0:
		port := p.nodeFacts.Ports[inside]
		p.AddWarning(check.ClassUser, fmt.Sprintf("%s, and %s is to have %d: a connection may have it when the job starts", observed, port.Name, port.Number),
			"", "give a port outside of that range, or have it kept free: sysctl net.ipv4.ip_local_reserved_ports")
	case high-low+1 < minEphemeralPorts:
		p.AddWarning(check.ClassNode, observed, fmt.Sprintf("at least %d", minEphemeralPorts), "widen "+where+", as to 32768 60999")
	default:
		p.AddPass(observed)
	}
}

// slowRecordTime is a time to write a record, of a few hundred bytes, on a shared file system that
// is too slow.
const slowRecordTime = time.Second

// checkRecordTime checks the time to write a record to the shared file system.
func checkRecordTime(p *checkContext) {
	switch took := p.nodeFacts.Share.RecordTime; {
	case took > slowRecordTime:
		p.AddWarning(check.ClassNode, "a record takes "+roundUpDuration(took), slowRecordTime.String(), "see the load of the share's server, and of the network to it")
	case took > 0:
		p.AddPass("a record is written within " + roundUpDuration(took))
	}
}

// roundUpDuration rounds a duration up to 10 ms, 100 ms or 1 s, so that similar nodes have equal
// findings. It does not round up longer durations.
func roundUpDuration(d time.Duration) string {
	step := 10 * time.Millisecond
	for step < d {
		step *= 10
	}
	if step > time.Second {
		return textutil.RoundedDuration(d, time.Minute)
	}
	return step.String()
}

// checkRename checks whether files can be written and renamed on the shared file system.
func checkRename(p *checkContext) {
	switch s := p.nodeFacts.Share; {
	case s.TrialErr != "":
		p.AddFailure(check.ClassNode, s.TrialErr, "", "give a --log-dir that every node can write to")
	case s.Trial == nil: // not tested
	case s.Trial.Rename != "":
		p.AddFailure(check.ClassUser, "a file could not take another one's name: "+s.Trial.Rename, "an atomic rename", "give a --log-dir on another file system")
	default:
		p.AddPass("a file takes another one's name at once")
	}
}

// checkHardLinks checks whether the shared file system supports hard links.
func checkHardLinks(p *checkContext) {
	switch s := p.nodeFacts.Share; {
	case s.TrialErr != "" || s.Trial == nil: // not tested
	case s.Trial.Link != "":
		p.AddWarning(check.ClassUser, "there are no hard links: "+s.Trial.Link, "hard links, by which of two writers one wins",
			"nothing needs to be done: where the head dies a result may then be written twice")
	default:
		p.AddPass("hard links work")
	}
}

// checkFrameworkProgram checks the framework's program on the node.
func checkFrameworkProgram(p *checkContext) {
	switch t := p.nodeFacts.Framework; {
	case t == nil: // the framework has no program
	case t.Missing:
		p.AddFailure(check.ClassUser, t.Err, t.Name+" on every node",
			"activate its environment before "+p.Identity.Launcher.StarterProgram()+", install it where all nodes see it, or give its whole path ("+framework.TraitsOf(p.Framework).ProgramFlag+")")
	case t.Err != "":
		p.AddFailure(check.ClassUser, t.Name+": "+t.Err, "its version", "run it there by hand: "+t.Name+" --version").Lines = t.Lines
	default:
		p.AddPass(t.Name + " " + t.Version)
	}
}

// checkStrayProcesses reports processes of earlier runs.
func checkStrayProcesses(p *checkContext) {
	var processes, pids []string
	for _, left := range p.nodeFacts.Leftovers.Processes {
		of := ""
		if left.Run != "" {
			of = " of run " + left.Run
		}
		processes = append(processes, fmt.Sprintf("%d (%s%s)", left.PID, left.Command, of))
		pids = append(pids, fmt.Sprint(left.PID))
	}
	p.reportLeftovers("processes that no daemon minds", processes, "kill "+strings.Join(pids[:min(len(pids), maxListedLeftovers)], " "), "no process of an earlier run")
}

// checkSharedMemory reports files in /dev/shm that no process uses.
func checkSharedMemory(p *checkContext) {
	var paths []string
	var size int64
	for _, file := range p.nodeFacts.Leftovers.Shm {
		size += file.Size
		paths = append(paths, file.Path)
	}
	p.reportLeftovers(fmt.Sprintf("%d MiB of yours that nobody uses", size>>20), paths, removalCommand(paths), "nothing of yours that nobody uses")
}

const maxListedLeftovers = 3 // maximum number of items listed in a finding

// reportLeftovers reports what earlier runs have left. mend is the command with which the user can
// remove it, if it is not needed; none is the message if nothing was found.
func (p *checkContext) reportLeftovers(what string, things []string, mend, none string) {
	if len(things) == 0 {
		p.AddPass(none)
		return
	}
	said := strings.Join(things[:min(len(things), maxListedLeftovers)], ", ")
	if more := len(things) - maxListedLeftovers; more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	p.AddWarning(check.ClassUser, what+": "+said, "", mend)
}

// removalCommand returns a shell command that removes the paths, at most maxListedLeftovers of
// them.
func removalCommand(paths []string) string {
	words := []string{"rm -r --"}
	for _, path := range paths[:min(len(paths), maxListedLeftovers)] {
		words = append(words, textutil.QuoteShellWord(filepath.Clean(path)))
	}
	return strings.Join(words, " ")
}
