package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
)

const (
	maxExcerptBytes = 200 // maximum part of a response or of a command's output in an error
	maxHeaderBytes  = 1 << 16
	maxRedirects    = 5
	probeUserAgent  = "bringupd"
)

func tryTCP(ctx context.Context, address string) error {
	conn, err := DialTrusted(ctx, "tcp", address)
	if err != nil {
		return describeProbeError(err, address)
	}
	return conn.Close()
}

// tryLocalTCP tries the loopback addresses first, then all addresses of this node with a listener,
// because a service may be bound to a single address. The error is that of the first.
func tryLocalTCP(ctx context.Context, port int) error {
	addrs := []string{"127.0.0.1", "::1"}
	listeners, _ := findListenerSockets("/proc", port)
	for _, l := range listeners {
		addrs = append(addrs, l.Address)
	}
	var first error
	for _, addr := range addrs {
		err := tryTCP(ctx, net.JoinHostPort(addr, strconv.Itoa(port)))
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// tryHTTP succeeds at 2xx. It reads only an excerpt of the body.
func tryHTTP(ctx context.Context, u *url.URL) error {
	// No proxy is used, because it would answer for the service. No connection is kept, so that each
	// try makes a new one.
	transport := &http.Transport{DialContext: DialTrusted, DisableKeepAlives: true,
		MaxResponseHeaderBytes: maxHeaderBytes}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: allowSameHostRedirect}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("cannot connect to %s: %v", u, err)
	}
	request.Header.Set("User-Agent", probeUserAgent)
	response, err := client.Do(request)
	if err != nil {
		return describeProbeError(err, u.String())
	}
	defer response.Body.Close()
	if response.StatusCode/100 == 2 {
		return nil
	}
	seen := fmt.Sprintf("HTTP %d from %s", response.StatusCode, response.Request.URL)
	if location := response.Header.Get("Location"); location != "" {
		return fmt.Errorf("%s, redirecting to %s", seen, printableExcerpt([]byte(location)))
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxExcerptBytes))
	if text := printableExcerpt(body); text != "" {
		seen += ": " + text
	}
	return errors.New(seen)
}

// allowSameHostRedirect allows a service to redirect the probe to another of its own pages only.
func allowSameHostRedirect(next *http.Request, via []*http.Request) error {
	if next.URL.Host != via[0].URL.Host || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// refusedError reports that no process listens at an address.
type refusedError struct{ asked string }

func (e *refusedError) Error() string { return "connection refused by " + e.asked }

// Unwrap returns ECONNREFUSED.
func (e *refusedError) Unwrap() error { return syscall.ECONNREFUSED }

func describeProbeError(err error, asked string) error {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return fmt.Errorf("cannot find the address of %s (asked for %s): %s", dns.Name, asked, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return &refusedError{asked}
	case errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("connection reset by %s", asked)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("connection closed by %s without a response", asked)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no response from %s", asked)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("cannot connect to %s: %v", asked, err)
}

func printableExcerpt(text []byte) string {
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return ' '
		}
		return r
	}, string(text))
	line := strings.Join(strings.Fields(printable), " ")
	if len(line) > maxExcerptBytes {
		line = strings.ToValidUTF8(line[:maxExcerptBytes], "") + "…"
	}
	return line
}
