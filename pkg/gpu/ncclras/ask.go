package ncclras

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

const (
	// askTimeout is the timeout of a question. RAS waits up to 10 s for processes that do not respond.
	askTimeout = 15 * time.Second
	// maxAnswer is the maximum size of an answer in bytes: about 500 for each rank of a communicator.
	maxAnswer = 256 << 20
)

// ErrNoJSON reports that a version of NCCL cannot answer as JSON.
var ErrNoJSON = errors.New("this NCCL is older than 2.28.7, which is the first version that is asked")

// Ask asks the RAS subsystem at an address about all communicators of its job, once. It refuses
// addresses that another job may have: other machines, and NCCL's default port.
func Ask(ctx context.Context, address string) (Report, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() || at.Port() == defaultPort {
		return Report{}, fmt.Errorf("cannot ask NCCL at %q: a loopback address with another port "+
			"than %d is needed", address, defaultPort)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, fmt.Errorf("it has not answered within %s", askTimeout))
	defer cancel()
	data, err := exchange(ctx, at)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return Report{}, fmt.Errorf("cannot ask NCCL at %s: %w", address, err)
	}
	return ParseReport(data)
}

// exchange speaks the protocol of RAS: a line for each request, of which the last one is answered by
// the whole document.
func exchange(ctx context.Context, at netip.AddrPort) ([]byte, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	reader := bufio.NewReader(io.LimitReader(conn, maxAnswer+1))
	steps := []struct{ request, answer string }{
		{"CLIENT PROTOCOL 2", "SERVER PROTOCOL "}, {"SET FORMAT json", "OK"},
	}
	for _, step := range steps {
		if _, err := io.WriteString(conn, step.request+"\n"); err != nil {
			return nil, err
		}
		line, err := reader.ReadSlice('\n')
		switch {
		case err != nil:
			return nil, fmt.Errorf("no answer to %s: %w", step.request, err)
		case step.answer == "OK" && strings.HasPrefix(string(line), "ERROR"):
			return nil, ErrNoJSON
		case !strings.HasPrefix(string(line), step.answer):
			return nil, fmt.Errorf("the answer to %s is %.60q: this is not NCCL", step.request, line)
		}
	}
	if _, err := io.WriteString(conn, "STATUS\n"); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(reader)
	if err == nil && len(data) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	return data, err
}
