package doctor

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Resolver asks what a host's name means.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
}

const (
	// callTime is for how long a node tries to reach the head, or to resolve a
	// name: a firewall that drops what comes answers never.
	callTime = 5 * time.Second
	// greetTime bounds what one connection may take at the head.
	greetTime = 2 * time.Second
)

var errCall = fmt.Errorf("no answer within %s", callTime)

// greeting is what only the head of this attempt says to who connects, with its own time behind it.
func greeting(nonce string) string {
	mac := hmac.New(sha256.New, []byte(nonce))
	mac.Write([]byte("bringupd doctor"))
	return hex.EncodeToString(mac.Sum(nil))
}

// greet tells everybody who connects who we are and what time it is, until the listener is closed.
func greet(listener net.Listener, nonce string, now func() time.Time) {
	var greetings sync.WaitGroup
	defer greetings.Wait()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one connection
		}
		greetings.Go(func() {
			_ = conn.SetDeadline(time.Now().Add(greetTime))
			_, _ = fmt.Fprintf(conn, "%s %d\n", greeting(nonce), now().UnixNano())
			_ = conn.Close()
		})
	}
}

// call connects to where the head should be.
func (d *doctor) call(ctx context.Context, to, nonce string, byName bool) Call {
	c := Call{To: to, ByName: byName}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, errCall)
	defer cancel()
	began, asked := time.Now(), d.Now()
	said, err := d.answer(ctx, to)
	c.Took = time.Since(began)
	who, when, _ := strings.Cut(strings.TrimSpace(said), " ")
	told, notTold := strconv.ParseInt(when, 10, 64)
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errCall):
		c.Err = errCall.Error()
	case err != nil:
		c.Err = reason(err)
	case who != greeting(nonce) || notTold != nil:
		c.Err = "somebody else answers there"
	default:
		ahead := -signal.OffsetOf(time.Unix(0, told), asked, d.Now())
		c.Ahead = &ahead
	}
	return c
}

func (d *doctor) answer(ctx context.Context, to string) (string, error) {
	conn, err := d.Network.Dial(ctx, to)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	return bufio.NewReaderSize(conn, 256).ReadString('\n')
}

// resolve asks what a name means on this node.
func (d *doctor) resolve(ctx context.Context, host string) Name {
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, errCall)
	defer cancel()
	found, err := d.Resolver.LookupHost(ctx, host)
	name := Name{Host: host, Addresses: found}
	if err != nil {
		name.Err = reason(err)
	}
	slices.Sort(name.Addresses)
	return name
}

// reason is the text of an error without the operation and the address, which the sentence around it has already.
func reason(err error) string {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return lookup.Err
	}
	return err.Error()
}

// locals are the addresses of this node.
func locals() (found []string) {
	all, _ := net.InterfaceAddrs()
	for _, addr := range all {
		if network, ok := addr.(*net.IPNet); ok {
			found = append(found, network.IP.String())
		}
	}
	slices.Sort(found)
	return found
}
