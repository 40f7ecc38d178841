package roles

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// documentationAddresses are addresses that are reserved for documentation. The source address of
// their route is looked up; no packet is sent.
var documentationAddresses = []string{"198.51.100.1", "2001:db8::1"}

// routeTimeout is the timeout of one route lookup, which queries a resolver if the destination is a
// name.
const routeTimeout = 2 * time.Second

// LocalAddress returns the address at which the peers of id reach this node: that of the network
// interface ifname. If ifname is empty, it is the source address of the route to the host that
// launched the run, or of the default route, or the only address of the node. IPv4 is preferred. It
// returns a loopback address only if no peer is on another machine. The error lists the interfaces.
// No packet is sent, except a query to the resolver if the launching host is given by name.
func LocalAddress(ctx context.Context, id Identity, ifname string) (netip.Addr, error) {
	found, err := systemInterfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	loopback := id.Size == 1 || id.Launcher == LauncherLocal
	if ifname != "" {
		return interfaceAddress(found, ifname, loopback)
	}
	if id.Launcher == LauncherLocal {
		if addr := loopbackAddress(found); addr.IsValid() {
			return addr, nil
		}
	}
	var sources []netip.Addr
	for _, destination := range append([]string{id.LaunchAddress}, documentationAddresses...) {
		if destination == "" {
			continue
		}
		sources = append(sources, sourceAddressTo(ctx, destination))
	}
	if ctx.Err() != nil {
		return netip.Addr{}, fmt.Errorf("cannot find the address that peers reach this node by: %w", context.Cause(ctx))
	}
	return routedAddress(found, sources, loopback)
}

// netInterface describes a network interface for the choice of an address.
type netInterface struct {
	name         string
	up, loopback bool
	addrs        []netip.Addr
}

// interfaceAddress selects an address of the interface with the given name.
func interfaceAddress(found []netInterface, name string, loopback bool) (netip.Addr, error) {
	at := slices.IndexFunc(found, func(i netInterface) bool { return i.name == name })
	problem := ""
	switch {
	case at < 0:
		problem = "there is no interface of this name"
	case !found[at].up:
		problem = "it is down"
	case found[at].loopback && !loopback:
		problem = "it is a loopback interface, which other nodes cannot reach"
	default:
		if addr := bestAddress(found[at].addrs, loopback); addr.IsValid() {
			return addr, nil
		}
		problem = "it has no address that other nodes can reach"
	}
	return netip.Addr{}, fmt.Errorf("cannot use the address of interface %q: %s; this node has %s", name, problem, describeInterfaces(found))
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
	return netip.Addr{}, fmt.Errorf("cannot find the address that peers reach this node by: %s; name its interface with --interface, of %s", problem, describeInterfaces(found))
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
		if i.up && i.loopback {
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
			// The interface has disappeared since the listing.
			continue
		}
		entry := netInterface{name: i.Name, up: i.Flags&net.FlagUp != 0, loopback: i.Flags&net.FlagLoopback != 0}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
				entry.addrs = append(entry.addrs, prefix.Addr())
			}
		}
		found = append(found, entry)
	}
	return found, nil
}

// sourceAddressTo returns the address from which this host would send to a destination. It returns
// an invalid address if no route is found in time. Connecting a UDP socket looks the route up, and
// sends nothing.
func sourceAddressTo(ctx context.Context, destination string) netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", net.JoinHostPort(destination, "9"))
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	addr, _ := netip.ParseAddrPort(conn.LocalAddr().String())
	return addr.Addr().Unmap()
}
