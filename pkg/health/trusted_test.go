package health

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// rootWith returns a directory with these files, as the root of a system.
func rootWith(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTrustedUsers(t *testing.T) {
	const (
		all       = "         0          0 4294967295\n"
		rootless  = "         0       1000          1\n         1     100000      65536\n"
		accounts  = "root:x:0:0::/:\nann:x:1000:1000::/:\nann-too:x:1000:1000::/:\nbob:x:1001:1001::/:\nbroken:x\n"
		subuids   = "bob:100000:65536\nann-too:200000:10\n1000:300000:10\n\nann:x:7\nann:5\ncarol:400000:10\n"
		overflow  = "65534\n"
		overflow2 = "65533\n"
	)
	t.Setenv("USER", "carol")
	for _, tc := range []struct {
		name       string
		self       int
		uidMap     string
		overflow   string
		yes, never []int
	}{
		{"ranges by name and by number", 1000, all, overflow,
			[]int{1000, 0, 200000, 200009, 300000, 300009},
			[]int{1001, 1, 100000, 199999, 200010, 300010, 400000, 65534}},
		{"a user of a directory service", 1700, all, overflow, []int{1700, 0, 400000, 400009},
			[]int{1000, 200000, 400010}},
		{"nobody, outside of user namespaces", 65534, all, overflow, []int{65534, 0}, []int{1000}},
		{"a kernel without user namespaces", 65534, "", "", []int{65534, 0}, []int{1000}},
		{"root of a rootless container", 0, rootless, overflow, []int{0}, []int{1000, 65534}},
		{"a user without an id in its namespace", 65534, "  1000  1000  1\n", overflow, nil, []int{65534, 1000}},
		{"another overflow id", 1000, rootless, overflow2, []int{1000, 0}, []int{65533, 65534}},
		{"an overflow id that cannot be read", 1000, rootless, "x", []int{1000, 0}, []int{65534}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			users := trustedUsersIn(rootWith(t, map[string]string{
				"proc/self/uid_map": tc.uidMap, "proc/sys/kernel/overflowuid": tc.overflow,
				"etc/passwd": accounts, "etc/subuid": subuids,
			}), tc.self)
			users.descendantUsers = func() []int { return nil }
			for _, user := range tc.yes {
				if !users.includes(user) {
					t.Errorf("user %d is not trusted", user)
				}
			}
			for _, user := range tc.never {
				if users.includes(user) {
					t.Errorf("user %d is trusted", user)
				}
			}
			users.descendantUsers = func() []int { return []int{7} }
			if !users.includes(7) {
				t.Error("the user of a process that was started is not trusted")
			}
		})
	}
}

// Rows of the kernel's socket tables: the ends of connections in its format.
const (
	localhost7123 = "0100007F:1BD3"
	localhost5000 = "0100007F:1388"
	mapped7123    = "0000000000000000FFFF00000100007F:1BD3"
	mapped5000    = "0000000000000000FFFF00000100007F:1388"
	all7123       = "00000000:1BD3"
	loopback6     = "00000000000000000000000001000000:1BD3"
	unspecified6  = "00000000000000000000000000000000:1BD3"
	nobodyThere   = "00000000:0000"
)

func row(local, remote string, state int, user, inode string) string {
	return "   0: " + local + " " + remote + fmt.Sprintf(" %02X", state) +
		" 00000000:00000000 00:00000000 00000000 " + user + " 0 " + inode + " 1 0 100 0 0 10 0\n"
}

// TestTrustedConnection verifies that a connection is judged by the user that has accepted it, or
// that listens on its address if nobody has, and not by those that listen on others.
func TestTrustedConnection(t *testing.T) {
	users := trustedUsers{ownUser: 1000, subordinate: [][2]int{{100000, 65536}}, overflowUser: -1,
		descendantUsers: func() []int { return nil }}
	here := row(localhost5000, localhost7123, stateEstablished, "1000", "90")
	accepted := func(user string) string { return row(localhost7123, localhost5000, stateEstablished, user, "91") }
	waiting := row(localhost7123, localhost5000, stateEstablished, "0", "0")
	listener := func(user string) string { return row(localhost7123, nobodyThere, stateListening, user, "92") }
	for _, tc := range []struct {
		name      string
		tcp, tcp6 string
		unseen    bool // the other end is not on this node
		says      string
	}{
		{name: "accepted by this user", tcp: listener("1000") + accepted("1000") + here},
		{name: "accepted by root", tcp: listener("0") + accepted("0") + here},
		{name: "accepted by a rootless container", tcp: listener("100005") + accepted("100005") + here},
		{name: "accepted by a stranger", tcp: listener("1007") + accepted("1007") + here,
			says: "port 7123 of 127.0.0.1 is held by a process of user 1007"},
		{name: "accepted by a stranger who has closed the port", tcp: accepted("1007") + here,
			says: "cannot trust the connection to 127.0.0.1:7123: user 1007 has accepted it"},
		{name: "the same, and the service has it now", tcp: listener("1000") + accepted("1007") +
			here, says: "user 1007 has accepted it"},
		{name: "not accepted yet", tcp: listener("1000") + waiting + here},
		{name: "not accepted, and nobody listens any more", tcp: waiting + here,
			says: "connection closed by 127.0.0.1:7123"},
		{name: "closed at once", tcp: listener("1000") +
			row(localhost7123, localhost5000, 5, "0", "0") + row(localhost5000, localhost7123, 8, "1000", "90")},
		{name: "reset", tcp: listener("1000"), says: "connection closed by 127.0.0.1:7123"},
		{name: "translated by the kernel", tcp: here, unseen: true},
		{name: "a stranger on all addresses", tcp: row(all7123, nobodyThere, stateListening, "1007",
			"93") + waiting + here, says: "port 7123 of 0.0.0.0 is held by"},
		{name: "a stranger on the other loopback address", tcp: listener("1000") + accepted("1000") + here,
			tcp6: row(loopback6, nobodyThere, stateListening, "1007", "93")},
		{name: "the same, not accepted yet", tcp: listener("1000") + waiting + here,
			tcp6: row(loopback6, nobodyThere, stateListening, "1007", "93")},
		{name: "a stranger on all of IPv6 alone", tcp: listener("1000") + waiting + here,
			tcp6: row(unspecified6, nobodyThere, stateListening, "1007", "93")},
		{name: "a stranger on all of IPv6", tcp: waiting + here,
			tcp6: row(unspecified6, nobodyThere, stateListening, "1007", "93"), says: "port 7123 of :: is held by"},
		{name: "accepted by this user before a stranger listened",
			tcp: row(all7123, nobodyThere, stateListening, "1007", "93") + accepted("1000") + here},
		{name: "only a stranger on another address listens any more", tcp: waiting + here,
			tcp6: row(loopback6, nobodyThere, stateListening, "1007", "93"),
			says: "connection closed by 127.0.0.1:7123"},
		{name: "by IPv4 to a listener on all of IPv6", tcp: here,
			tcp6: row(unspecified6, nobodyThere, stateListening, "1000", "93") +
				row(mapped7123, mapped5000, stateEstablished, "1000", "94")},
		{name: "the same of a stranger", tcp: here,
			tcp6: row(mapped7123, mapped5000, stateEstablished, "1007", "94"), says: "user 1007 has accepted it"},
		{name: "another connection of a stranger's", tcp: listener("1000") +
			row(localhost7123, "0100007F:1389", stateEstablished, "1007", "95") + accepted("1000") + here},
		{name: "no table", tcp: "   0: zz\n" + row("zz", nobodyThere, stateListening, "0", "1"),
			says: "cannot determine which user accepted the connection to 127.0.0.1:7123"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proc := rootWith(t, map[string]string{"self/net/tcp": tcpHeading + tc.tcp,
				"self/net/tcp6": tcpHeading + tc.tcp6})
			seen, err := users.checkSockets(proc, netip.MustParseAddrPort("127.0.0.1:5000"),
				netip.MustParseAddrPort("127.0.0.1:7123"))
			mustSee(t, err, tc.says)
			if err == nil && seen == tc.unseen {
				t.Errorf("whether it has seen the other end: %v", seen)
			}
		})
	}
}

// fixedConn is a connection between two addresses that does not exist.
type fixedConn struct {
	net.Conn
	local, remote string
}

func (c fixedConn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.local))
}

func (c fixedConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.remote))
}

// TestTrustedConnectionElsewhere verifies which connections are judged by this node's tables: those
// from it to any of its addresses.
func TestTrustedConnectionElsewhere(t *testing.T) {
	users := trustedUsers{ownUser: 1000, overflowUser: -1, descendantUsers: func() []int { return nil }}
	ownTables := rootWith(t, map[string]string{"self/net/tcp": tcpHeading +
		row(localhost5000, localhost7123, stateEstablished, "1000", "90") +
		row("0200007F:1BD3", localhost5000, stateEstablished, "1007", "91")})
	for _, tc := range []struct {
		name, proc, remote string
		says               string
	}{
		{"to another node", t.TempDir(), "198.51.100.7:7123", ""},
		{"to this node, without tables", t.TempDir(), "127.0.0.1:7123",
			"cannot determine which user accepted the connection to 127.0.0.1:7123"},
		{"to another address of this node", ownTables, "127.0.0.2:7123", "user 1007 has accepted it"},
		{"translated by the kernel", ownTables, "127.0.0.1:7123", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustSee(t, users.checkConn(tc.proc, fixedConn{local: "127.0.0.1:5000", remote: tc.remote}), tc.says)
		})
	}
}

// TestTrustedClientInTables verifies that the users of accepted connections are found in the tables
// if the kernel answers no queries of sockets.
func TestTrustedClientInTables(t *testing.T) {
	answers := hasSocketQueries.Swap(false)
	t.Cleanup(func() { hasSocketQueries.Store(answers) })
	users := trustedUsers{ownUser: 1000, overflowUser: -1, descendantUsers: func() []int { return nil }}
	server := row(localhost7123, localhost5000, stateEstablished, "1000", "91")
	client := func(user, inode string) string {
		return row(localhost5000, localhost7123, stateEstablished, user, inode)
	}
	for _, tc := range []struct {
		name, tcp string
		want      bool
	}{
		{"this user's", client("1000", "90") + server, true},
		{"another user's", client("1007", "90") + server, false},
		{"closed by another user", client("0", "0") + server, false},
		{"gone", server, false},
		{"another one", row(localhost5000, "0100007F:1BD4", stateEstablished, "1000", "90") +
			row("0100007F:1389", localhost7123, stateEstablished, "1000", "92"), false},
		{"no table", "   0: zz\n" + row("zz", nobodyThere, stateListening, "0", "1"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			proc := rootWith(t, map[string]string{"self/net/tcp": tcpHeading + tc.tcp})
			// The kernel does not know this connection, as if it could not be asked.
			conn := fixedConn{local: "127.0.0.1:7123", remote: "127.0.0.1:5000"}
			if got := users.trustsClient(proc, conn); got != tc.want {
				t.Errorf("it is trusted: %t", got)
			}
		})
	}
}
