package health

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// noLeaks fails the test if a goroutine outlives it.
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// parse parses a valid probe.
func parse(t *testing.T, s string) Probe {
	t.Helper()
	p, err := ParseProbe(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// listen opens a listener that is closed at the end of the test.
func listen(t *testing.T, address string) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// unusedPort returns a port that had no listener a moment ago.
func unusedPort(t *testing.T) int {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	port := portOf(l)
	_ = l.Close()
	return port
}

func TestParseProbe(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		in   string
		port int // 0: the probe uses no port of this node
	}{
		{"tcp:6379", 6379},
		{"tcp://127.0.0.1:6379", 6379},
		{"tcp://127.0.0.9:6379", 6379},
		{"tcp://localhost:6379", 6379},
		{"tcp://LOCALHOST.:6379", 6379},
		{"tcp://" + hostname + ":6379", 6379},
		{"tcp://0.0.0.0:1", 1},
		{"tcp://[::1]:65535", 65535},
		{"tcp://[::]:80", 80},
		{"tcp://[::ffff:127.0.0.1]:80", 80},
		{"tcp://198.51.100.7:6379", 0},
		{"tcp://other-node:6379", 0},
		{"http://127.0.0.1:8000/health?full=1", 8000},
		{"http://127.0.0.1/health", 80},
		{"https://localhost/", 443},
		{"https://[::1]:8443/a", 8443},
		{"http://other-node:8000/", 0},
		{"exec:true", 0},
		{"exec:sh -c 'exit 0'", 0},
		{"file:/tmp/ready", 0},
		{"file:///tmp/ready", 0},
	} {
		t.Run(tc.in, func(t *testing.T) {
			p := parse(t, tc.in)
			port, here := p.LocalPort()
			if port != tc.port || here != (tc.port != 0) {
				t.Errorf("port is %d, %v; want %d", port, here, tc.port)
			}
			if p.String() != tc.in {
				t.Errorf("string is %q", p.String())
			}
		})
	}
}

func TestParseProbeErrors(t *testing.T) {
	for _, tc := range []struct{ name, in, says string }{
		{"empty", "", "no kind followed by a colon"},
		{"port alone", "6379", "no kind followed by a colon"},
		{"host and port", "localhost:6379", `"localhost" is not a kind of probe; tcp:PORT`},
		{"slip of http", "htp://h:1/", "is it http?"},
		{"slip of tcp", "tpc:80", "is it tcp?"},
		{"capitals", "EXEC:true", "is it exec?"},
		{"nothing like it", "carrier-pigeon://h", `"carrier-pigeon" is not a kind of probe; tcp:PORT`},
		{"port 0", "tcp:0", `"0" is not a port`},
		{"high port", "tcp:65536", `"65536" is not a port`},
		{"signed port", "tcp:+80", `"+80" is not a port`},
		{"named port", "tcp:http", `"http" is not a port`},
		{"no port", "tcp://h", "not HOST:PORT"},
		{"no host", "tcp://:80", "tcp:PORT is this node"},
		{"bare IPv6", "tcp://::1:80", "in brackets"},
		{"path after tcp", "tcp://h:80/x", `"80/x" is not a port`},
		{"user in host", "tcp://a@h:80", `"a@h" is not a host`},
		{"http without slashes", "http:8000", "it has no host"},
		{"http without host", "http://:8000/", "it has no host"},
		{"http with a bad port", "http://h:99999/", `"99999" is not a port`},
		{"http with an empty port", "http://h:/", `"" is not a port`},
		{"http with a password", "http://u:p@h:80/", "written to logs"},
		{"http with a bad escape", "http://h:80/%zz", "%zz"},
		{"grpc", "grpc://h:80/svc", "exec:grpc_health_probe"},
		{"exec of nothing", "exec:  ", "it has no command"},
		{"exec of NUL", "exec:a\x00b", "it has no command"},
		{"exec of an open quote", "exec:echo 'a", "without closing quote"},
		{"NUL in a file", "file:/a\x00b", "file:/PATH"},
		{"relative file", "file:ready", "file:/PATH"},
		{"file on a host", "file://host/ready", "file:/PATH"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := ParseProbe(tc.in)
			if err == nil {
				t.Fatalf("got %q, want an error", p)
			}
			if !strings.HasPrefix(err.Error(), "cannot read probe") || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q is missing in: %v", tc.says, err)
			}
		})
	}
}

func TestIsThisNode(t *testing.T) {
	if own := ownAddresses(); !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("this node's addresses are %v", own)
	}
	own := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.7"),
		netip.MustParseAddr("fe80::7")}
	for _, tc := range []struct {
		host string
		want bool
	}{
		{"", true}, {"n7", true}, {"N7.Site.Example", true}, {"n7.site.example.", true},
		{"n7.other", false}, {"n8", false},
		{"10.0.0.7", true}, {"::ffff:10.0.0.7", true}, {"10.0.0.8", false}, {"fe80::7%eth0", true},
		{"::2", false}, {"127.1.2.3", true},
	} {
		if got := isThisNode(tc.host, "n7.site.example", own); got != tc.want {
			t.Errorf("%s: got %v", tc.host, got)
		}
	}
	if isThisNode("n7", "", nil) {
		t.Error("a node without a name takes another's")
	}
}
