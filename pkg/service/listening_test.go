package service

import (
	"net"
	"os"
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

func TestDescribeListening(t *testing.T) {
	for _, tc := range []struct {
		ports []int
		want  string
	}{
		{nil, ""}, {[]int{8000, 9000}, ""}, {[]int{8001}, "its processes listen on port 8001 instead"}, {[]int{8001, 8002, 9000}, "its processes listen on ports 8001-8002,9000 instead"},
	} {
		if got := describeListening(tc.ports, 8000); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.ports, got, tc.want)
		}
	}
}

// TestListeningPorts verifies that the ports of this process are found, and no others.
func TestListeningPorts(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := listener.Addr().(*net.TCPAddr).Port
	ports, err := health.ListeningPorts(func(pid int) bool { return pid == os.Getpid() })
	if err != nil || !slices.Contains(ports, port) {
		t.Errorf("got %v, %v, want %d", ports, err, port)
	}
	if ports, err := health.ListeningPorts(func(int) bool { return false }); err != nil || len(ports) > 0 {
		t.Errorf("got %v, %v", ports, err)
	}
}
