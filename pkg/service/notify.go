package service

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// SocketVariable is the environment variable with the manager's socket. It is for one process, and
// not for its children.
const SocketVariable = "NOTIFY_SOCKET"

// sendTimeout is the timeout of one message. A manager has room for many, and reads them unless it
// is stopped itself.
const sendTimeout = 200 * time.Millisecond

// Ready and StateStopping are the states of a service for a manager.
const (
	StateReady    = "READY=1"
	StateStopping = "STOPPING=1"
)

// StatusLine returns a line that a manager shows beside the service.
func StatusLine(text string) string {
	return "STATUS=" + strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
}

// SendNotification sends one message to the socket: a path or, if it begins with @, a name in the
// abstract namespace.
func SendNotification(socket string, lines ...string) error {
	if !strings.HasPrefix(socket, "/") && !strings.HasPrefix(socket, "@") {
		return fmt.Errorf("cannot notify %s=%s: give a path, or a name that begins with @", SocketVariable, socket)
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("cannot notify %s=%s: %v", SocketVariable, socket, err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout)) // fails only for a closed connection
	if _, err = conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("cannot notify %s=%s: %v", SocketVariable, socket, err)
	}
	return nil
}
