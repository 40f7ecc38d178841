package pairs

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

// standsIn has the test's own program be ib_write_bw, as what it is set to says.
const standsIn = "PAIRS_TEST_TOOL"

func TestMain(m *testing.M) {
	if how := os.Getenv(standsIn); how != "" {
		os.Exit(tool(how, os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// tool does what ib_write_bw does as far as we see: a server waits for its client, and both tell the same in the end.
func tool(how string, args []string) int {
	after := func(flag string) string { return args[slices.Index(args, flag)+1] }
	address, isClient := "127.0.0.1:"+after("-p"), args[len(args)-2] != "-f"
	if how == "no card" {
		fmt.Fprintln(os.Stderr, " Unable to find the Infiniband/RoCE device")
		return 1
	}
	var conn net.Conn
	var err error
	if isClient {
		conn, err = net.Dial("tcp", args[len(args)-1]+":"+after("-p"))
	} else if listener, wrong := net.Listen("tcp", address); wrong == nil {
		conn, err = listener.Accept()
	} else {
		err = wrong
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !isClient {
		_, _ = io.Copy(io.Discard, conn)
	}
	_ = conn.Close()
	fmt.Print(recorded)
	return 0
}
