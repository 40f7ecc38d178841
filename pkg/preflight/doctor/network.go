package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Resolver resolves host names. [net.Resolver] implements it.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

// callTimeout is the time limit for connecting to the head and for resolving a name. A firewall
// that drops packets never answers.
const callTimeout = 5 * time.Second

var errCallTimeout = fmt.Errorf("no response within %s", callTimeout)

// secretName is the purpose for which the head and the nodes derive a key from the run's secret.
const secretName = "doctor"

// serveTime sends the current time to every node that connects, until ctx ends. Connections without
// the key are dropped, as on the port of a peer link.
func (d *examiner) serveTime(ctx context.Context, listener net.Listener, key []byte) {
	head := peerlink.NewHead(peerlink.Config{Key: key, Nodes: d.Identity.Size, HeartbeatInterval: time.Minute}, listener, nil)
	head.HandleStreams(peerlink.DoctorStream, func(_ context.Context, _ int, conn io.ReadWriteCloser) {
		_, _ = fmt.Fprintf(conn, "%d\n", d.Now().UnixNano()) // a few bytes, which never block
		_ = conn.Close()
	})
	head.Run(ctx)
}

// tryConnect tries to connect to the head at one address, and compares the clocks.
func (d *examiner) tryConnect(ctx context.Context, to string, key []byte, byName bool) ConnectAttempt {
	c := ConnectAttempt{To: to, ByName: byName}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errCallTimeout)
	defer cancel()
	began := time.Now()
	at, asked, err := d.requestTime(ctx, to, key)
	c.Took = time.Since(began)
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errCallTimeout):
		c.Err = errCallTimeout.Error()
	case peerlink.IsForeignPeer(err), errors.Is(err, io.EOF): // the head of another run closes the connection
		c.Err = "another service responds there"
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Err = "it accepts connections but does not respond"
	case err != nil:
		c.Err = causeText(err)
	default:
		ahead := -signal.EstimateOffset(at, asked, d.Now())
		c.ClockAhead = &ahead
	}
	return c
}

// requestTime returns the head's time, and the local time at which the request was sent.
func (d *examiner) requestTime(ctx context.Context, to string, key []byte) (at, asked time.Time, err error) {
	asked = d.Now()
	conn, err := peerlink.DialStream(ctx, peerlink.DoctorStream, key, d.Identity.NodeIndex, d.Network, []string{to})
	if err != nil {
		return at, asked, err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	said, err := bufio.NewReaderSize(conn, 256).ReadString('\n')
	if err != nil {
		return at, asked, err
	}
	nanoseconds, err := strconv.ParseInt(strings.TrimSpace(said), 10, 64)
	return time.Unix(0, nanoseconds), asked, err
}

// resolveHost resolves a host name on this node. The addresses are sorted.
func (d *examiner) resolveHost(ctx context.Context, host string) DNSResult {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errCallTimeout)
	defer cancel()
	found, err := d.Resolver.LookupHost(ctx, host)
	name := DNSResult{Host: host, Addresses: found}
	if err != nil {
		name.Err = causeText(err)
	}
	slices.Sort(name.Addresses)
	return name
}

// causeText returns the text of an error without the operation and the address, which the message
// already contains.
func causeText(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return lookup.Err
	}
	return err.Error()
}

// localAddresses returns the sorted addresses of this node's interfaces.
func localAddresses() (found []string) {
	all, _ := net.InterfaceAddrs()
	for _, addr := range all {
		if network, ok := addr.(*net.IPNet); ok {
			found = append(found, network.IP.String())
		}
	}
	slices.Sort(found)
	return found
}
