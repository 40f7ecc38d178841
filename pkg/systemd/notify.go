// Package systemd tells a service manager how a service is, as sd_notify(3)
// does. It knows nothing of what the service is.
package systemd

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// Variable is the environment variable that names the manager's socket. It is
// meant for one process, and not for its children.
const Variable = "NOTIFY_SOCKET"

// patience bounds one message. A manager has room for many, and takes them
// when it is not stopped itself.
const patience = 200 * time.Millisecond

// Ready and Stopping are what a manager knows of a service's life.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Status is a line that a manager shows beside the service.
func Status(text string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
}

// Notify sends what is to be told as one message to the socket: a path, or,
// where it begins with @, a name in the abstract namespace.
func Notify(socket string, lines ...string) error {
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return fmt.Errorf("cannot notify %s=%s: give a path, or a name that begins with @", Variable, socket)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("cannot notify %s=%s: %v", Variable, socket, err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(patience)) // it fails only for a closed one
	if _, err = conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("cannot notify %s=%s: %v", Variable, socket, err)
	}
	return nil
}
