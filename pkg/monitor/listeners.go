package monitor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const listening = "0A" // TCP_LISTEN of the kernel's include/net/tcp_states.h, in hexadecimal digits

// loopback are the addresses by which a socket gets connections to 127.0.0.1, as /proc/net/tcp and tcp6 write them on a
// little-endian machine: that, all, all of IPv6, and 127.0.0.1 mapped into IPv6.
var loopback = []string{
	"0100007F", "00000000", "00000000000000000000000000000000", "0000000000000000FFFF00000100007F",
}

// listeners returns the numbers of the users whose sockets listen on a port where connections to 127.0.0.1 arrive. A
// kernel without IPv6 has no tcp6.
func listeners(root string, port int) (users []string, err error) {
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(root, "proc/net", table))
		if table == "tcp6" && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid: proc(5), by Documentation/networking/proc_net_tcp.rst
			f := strings.Fields(line)
			if len(f) < 8 || f[3] != listening {
				continue
			}
			address, at, _ := strings.Cut(f[1], ":")
			if at == fmt.Sprintf("%04X", port) && slices.Contains(loopback, address) {
				users = append(users, f[7])
			}
		}
	}
	return users, nil
}
