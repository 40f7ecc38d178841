package process_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
)

func TestFreePorts(t *testing.T) {
	ports, err := process.FindFreePorts(5)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range ports {
		listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil || seen[port] {
			t.Errorf("port %d of %v: %v", port, ports, err)
			continue
		}
		seen[port] = true
		_ = listener.Close()
	}
}
