package launcher

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// documentationAddresses are addresses that are reserved for documentation. The source address of
// their route is looked up; no packet is sent.
var documentationAddresses = []string{"198.51.100.1", "2001:db8::1"}

// routeTimeout bounds one lookup of a route, which queries a resolver if the destination is a name.
const routeTimeout = 2 * time.Second

// NodeAddress is the address at which the other nodes of a run reach a node.
type NodeAddress struct {
	Address   string
	Interface string // name of the network interface; empty if no interface has the address
	Selected  bool   // the user has selected the interface, as in --interface
	// CheckName returns the problem of [NodeAddress.NameProblem]. It is nil if there is none.
	CheckName func() string
}

// The variables with a node's address and interface.
const (
	NodeAddressVariable   = "BRINGUPD_NODE_ADDRESS"
	NodeInterfaceVariable = "BRINGUPD_NODE_INTERFACE"
)

// AddressFinder returns a function that finds, at its first call, the address at which the peers of id
// reach this node: that of the first network interface that wanted selects. If wanted is empty, it is
// the source address of the route to the host that launched the run, or of the default route, or the
// only address of the node. IPv4 is preferred. It returns a loopback address only if no peer is on
// another machine. The error lists the interfaces. No packet is sent, except a query to the resolver
// if the launching host is given by name.
//
// wanted is a list, separated by commas, of names of interfaces (ib0), patterns (ib*), addresses and
// subnets (10.1.0.0/16), with the preferred one first.
func AddressFinder(id Identity, wanted string) func() (NodeAddress, error) {
	return sync.OnceValues(func() (NodeAddress, error) {
		found, err := systemInterfaces()
		if err != nil {
			return NodeAddress{}, err
		}
		address, err := localAddress(found, id, wanted)
		if err == nil && id.Size > 1 && id.Launcher != LauncherLocal {
			address.CheckName = sync.OnceValue(func() string { return findNameProblem(found) })
		}
		return address, err
	})
}

func localAddress(found []netInterface, id Identity, wanted string) (_ NodeAddress, err error) {
	loopback := id.Size == 1 || id.Launcher == LauncherLocal
	if wanted != "" {
		return selectedAddress(found, wanted, loopback)
	}
	addr := netip.Addr{}
	if id.Launcher == LauncherLocal {
		addr = loopbackAddress(found)
	}
	if !addr.IsValid() {
		destinations := append([]string{id.LaunchAddress}, documentationAddresses...)
		if addr, err = routedAddress(found, sourceAddresses(destinations), loopback); err != nil {
			return NodeAddress{}, err
		}
	}
	return NodeAddress{Address: addr.String(), Interface: interfaceOf(addr, found)}, nil
}

type netInterface struct {
	name         string
	up, loopback bool
	addrs        []netip.Addr
}

// ParseInterfaces returns wanted, or an error if it is not a list that [AddressFinder] accepts.
// An empty list selects no interface.
func ParseInterfaces(wanted string) (string, error) {
	for part := range strings.SplitSeq(wanted, ",") {
		_, badPrefix := netip.ParsePrefix(part)
		_, badPattern := path.Match(part, "")
		if part == "" && wanted != "" || badPrefix != nil && (strings.Contains(part, "/") || badPattern != nil) {
			return "", fmt.Errorf("%q is no name (ib0), pattern (ib*) or subnet (10.1.0.0/16) "+
				"of network interfaces", part)
		}
	}
	return wanted, nil
}

// selectedAddress selects the address of the first interface, in the order of wanted, that has one
// that peers can reach.
func selectedAddress(found []netInterface, wanted string, loopback bool) (NodeAddress, error) {
	var problems []string
	for part := range strings.SplitSeq(wanted, ",") {
		problem := "no interface matches"
		for _, i := range found {
			addrs := i.matchingAddresses(part)
			if addrs == nil {
				continue
			}
			addr := bestAddress(addrs, loopback)
			switch {
			case !i.up:
				problem = "it is down"
			case i.loopback && !loopback:
				problem = "it is a loopback interface, which other nodes cannot reach"
			case !addr.IsValid():
				problem = "it has no address that other nodes can reach"
			default:
				return NodeAddress{Address: addr.String(), Interface: i.name, Selected: true}, nil
			}
		}
		problems = append(problems, part+": "+problem)
	}
	return NodeAddress{Selected: true}, fmt.Errorf("cannot use the address of interface %q: %s; "+
		"this node has %s", wanted, strings.Join(problems, ", "), describeInterfaces(found))
}

// matchingAddresses returns the addresses of the interface that part, an element of a list for
// [AddressFinder], selects. It returns nil if part does not select the interface.
func (i netInterface) matchingAddresses(part string) []netip.Addr {
	if matches, err := path.Match(part, i.name); err == nil && matches {
		return append([]netip.Addr{}, i.addrs...)
	}
	prefix, err := netip.ParsePrefix(part)
	if err != nil {
		addr, err := netip.ParseAddr(part)
		if err != nil {
			return nil
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	var all []netip.Addr
	for _, addr := range i.addrs {
		if prefix.Contains(addr) {
			all = append(all, addr)
		}
	}
	return all
}

// routedAddress selects the first usable source address; the most specific route comes first. If
// there is none, it returns the only address of the node. It does not guess among several
// addresses: the address of a bridge for containers is the same on all nodes, and reaches none.
func routedAddress(found []netInterface, sources []netip.Addr, loopback bool) (netip.Addr, error) {
	for _, source := range sources {
		if source.IsGlobalUnicast() {
			return source, nil
		}
	}
	var candidates []netip.Addr
	for _, i := range found {
		if addr := bestAddress(i.addrs, false); i.up && !i.loopback && addr.IsValid() {
			candidates = append(candidates, addr)
		}
	}
	if len(candidates) == 1 {
		return candidates[0], nil
	}
	if loopback {
		if addr := loopbackAddress(found); addr.IsValid() {
			return addr, nil
		}
	}
	problem := "no interface has one"
	if len(candidates) > 1 {
		problem = "there are several, and no route selects one"
	}
	return netip.Addr{}, fmt.Errorf("cannot find the address that peers reach this node by: %s; "+
		"name its interface with --interface, of %s", problem, describeInterfaces(found))
}

// bestAddress prefers a global IPv4 address to a global IPv6 address, and that to a link-local IPv4
// address. Link-local IPv6 addresses are useless to peers, which would need to know their own
// interface. The result is invalid if no address is usable.
func bestAddress(addrs []netip.Addr, loopback bool) netip.Addr {
	for _, usable := range []func(netip.Addr) bool{
		func(a netip.Addr) bool { return a.Is4() && a.IsGlobalUnicast() },
		func(a netip.Addr) bool { return a.Is6() && a.IsGlobalUnicast() },
		func(a netip.Addr) bool { return a.Is4() && a.IsLinkLocalUnicast() },
		func(a netip.Addr) bool { return loopback && a.Is4() && a.IsLoopback() },
		func(a netip.Addr) bool { return loopback && a.Is6() && a.IsLoopback() },
	} {
		if at := slices.IndexFunc(addrs, usable); at >= 0 {
			return addrs[at]
		}
	}
	return netip.Addr{}
}

func loopbackAddress(found []netInterface) netip.Addr {
	var all []netip.Addr
	for _, i := range found {
		if i.up {
			all = append(all, i.addrs...)
		}
	}
	all = slices.DeleteFunc(all, func(a netip.Addr) bool { return !a.IsLoopback() })
	return bestAddress(all, true)
}

// describeInterfaces lists interfaces for an error: "eth0 (10.0.0.5), ib0 (down)".
func describeInterfaces(found []netInterface) string {
	if len(found) == 0 {
		return "no interface at all"
	}
	var parts []string
	for _, i := range found {
		var words []string
		if !i.up {
			words = append(words, "down")
		}
		for _, addr := range i.addrs {
			words = append(words, addr.String())
		}
		if len(words) == 0 {
			words = []string{"no address"}
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", i.name, strings.Join(words, " ")))
	}
	return strings.Join(parts, ", ")
}

func systemInterfaces() ([]netInterface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("cannot list the network interfaces: %v", err)
	}
	found := make([]netInterface, 0, len(all))
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("cannot list the addresses of network interface %s: %v", i.Name, err)
		}
		one := netInterface{
			name: i.Name, up: i.Flags&net.FlagUp != 0, loopback: i.Flags&net.FlagLoopback != 0,
		}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
				one.addrs = append(one.addrs, prefix.Addr())
			}
		}
		found = append(found, one)
	}
	return found, nil
}

// sourceAddresses returns the addresses from which this host would send to destinations, without
// those to which no route is found in time. Connecting a UDP socket looks the route up, and sends
// nothing.
func sourceAddresses(destinations []string) (sources []netip.Addr) {
	for _, destination := range destinations {
		if destination == "" {
			continue
		}
		conn, err := net.DialTimeout("udp", net.JoinHostPort(destination, "9"), routeTimeout)
		if err != nil {
			continue
		}
		if addr, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil {
			sources = append(sources, addr.Addr().Unmap())
		}
		_ = conn.Close()
	}
	return sources
}
