package health

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestListeners(t *testing.T) {
	for _, tc := range []struct{ name, bind, address string }{
		{"IPv4", "127.0.0.1:0", "127.0.0.1"},
		{"another loopback address", "127.0.0.5:0", "127.0.0.5"},
		{"IPv6", "[::1]:0", "::1"},
		{"all", "[::]:0", "::"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pid, port := listener(t, tc.bind)
			found, err := FindListeners(port, port)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 {
				t.Fatalf("found %d listeners: %v", len(found), found)
			}
			l := found[0]
			if l.Port != port || l.PID != pid || l.Address != tc.address || l.Command == "" || l.User == "" {
				t.Errorf("found %+v, want pid %d on %s", l, pid, tc.address)
			}
			if !strings.Contains(l.String(), "is held by pid ") {
				t.Errorf("it reads %q", l)
			}
		})
	}
}

// isAscending reports whether each port is higher than the one before.
func isAscending(ports []int) bool {
	return slices.Equal(ports, slices.Compact(slices.Sorted(slices.Values(ports))))
}

// TestListenersOfRange verifies that the listeners of a range of ports are found, each port once
// where only the ports are asked for, and none outside of it.
func TestListenersOfRange(t *testing.T) {
	port := portOf(listen(t, "127.0.0.2:0"))
	listen(t, fmt.Sprintf("127.0.0.3:%d", port))
	owns := func(pid int) bool { return pid == os.Getpid() }
	for _, tc := range []struct {
		low, high int
		isFound   bool
	}{
		{port, port, true}, {port - 1, port, true}, {port, port + 1, true},
		{port + 1, port + 1, false}, {port - 1, port - 1, false},
	} {
		found, err := FindListeners(tc.low, tc.high)
		found = slices.DeleteFunc(found, func(l ListeningSocket) bool {
			return l.Port != port || !l.BelongsTo(owns)
		})
		if want := map[bool]int{true: 2}[tc.isFound]; err != nil || len(found) != want {
			t.Errorf("%d to %d: found %v (%v)", tc.low, tc.high, found, err)
		}
		ports, err := PortsOfListeners(tc.low, tc.high)
		if err != nil || slices.Contains(ports, port) != tc.isFound || !isAscending(ports) {
			t.Errorf("%d to %d: the ports are %v (%v)", tc.low, tc.high, ports, err)
		}
	}
	// The kernel's order is that of its own table.
	for range 8 {
		listen(t, "127.0.0.1:0")
	}
	ports, err := PortsOfListeners(1, 65535)
	if err != nil || !slices.Contains(ports, port) || !isAscending(ports) {
		t.Errorf("all ports are %v (%v)", ports, err)
	}
	ports, err = ListeningPorts(owns)
	if err != nil || !slices.Contains(ports, port) || !isAscending(ports) {
		t.Errorf("the ports of this process are %v (%v)", ports, err)
	}
}

// fakeProc writes a /proc with one socket of another user and one held by two processes.
func fakeProc(t *testing.T, tcp, tcp6 string) string {
	t.Helper()
	files := map[string]string{"self/net/tcp": tcp, "90/comm": "server of 90\n", "100/comm": "server of 100\n"}
	if tcp6 != "" {
		files["self/net/tcp6"] = tcp6
	}
	proc := rootWith(t, files)
	for _, pid := range []string{"90", "100"} {
		if err := os.MkdirAll(filepath.Join(proc, pid, "fd"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("socket:[5001]", filepath.Join(proc, pid, "fd", "3")); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

const tcpHeading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func TestListenersInTable(t *testing.T) {
	tcp := tcpHeading + row("0100007F:1F90", nobodyThere, stateListening, "99999", "5000") +
		row("0100007F:1F90", "0100007F:C350", stateEstablished, "0", "5002") +
		row("00000000:1F91", nobodyThere, stateListening, "0", "5003")
	tcp6 := tcpHeading + row("0000000000000000FFFF00000200007F:1F90", "00000000000000000000000000000000:0000",
		stateListening, "0", "5001")
	found, err := findListenersOn(fakeProc(t, tcp, tcp6), 8080)
	if err != nil || len(found) != 2 {
		t.Fatalf("found %v, %v", found, err)
	}
	if l := found[0]; l.PID != 0 || l.User != "99999" || l.Address != "127.0.0.1" {
		t.Errorf("another user's is %+v", l)
	}
	shared := found[1]
	if shared.PID != 90 || shared.Command != "server of 90" || shared.User != "root" || shared.Address != "127.0.0.2" {
		t.Errorf("the shared one is %+v", shared)
	}
	for _, pid := range []int{90, 100, 7} {
		if got := shared.BelongsTo(func(owner int) bool { return owner == pid }); got != (pid != 7) {
			t.Errorf("the shared one belongs to %d: %t", pid, got)
		}
	}
	if found, err := findListenersOn(fakeProc(t, tcp, ""), 8081); err != nil || len(found) != 1 {
		t.Errorf("without IPv6 found %v, %v", found, err)
	}
	const valid = "0100007F:1F90"
	for _, bad := range []string{"0100007F", "0100007F:XXXX", "0100007F0:1F90", "01:1F90", "zz:1F90"} {
		for _, text := range []string{
			row(bad, nobodyThere, stateListening, "0", "1"), row(valid, bad, stateListening, "0", "1"),
		} {
			if found, err := findListenersOn(fakeProc(t, tcpHeading+text, ""), 8080); err == nil {
				t.Errorf("%q is read as %v", text, found)
			}
		}
	}
	named := fakeProc(t, tcpHeading+row(valid, nobodyThere, stateListening, "root", "1"), "")
	if found, err := findListenersOn(named, 8080); err == nil {
		t.Errorf("a name of a user is read as %v", found)
	}
	if found, err := findListenersOn(t.TempDir(), 8080); err == nil {
		t.Errorf("without tables found %v", found)
	}
}
