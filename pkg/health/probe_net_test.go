package health

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// soon bounds an attempt that is expected to get no answer.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// mustSee fails the test unless err contains says; an empty says means that err must be nil.
func mustSee(t *testing.T, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Errorf("not ready: %v", err)
	case says != "" && err == nil:
		t.Errorf("ready, where %q was to be seen", says)
	case says != "" && !strings.Contains(err.Error(), says):
		t.Errorf("%q is missing in: %v", says, err)
	}
}

func TestTryTCP(t *testing.T) {
	noLeaks(t)
	four, six := listen(t, "127.0.0.1:0"), listen(t, "[::1]:0")
	elsewhere := listen(t, "127.0.0.77:0")
	free := unusedPort(t)
	for _, tc := range []struct{ name, probe, says string }{
		{"IPv4", "tcp://" + four.Addr().String(), ""},
		{"IPv6", "tcp://" + six.Addr().String(), ""},
		{"this node by IPv4", fmt.Sprintf("tcp:%d", portOf(four)), ""},
		{"this node by IPv6", fmt.Sprintf("tcp:%d", portOf(six)), ""},
		{"this node by another of its addresses", fmt.Sprintf("tcp:%d", portOf(elsewhere)), ""},
		{"by name", fmt.Sprintf("tcp://localhost:%d", portOf(four)), ""},
		{"nobody", fmt.Sprintf("tcp://127.0.0.1:%d", free), fmt.Sprintf("connection refused by 127.0.0.1:%d", free)},
		{"nobody on this node", fmt.Sprintf("tcp:%d", free), fmt.Sprintf("connection refused by 127.0.0.1:%d", free)},
		{"no such host", "tcp://no-such-host.invalid:80", "cannot find the address of no-such-host.invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustSee(t, parse(t, tc.probe).Try(t.Context()), tc.says)
		})
	}
}

func TestTryCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, scheme := range []string{"tcp", "http"} {
		mustSee(t, parse(t, scheme+"://"+listen(t, "127.0.0.1:0").Addr().String()).Try(ctx), "no response from ")
	}
}

func TestTryHTTP(t *testing.T) {
	noLeaks(t)
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/busy", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "still\x1b[31m loading\n%s", strings.Repeat("x", 1000))
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/bare", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotFound) })
	mux.Handle("/moved", http.RedirectHandler("/ready", http.StatusFound))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusFound))
	mux.Handle("/away", http.RedirectHandler(other.URL+"/"+strings.Repeat("x", 1000), http.StatusFound))
	for hops := range maxRedirects {
		mux.Handle(fmt.Sprintf("/hops/%d", hops+1),
			http.RedirectHandler(fmt.Sprintf("/hops/%d", hops), http.StatusFound))
	}
	mux.HandleFunc("/hops/0", func(w http.ResponseWriter, r *http.Request) {})
	server := httptest.NewServer(mux)
	defer server.Close()
	secure := httptest.NewUnstartedServer(mux)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	for _, tc := range []struct{ name, url, says string }{
		{"2xx", server.URL + "/ready", ""},
		{"an answer without end", server.URL + "/endless", ""},
		{"moved on the same host", server.URL + "/moved", ""},
		{"moved as often as is allowed", fmt.Sprintf("%s/hops/%d", server.URL, maxRedirects), ""},
		{"moved to another host", server.URL + "/away", "HTTP 302 from " + server.URL +
			"/away, redirecting to " + other.URL},
		{"moved in a circle", server.URL + "/round", "HTTP 302 from"},
		{"not yet", server.URL + "/busy", "HTTP 503 from " + server.URL + "/busy: still [31m loading xxx"},
		{"no body", server.URL + "/bare", "HTTP 404 from " + server.URL + "/bare"},
		{"unknown certificate", secure.URL + "/ready", "cannot connect to " + secure.URL +
			"/ready: tls: failed to verify certificate"},
		{"nobody", fmt.Sprintf("http://127.0.0.1:%d/", unusedPort(t)), "connection refused by http://127.0.0.1:"},
		{"no such host", "http://no-such-host.invalid/", "cannot find the address of no-such-host.invalid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tryAnswered(t, tc.url)
			mustSee(t, err, tc.says)
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// tryAnswered tries a probe of a server that answers. An attempt has two seconds, which a busy
// machine may need for a handshake, so an attempt without a response is repeated, as in a wait for
// readiness.
func tryAnswered(t *testing.T, probe string) (err error) {
	t.Helper()
	for range 10 {
		if err = parse(t, probe).Try(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "no response from ") {
			return err
		}
	}
	return err
}

// TestTryHTTPAsksNoProxy verifies that a proxy set in the environment does not answer for a
// service. The environment is read once per process, so the test uses a separate process.
func TestTryHTTPAsksNoProxy(t *testing.T) {
	if os.Getenv("http_proxy") == "http://127.0.0.1:1" {
		mustSee(t, parse(t, "http://no-such-host.invalid/").Try(t.Context()),
			"cannot find the address of no-such-host.invalid")
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestTryHTTPAsksNoProxy$")
	cmd.Env = append(os.Environ(), "http_proxy=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1",
		"NO_PROXY=", "no_proxy=",
		"GORACE=atexit_sleep_ms=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

func TestTrySilent(t *testing.T) {
	noLeaks(t)
	l := listen(t, "127.0.0.1:0")
	address := l.Addr().String()
	for _, tc := range []struct{ probe, says string }{
		{"tcp://" + address, ""},
		{"http://" + address + "/", "no response from http://" + address + "/"},
		{"https://" + address + "/", "no response from https://" + address + "/"},
	} {
		t.Run(tc.probe, func(t *testing.T) {
			mustSee(t, parse(t, tc.probe).Try(soon(t)), tc.says)
		})
	}
}

// TestTryHangingUp probes servers that read what they are asked and end each connection, or reset it.
func TestTryHangingUp(t *testing.T) {
	for _, tc := range []struct {
		name   string
		linger int // seconds; 0: the connection is reset
		says   string
	}{
		{"closed", -1, "connection closed by http://%s/ without a response"},
		{"reset", 0, "connection reset by http://%s/"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			noLeaks(t)
			l := listen(t, "127.0.0.1:0")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for {
					conn, err := l.AcceptTCP()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 1<<12))
					_ = conn.SetLinger(tc.linger)
					_ = conn.Close()
				}
			}()
			address := l.Addr().String()
			mustSee(t, tryAnswered(t, "http://"+address+"/"), fmt.Sprintf(tc.says, address))
			_ = l.Close()
			<-ended
		})
	}
}

func TestTryIsBounded(t *testing.T) {
	l := listen(t, "127.0.0.1:0")
	start := time.Now()
	probe := parse(t, "http://"+l.Addr().String()+"/").WithTry(time.Second)
	mustSee(t, probe.Try(t.Context()), "no response")
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("a look took %v", took)
	}
}
