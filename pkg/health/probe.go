package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
)

var probeSchemes = []string{"tcp", "http", "https", "exec", "file"}

const probeSyntax = "tcp:PORT, tcp://HOST:PORT, http://HOST:PORT/PATH, https://…, " +
	"exec:COMMAND and file:/PATH are accepted"

// Probe tests whether a service is ready. It is parsed once, never changes, and is safe for
// concurrent use.
type Probe struct {
	text    string
	host    string                          // empty if it uses no host
	port    int                             // 0 if it uses no port
	tryOnce func(ctx context.Context) error `digest:"-"` // derived from text
	timeout time.Duration                   `digest:"-"` // timeout of one try; 0: [roles.DefaultTry]
	command *probeCommand                   `digest:"-"` // an exec probe's; otherwise nil
	secrets []string                        `digest:"-"` // that no error shows
}

// ParseProbe parses a probe:
//
//	tcp:PORT, tcp://HOST:PORT     a connection is accepted; without HOST, on any address of the node
//	http://HOST:PORT/PATH, https  a GET is answered with 2xx; redirects only within the host
//	exec:COMMAND                  exits with 0; run by /bin/sh
//	file:/PATH                    the file or directory exists; for a local file system
func ParseProbe(s string) (Probe, error) {
	scheme, rest, found := strings.Cut(s, ":")
	if !found {
		return Probe{}, fmt.Errorf("cannot read probe %q: it has no kind followed by a colon; %s", s, probeSyntax)
	}
	var p Probe
	var err error
	switch scheme {
	case "tcp":
		p, err = parseTCP(rest)
	case "http", "https":
		p, err = parseHTTP(s)
	case "grpc": // until the next release
		err = errors.New("gRPC is not a kind of probe any more; use exec:grpc_health_probe -addr=HOST:PORT")
	case "exec":
		p, err = parseExec(rest)
	case "file":
		p, err = parseFile(rest)
	default:
		hint := ""
		if near := textutil.NearestWord(strings.ToLower(scheme), probeSchemes, 3); near != "" {
			hint = fmt.Sprintf(" (is it %s?)", near)
		}
		return Probe{}, fmt.Errorf("cannot read probe %q: %q is not a kind of probe%s; %s", s, scheme,
			hint, probeSyntax)
	}
	if err != nil && scheme != "exec" && strings.Contains(rest, "$") {
		err = errors.New("only $BRINGUPD_… is replaced in probes; use $BRINGUPD_PORT")
	}
	if err != nil {
		return Probe{}, fmt.Errorf("cannot read probe %q: %v", s, err)
	}
	p.text = s
	return p, nil
}

// String returns the probe as it was written.
func (p Probe) String() string { return p.text }

// Try tests once and returns nil if the service is ready; otherwise the error has the result. It
// ends with ctx, and after at most [roles.DefaultTry], or the time of [Probe.WithTry].
func (p Probe) Try(ctx context.Context) error {
	if p.tryOnce == nil {
		return errors.New("internal error: an empty probe")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.timeout, roles.DefaultTry))
	defer cancel()
	err := p.tryOnce(ctx)
	if err != nil {
		if text := textutil.HideValues(err.Error(), p.secrets); text != err.Error() {
			return errors.New(text)
		}
	}
	return err
}

// WithTry returns the probe with a limit for each try.
func (p Probe) WithTry(limit time.Duration) Probe {
	p.timeout = limit
	return p
}

// WithEnv returns the probe with the environment of its command, if it is one, and with secrets that
// its errors do not show.
func (p Probe) WithEnv(env, secrets []string) Probe {
	p.secrets = secrets
	if p.command != nil {
		p.tryOnce = p.command.withEnv(env)
	}
	return p
}

func (p Probe) hostPort() string { return net.JoinHostPort(p.host, strconv.Itoa(p.port)) }

// LocalPort returns the port of this node that the probe uses, or false if it uses none or another
// host's.
func (p Probe) LocalPort() (int, bool) {
	if p.port == 0 {
		return 0, false
	}
	hostname, _ := os.Hostname()
	if !isThisNode(p.host, hostname, ownAddresses()) {
		return 0, false
	}
	return p.port, true
}

func ownAddresses() (own []netip.Addr) {
	addrs, _ := net.InterfaceAddrs()
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			own = append(own, prefix.Addr())
		}
	}
	return own
}

// isThisNode reports whether host is a name or an address of the node with this name and these
// addresses. The unspecified address also reaches the node itself.
func isThisNode(host, hostname string, own []netip.Addr) bool {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		short, _, _ := strings.Cut(hostname, ".")
		name := strings.TrimSuffix(host, ".")
		return host == "" || strings.EqualFold(name, "localhost") ||
			hostname != "" && (strings.EqualFold(name, hostname) || strings.EqualFold(name, short))
	}
	addr = addr.Unmap()
	if addr.IsLoopback() || addr.IsUnspecified() {
		return true
	}
	for _, mine := range own {
		if mine.Unmap() == addr.WithZone("") {
			return true
		}
	}
	return false
}

// parseTCP parses "PORT" or "//HOST:PORT".
func parseTCP(rest string) (p Probe, err error) {
	address, remote := strings.CutPrefix(rest, "//")
	if !remote {
		p.port, err = parsePort(rest)
		p.tryOnce = func(ctx context.Context) error { return tryLocalTCP(ctx, p.port) }
		return p, err
	}
	p.host, p.port, err = splitAddress(address)
	p.tryOnce = func(ctx context.Context) error { return tryTCP(ctx, p.hostPort()) }
	return p, err
}

// parseHTTP parses a URL. The default port is that of the scheme.
func parseHTTP(s string) (Probe, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Probe{}, err
	}
	if u.Hostname() == "" {
		return Probe{}, errors.New("it has no host; http://HOST:PORT/PATH was expected")
	}
	if u.User != nil {
		return Probe{}, errors.New("it contains a user name, and probes are written to logs")
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if u.Port() != "" || strings.HasSuffix(u.Host, ":") {
		if port, err = parsePort(u.Port()); err != nil {
			return Probe{}, err
		}
	}
	return Probe{host: u.Hostname(), port: port,
		tryOnce: func(ctx context.Context) error { return tryHTTP(ctx, u) }}, nil
}

func parseExec(line string) (Probe, error) {
	if strings.TrimSpace(line) == "" || strings.ContainsRune(line, 0) {
		return Probe{}, errors.New("it has no command; exec:COMMAND was expected, without NUL bytes")
	}
	if _, err := syntax.NewParser(syntax.Variant(syntax.LangPOSIX)).Parse(strings.NewReader(line), ""); err != nil {
		return Probe{}, fmt.Errorf("it is not a line of shell code: %v", err)
	}
	command := &probeCommand{line: line, once: make(singleCall, 1)}
	return Probe{tryOnce: command.withEnv(nil), command: command}, nil
}

func parseFile(rest string) (Probe, error) {
	path := strings.TrimPrefix(rest, "//")
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return Probe{}, errors.New("file:/PATH was expected, with an absolute path")
	}
	once := make(singleCall, 1)
	return Probe{tryOnce: func(ctx context.Context) error {
		return once.runBounded(ctx, 0, "the file system of "+path, func() error { return tryFile(path) })
	}}, nil
}

func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not HOST:PORT (an IPv6 address goes in brackets)", address)
	}
	if host == "" {
		return "", 0, errors.New("it has no host (tcp:PORT is this node)")
	}
	if strings.ContainsAny(host, "/ ?#@") {
		return "", 0, fmt.Errorf("%q is not a host", host)
	}
	port, err = parsePort(text)
	return host, port, err
}

func parsePort(s string) (int, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%q is not a port (1 to 65535)", s)
	}
	return int(port), nil
}
