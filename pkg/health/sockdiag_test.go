package health

import (
	"net"
	"net/netip"
	"os"
	"testing"
)

// connect returns both ends of a connection to a listener at an address, and the listener's address.
func connect(t *testing.T, address string) (client, server net.Conn, at netip.AddrPort) {
	t.Helper()
	l := listen(t, address)
	target := connAddress(l.Addr())
	if target.Addr().IsUnspecified() {
		target = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), target.Port())
	}
	client, err := net.Dial("tcp", target.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server, target
}

// TestSocketQueries verifies that the kernel finds both ends of a connection and the listener, also of
// IPv4 to a socket for IPv6, and that it says the same as its tables.
func TestSocketQueries(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		t.Run(address, func(t *testing.T) {
			client, _, at := connect(t, address)
			own := connAddress(client.LocalAddr())
			for _, ends := range [][2]netip.AddrPort{{own, at}, {at, own}} {
				s, found := querySocket(ends[0], ends[1])
				if !found || s.state != stateEstablished || s.user != os.Geteuid() {
					t.Fatalf("%v: %+v, %t", ends, s, found)
				}
				table, err := readSockets("/proc",
					func(s socket) bool { return s.local == ends[0] && s.remote == ends[1] })
				if err != nil || len(table) != 1 || table[0] != s {
					t.Errorf("%v: the tables have %+v (%v), want %+v", ends, table, err, s)
				}
			}
			if s, found := queryListener(at); !found || s.user != os.Geteuid() || s.inode == noInode {
				t.Errorf("the listener is %+v, %t", s, found)
			}
			if s, found := querySocket(at, netip.AddrPortFrom(own.Addr(), 1)); found {
				t.Errorf("another connection is %+v", s)
			}
		})
	}
	if s, found := queryListener(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(unusedPort(t)))); found {
		t.Errorf("a listener on an unused port is %+v", s)
	}
}

// TestPeerWithoutTables verifies that the kernel shows whose both ends of a connection are, without
// reading the tables, which have a line for each of thousands of connections of other users: by the
// listener in whose queue it waits, and then by the user who has accepted it.
func TestPeerWithoutTables(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	here, there := connAddress(client.LocalAddr()), connAddress(client.RemoteAddr())
	trusted, strangers := currentTrustedUsers(), currentTrustedUsers()
	strangers.overflowUser = os.Geteuid() // as if any user had this id
	verify := func(state string) {
		t.Helper()
		if !trusted.hasTrustedPeer(here, there) || strangers.hasTrustedPeer(here, there) {
			t.Errorf("%s: the user is not that of the listener", state)
		}
	}
	verify("waiting")
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	verify("accepted")
	if !trusted.trustsClient(t.TempDir(), server) || strangers.trustsClient(t.TempDir(), server) {
		t.Error("the user of the client is not known")
	}
	if trusted.hasTrustedPeer(netip.AddrPortFrom(here.Addr(), 1), there) {
		t.Error("a connection that does not exist is trusted")
	}
}
