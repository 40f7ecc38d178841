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

// Where a packet to nowhere in particular would leave: addresses set aside for documentation. None is sent.
var anywhere = []string{"198.51.100.1", "2001:db8::1"}

// routeTimeout bounds one look for a route, which asks a resolver where the destination is a name.
const routeTimeout = 2 * time.Second

// LocalAddress returns the address under which the peers of id reach this node: that of the network interface
// named, or where ifname is empty the source address of the way to the host that launched the run, else of the
// default route, else the only address there is. IPv4 is preferred. A loopback address is returned only where
// no peer is on another machine. The error lists the interfaces there are. It sends nothing, except for asking
// the resolver where the launching host is told by name.
func LocalAddress(ctx context.Context, id Identity, ifname string) (netip.Addr, error) {
	found, err := systemInterfaces()
	if err != nil {
		return netip.Addr{}, err
	}
	loopback := id.Size == 1 || id.Launcher == Local
	if ifname != "" {
		return namedAddress(found, ifname, loopback)
	}
	if id.Launcher == Local {
		if addr := loopbackAddress(found); addr.IsValid() {
			return addr, nil
		}
	}
	var sources []netip.Addr
	for _, destination := range append([]string{id.LaunchAddress}, anywhere...) {
		if destination == "" {
			continue
		}
		sources = append(sources, sourceTowards(ctx, destination))
	}
	if ctx.Err() != nil {
		return netip.Addr{}, fmt.Errorf("cannot find the address that peers reach this node by: %w", context.Cause(ctx))
	}
	return routedAddress(found, sources, loopback)
}

// netInterface is what a network interface has to say in the choice of an address.
type netInterface struct {
	name         string
	up, loopback bool
	addrs        []netip.Addr
}

// namedAddress chooses among the addresses of one interface.
func namedAddress(found []netInterface, name string, loopback bool) (netip.Addr, error) {
	at := slices.IndexFunc(found, func(i netInterface) bool { return i.name == name })
	problem := ""
	switch {
	case at < 0:
		problem = "there is none of that name"
	case !found[at].up:
		problem = "it is down"
	case found[at].loopback && !loopback:
		problem = "it is a loopback interface, which no other node reaches"
	default:
		if addr := bestAddress(found[at].addrs, loopback); addr.IsValid() {
			return addr, nil
		}
		problem = "it has no address that another node could reach"
	}
	return netip.Addr{}, fmt.Errorf("cannot take the address of interface %q: %s; this node has %s", name, problem, describe(found))
}

// routedAddress chooses the first usable source address, the most telling route first. Without any it falls
// back on the only address of the node; between several it doesn't guess: the address of a bridge for
// containers is the same on all nodes, and reaches none.
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
		problem = "no route tells which of several it is"
	}
	return netip.Addr{}, fmt.Errorf("cannot find the address that peers reach this node by: %s; name its interface with --interface, of %s", problem, describe(found))
}

// bestAddress prefers a global IPv4 address to a global IPv6 one to a link-local IPv4 one. Link-local IPv6 is
// no use to a peer: it would need to know its own interface towards us. Where none will do the address is not valid.
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

// describe lists interfaces for an error: "eth0 (10.0.0.5), ib0 (down)".
func describe(found []netInterface) string {
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
			// It went away since the listing.
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

// sourceTowards returns the address this host would send from to a destination; none where no route is found in time.
// To connect a UDP socket looks the route up, and sends nothing.
func sourceTowards(ctx context.Context, destination string) netip.Addr {
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
