package launcher

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func addrs(s string) []netip.Addr {
	var all []netip.Addr
	for text := range strings.FieldsSeq(s) {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

var (
	lo      = netInterface{name: "lo", up: true, loopback: true, addrs: addrs("127.0.0.1 ::1")}
	eth0    = netInterface{name: "eth0", up: true, addrs: addrs("fe80::1 fd00::7 10.0.0.7")}
	ib0     = netInterface{name: "ib0", up: true, addrs: addrs("fe80::2 2001:db8:1::7")}
	bridge  = netInterface{name: "docker0", up: true, addrs: addrs("172.17.0.1")}
	down    = netInterface{name: "eth1", addrs: addrs("10.1.0.7")}
	bare    = netInterface{name: "eth2", up: true}
	linkLoc = netInterface{name: "hsn0", up: true, addrs: addrs("fe80::3 169.254.3.4")}
)

// parsedAddress returns the address of a node, which is invalid if there is none.
func parsedAddress(of NodeAddress) netip.Addr {
	addr, _ := netip.ParseAddr(of.Address)
	return addr
}

func TestSelectedAddress(t *testing.T) {
	found := []netInterface{lo, eth0, ib0, bridge, down, bare, linkLoc}
	for _, tc := range []struct {
		name, wanted string
		loopback     bool
		want         string
		ifname       string
		says         string
	}{
		{name: "IPv4 first", wanted: "eth0", want: "10.0.0.7", ifname: "eth0"},
		{name: "IPv6 alone", wanted: "ib0", want: "2001:db8:1::7", ifname: "ib0"},
		{name: "link-local IPv4 for want of better", wanted: "hsn0", want: "169.254.3.4", ifname: "hsn0"},
		{name: "the first of a list", wanted: "eth9,ib0,eth0", want: "2001:db8:1::7", ifname: "ib0"},
		{name: "the usable one of a pattern", wanted: "eth[12],eth*", want: "10.0.0.7", ifname: "eth0"},
		{name: "a subnet", wanted: "10.0.0.0/8", want: "10.0.0.7", ifname: "eth0"},
		{name: "a subnet of IPv6", wanted: "fd00::/16", want: "fd00::7", ifname: "eth0"},
		{name: "an address", wanted: "172.17.0.1", want: "172.17.0.1", ifname: "docker0"},
		{name: "loopback with peers", wanted: "lo", says: "loopback interface"},
		{name: "loopback alone", wanted: "lo", loopback: true, want: "127.0.0.1", ifname: "lo"},
		{name: "down", wanted: "eth1", says: "it is down"},
		{name: "no address", wanted: "eth2", says: "no address that other nodes"},
		{name: "unknown", wanted: "eth9", says: "docker0 (172.17.0.1), eth1 (down 10.1.0.7), eth2 (no address)"},
		{name: "none of a list", wanted: "eth1,10.9.0.0/16",
			says: "eth1: it is down, 10.9.0.0/16: no interface matches"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := selectedAddress(found, tc.wanted, tc.loopback)
			checkAddress(t, parsedAddress(got), err, tc.want, tc.says)
			if got.Interface != tc.ifname {
				t.Errorf("it is of %q, want %q", got.Interface, tc.ifname)
			}
		})
	}
}

func TestParseInterfaces(t *testing.T) {
	for wanted, accepted := range map[string]bool{
		"ib0": true, "ib*,eth[0-9]": true, "10.1.0.0/16,fd00::/8": true, "10.1.0.7": true,
		"": true, "ib0,": false, "eth[0": false, "10.1.0.0/64": false, "10.1/16": false,
	} {
		if _, err := ParseInterfaces(wanted); (err == nil) != accepted {
			t.Errorf("%q: %v", wanted, err)
		}
	}
}

func TestRoutedAddress(t *testing.T) {
	for _, tc := range []struct {
		name     string
		found    []netInterface
		sources  string
		loopback bool
		want     string
		says     string
	}{
		{name: "the first route", found: []netInterface{lo, eth0, bridge},
			sources: "10.0.0.7 172.17.0.1", want: "10.0.0.7"},
		{name: "launched from this very host", found: []netInterface{lo, eth0, bridge},
			sources: "127.0.0.1 10.0.0.7", want: "10.0.0.7"},
		{name: "IPv6 route", found: []netInterface{lo, ib0}, sources: "::1 2001:db8:1::7", want: "2001:db8:1::7"},
		{name: "link-local source", found: []netInterface{lo, eth0}, sources: "fe80::1", want: "10.0.0.7"},
		{name: "no route, one address", found: []netInterface{lo, eth0, down, bare}, want: "10.0.0.7"},
		{name: "no route, two addresses", found: []netInterface{lo, eth0, bridge}, says: "no route selects one"},
		{name: "no network", found: []netInterface{lo, down}, sources: "127.0.0.1", says: "no interface has one"},
		{name: "no network, alone", found: []netInterface{lo, down}, sources: "127.0.0.1",
			loopback: true, want: "127.0.0.1"},
		{name: "network, alone", found: []netInterface{lo, eth0}, sources: "10.0.0.7",
			loopback: true, want: "10.0.0.7"},
		{name: "nothing", says: "no interface at all"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := routedAddress(tc.found, addrs(tc.sources), tc.loopback)
			checkAddress(t, got, err, tc.want, tc.says)
		})
	}
}

func checkAddress(t *testing.T, got netip.Addr, err error, want, says string) {
	t.Helper()
	switch {
	case want == "" && (err == nil || !strings.Contains(err.Error(), says) ||
		!strings.HasPrefix(err.Error(), "cannot ")):
		t.Errorf("got %v, %v; want an error with %q", got, err, says)
	case want != "" && (err != nil || got.String() != want):
		t.Errorf("got %v, %v; want %s", got, err, want)
	}
}

func TestLoopbackAddress(t *testing.T) {
	six := netInterface{name: "lo", up: true, loopback: true, addrs: addrs("::1")}
	anycast := netInterface{name: "lo", up: true, loopback: true, addrs: addrs("10.9.9.9 127.0.0.1")}
	for _, tc := range []struct {
		name  string
		found []netInterface
		want  string
	}{
		{"IPv4 first", []netInterface{eth0, lo}, "127.0.0.1"},
		{"IPv6 alone", []netInterface{six, eth0}, "::1"},
		{"another address on it", []netInterface{anycast}, "127.0.0.1"},
		{"none", []netInterface{eth0}, "invalid IP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := loopbackAddress(tc.found); got.String() != tc.want {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}

func TestLocalAddressHere(t *testing.T) {
	local, err := AddressFinder(Identity{Launcher: LauncherLocal, Size: 4}, "")()
	if err != nil || !parsedAddress(local).IsLoopback() {
		t.Errorf("a local run has address %v, %v", local, err)
	}
	// This machine may or may not have a network; a loopback address is never the answer.
	peers, err := AddressFinder(Identity{Launcher: LauncherSlurm, Size: 4, LaunchAddress: "127.0.0.1"}, "")()
	if err == nil && !parsedAddress(peers).IsGlobalUnicast() {
		t.Errorf("a run of four nodes has address %v", peers)
	}
	if err == nil {
		// Towards one of its own addresses a host sends from that address.
		again, err := AddressFinder(Identity{Launcher: LauncherSlurm, Size: 4, LaunchAddress: peers.Address}, "")()
		if err != nil || again.Address != peers.Address || again.Interface != peers.Interface {
			t.Errorf("towards %s the address is %s, %v", peers.Address, again.Address, err)
		}
	}
	if got, err := AddressFinder(Identity{Size: 2}, "no-such-interface")(); err == nil {
		t.Errorf("an interface that is not there has address %v", got)
	}
}

func TestSourceAddresses(t *testing.T) {
	want := addrs("127.0.0.1 ::1")
	if got := sourceAddresses([]string{"", "127.0.0.1", "::1"}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
