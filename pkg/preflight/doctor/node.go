package doctor

import (
	"fmt"
	"net"
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
	{"framework", checkFrameworkProgram},
	{"mpi", checkMPI},
	{"left.processes", checkStrayProcesses},
	{"left.shm", checkSharedMemory},
	{"left.temp", func(p *checkContext) {
		paths := p.nodeFacts.Leftovers.Temp
		p.reportLeftovers("directories of earlier runs", paths, removalCommand(paths),
			"no directories of earlier runs")
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
	f, launcher := p.nodeFacts, p.Identity.Launcher
	hint := "fix the node's host name, /etc/hosts or DNS (getent hosts " + f.Hostname + ")"
	resolves := fmt.Sprintf("its host name %s resolves to %s, which ", f.OwnName.Host,
		strings.Join(f.OwnName.Addresses, " "))
	renamed := launcher.Traits().NamesNodes && f.Host != "" &&
		shortHostName(f.Host) != shortHostName(f.Hostname)
	switch {
	case f.AddressErr != "":
		p.AddFailure(check.ClassUser, f.AddressErr, "",
			"select the interface for traffic between nodes: --interface")
	case renamed:
		title := launcher.CommandHints("").Title
		p.AddWarning(check.ClassNode,
			fmt.Sprintf("the kernel's host name is %s, but %s calls the node %s", f.Hostname, title, f.Host),
			"the same name: frameworks announce the kernel's to their peers", hint)
	case f.OwnName.Err != "":
		observed := fmt.Sprintf("cannot resolve its host name %s: %s", f.OwnName.Host, f.OwnName.Err)
		p.AddWarning(check.ClassNode, observed, "", hint)
	case p.onSeparateHosts() && !hasOwnAddress(f.OwnName.Addresses, f.LocalAddresses):
		p.AddFailure(check.ClassNode, resolves+"is not one of its addresses", "", hint)
	case p.onSeparateHosts() && !slices.ContainsFunc(f.OwnName.Addresses, isReachable):
		p.AddWarning(check.ClassNode, resolves+"other nodes cannot reach",
			"a network address, so that services bound to the host name are reachable", hint)
	default:
		p.AddPass("the host name resolves to this node")
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
// empty if the node has not reached the head. failures describes the failed attempts.
func (f Facts) reachedHead(byName bool) (at string, failures []string) {
	for _, attempt := range f.Attempts {
		host, _, _ := net.SplitHostPort(attempt.To) // the port is used only by this program
		switch {
		case attempt.ByName != byName:
		case attempt.Err == "":
			at = host
		case byName:
			failures = append(failures, attempt.Err)
		default:
			failures = append(failures, host+": "+attempt.Err)
		}
	}
	return at, failures
}

// checkHeadAddress checks whether the node can connect to the head at one of its addresses.
func checkHeadAddress(p *checkContext) {
	if !p.hasPeers() || len(p.nodeFacts.Attempts) == 0 && p.nodeFacts.HeadName == nil {
		return
	}
	at, failures := p.nodeFacts.reachedHead(false)
	if at != "" {
		p.AddPass("the head is reachable at " + at)
		return
	}
	p.AddFailure(check.ClassNode, "cannot reach the head at "+strings.Join(failures, "; "),
		"a connection to a port of the head", "check the firewall and the routes between the nodes; "+
			"if the address is on the wrong network, select the right one with --interface")
}

// checkHeadName checks whether the node can connect to the head by its host name.
func checkHeadName(p *checkContext) {
	head := p.nodeFacts.HeadName
	if !p.hasPeers() || head == nil {
		return
	}
	at, _ := p.nodeFacts.reachedHead(false)
	named, failures := p.nodeFacts.reachedHead(true)
	switch {
	case head.Err != "":
		p.AddWarning(check.ClassNode,
			fmt.Sprintf("cannot resolve the head's host name %s: %s", head.Host, head.Err), "",
			"use the head's address in programs (BRINGUPD_HEAD_ADDRESS), or fix /etc/hosts or DNS")
	case named != "":
		p.AddPass("the head is reachable by its host name, " + head.Host)
	case at == "":
		p.AddSkip("the head is not reachable")
	default:
		observed := fmt.Sprintf("the head's host name %s resolves to %s, but the head does not respond "+
			"there: %s", head.Host, strings.Join(head.Addresses, " "), strings.Join(failures, "; "))
		p.AddFailure(check.ClassNode, observed, "the head's address, "+at,
			"fix /etc/hosts or DNS there: getent hosts "+head.Host)
	}
}

// checkFixedPorts checks whether the ports of the services are free.
func checkFixedPorts(p *checkContext) {
	var taken, free []string
	for _, port := range p.nodeFacts.Ports {
		switch {
		case port.Holder != "":
			taken = append(taken, fmt.Sprintf("%s cannot use port %d: %s", port.Name, port.Number, port.Holder))
		case port.Fixed:
			free = append(free, fmt.Sprintf("%d (%s)", port.Number, port.Name))
		}
	}
	switch {
	case p.nodeFacts.PortsErr != "":
		p.AddFailure(check.ClassUser, p.nodeFacts.PortsErr, "", "correct the framework's port flags")
	case len(taken) > 0:
		hint := "stop the process that uses it, or choose another port"
		if advice := framework.TraitsOf(p.Framework).FreePortAdvice; advice != "" {
			hint += "; " + advice
		}
		p.AddFailure(check.ClassUser, strings.Join(taken, "; "), "a free port", hint)
	case len(free) > 0:
		p.AddPass("free: " + strings.Join(free, ", "))
	default:
		p.AddSkip("no fixed ports requested")
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
	observed := fmt.Sprintf("ephemeral ports: %d to %d", low, high)
	inside := slices.IndexFunc(p.nodeFacts.Ports, func(p Port) bool {
		return p.Fixed && low <= p.Number && p.Number <= high
	})
	switch {
	case low == 0: // unknown
	case inside >= 0:
		port := p.nodeFacts.Ports[inside]
		p.AddWarning(check.ClassUser, fmt.Sprintf("%s; %s needs port %d, which a connection may occupy "+
			"when the job starts", observed, port.Name, port.Number), "",
			"choose a port outside that range, or reserve it: sysctl net.ipv4.ip_local_reserved_ports")
	case high-low+1 < minEphemeralPorts:
		p.AddWarning(check.ClassNode, observed, fmt.Sprintf("at least %d ports", minEphemeralPorts),
			"widen "+where+", for example to 32768 60999")
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
		p.AddWarning(check.ClassNode, "writing a record takes "+roundUpDuration(took),
			slowRecordTime.String(),
			"check the load of the shared file system's server and of the network to it")
	case took > 0:
		p.AddPass("a record is written within " + roundUpDuration(took))
	}
}

// roundUpDuration rounds a duration up to 10 ms, 100 ms or 1 s, so that similar nodes have equal
// findings. It does not round up longer durations.
func roundUpDuration(d time.Duration) string {
	for _, limit := range []time.Duration{time.Second / 100, time.Second / 10, time.Second} {
		if d <= limit {
			return limit.String()
		}
	}
	return textutil.RoundedDuration(d, time.Minute)
}

// checkFrameworkProgram checks the framework's program on the node.
func checkFrameworkProgram(p *checkContext) {
	switch t := p.nodeFacts.Framework; {
	case t == nil: // the framework has no program
	case t.Missing:
		p.AddFailure(check.ClassUser, t.Err, t.Name+" on every node",
			"activate its environment before "+p.Identity.Launcher.StarterProgram()+", or install it on all "+
				"nodes or on the shared file system")
	case t.Err != "":
		p.AddFailure(check.ClassUser, t.Name+": "+t.Err, "a version",
			"run it there by hand: "+t.Name+" --version").Lines = t.Lines
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
	p.reportLeftovers("orphaned processes of earlier runs", processes,
		"kill "+strings.Join(pids[:min(len(pids), maxListedLeftovers)], " "),
		"no orphaned processes of earlier runs")
}

// checkSharedMemory reports files in /dev/shm that no process uses.
func checkSharedMemory(p *checkContext) {
	var paths []string
	var size int64
	for _, file := range p.nodeFacts.Leftovers.Shm {
		size += file.Size
		paths = append(paths, file.Path)
	}
	p.reportLeftovers(fmt.Sprintf("%d MiB in leftover shared memory files", size>>20), paths,
		removalCommand(paths), "no leftover shared memory")
}

const maxListedLeftovers = 3 // maximum number of items listed in a finding

// reportLeftovers reports what earlier runs have left. command is the command with which the user
// can remove it, if it is not needed; none is the message if nothing was found.
func (p *checkContext) reportLeftovers(what string, things []string, command, none string) {
	if len(things) == 0 {
		p.AddPass(none)
		return
	}
	text := strings.Join(things[:min(len(things), maxListedLeftovers)], ", ")
	if more := len(things) - maxListedLeftovers; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	p.AddWarning(check.ClassUser, what+": "+text, "", command)
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
