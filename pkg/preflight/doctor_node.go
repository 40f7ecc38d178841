package preflight

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
)

// nodeRows lists the checks of each node by itself, in the order of the report.
var nodeRows = []reportRow{
	{"node.name", checkOwnName},
	{"head.address", checkHeadAddress},
	{"head.name", checkHeadName},
	{"ports", checkFixedPorts},
	{"framework", checkFrameworkProgram},
	{"mpi", checkMPI},
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
	// A single node is judged as one of several, for which it may be examined.
	case (p.onSeparateHosts() || !p.hasPeers()) && !allReachable(f.OwnName.Addresses):
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

// allReachable reports whether the addresses can be reached from other machines. Programs get a
// loopback address before all others.
func allReachable(addresses []string) bool {
	return !slices.ContainsFunc(addresses, func(a string) bool {
		addr, err := netip.ParseAddr(a)
		return err != nil || addr.IsLoopback() || addr.IsUnspecified()
	})
}

// reachedHead returns the host at which the node has reached the head, by name or by address. It is
// empty if the node has not reached the head. failures describes the failed attempts.
func (f DoctorFacts) reachedHead(byName bool) (at string, failures []string) {
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
