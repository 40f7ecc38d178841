package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/test/users"
)

// startLive serves the page of a run that read returns, until the test ends.
func startLive(t *testing.T, read func(context.Context) (*View, error)) *LiveServer {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	s, err := ListenLive(ctx, "127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.read = read
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		over := errors.New("the test is over")
		cancel(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Errorf("the server has ended with %v", err)
		}
	})
	return s
}

// runningView returns the view of a run that goes on.
func runningView(context.Context) (*View, error) {
	now := time.Now()
	return NewView(&timeline.Run{Name: "7.0", Path: "/logs/7.0", ReadAt: now}, nil, now), nil
}

// get requests a URL, and returns the status and the body.
func get(t *testing.T, method, url string, change func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(request)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body), answer.Header
}

func TestServeLive(t *testing.T) {
	s := startLive(t, runningView)
	status, body, header := get(t, http.MethodGet, s.URL(), nil)
	for _, part := range []string{"data-reload=\"3000\"", "connect-src &#39;self&#39;", "7.0"} {
		if status != http.StatusOK || !strings.Contains(body, part) {
			t.Errorf("the page is %d, without %s: %s", status, part, body)
		}
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
	} {
		if got := header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	if strings.Contains(body, s.token) {
		t.Error("the page contains the token")
	}
	// The same page again has no body.
	tag := header.Get("ETag")
	status, body, _ = get(t, http.MethodGet, s.URL(), func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
	if status != http.StatusNotModified || body != "" {
		t.Errorf("the same page is %d, %s", status, body)
	}
}

// TestLiveRefuses verifies that all requests without the token, with another name of this machine, or with
// another method get the same answer.
func TestLiveRefuses(t *testing.T) {
	read := 0
	s := startLive(t, func(ctx context.Context) (*View, error) {
		read++
		return runningView(ctx)
	})
	root := strings.TrimSuffix(s.URL(), s.token+"/")
	var first string
	for _, tc := range []struct {
		name, method, url string
		host              string
	}{
		{"no token", http.MethodGet, root, ""},
		{"a wrong one", http.MethodGet, root + strings.Repeat("A", len(s.token)) + "/", ""},
		{"half of it", http.MethodGet, root + s.token[:10] + "/", ""},
		{"no slash", http.MethodGet, root + s.token, ""},
		{"a file", http.MethodGet, s.URL() + "result.json", ""},
		{"another directory", http.MethodGet, s.URL() + "../../etc/passwd", ""},
		{"another method", http.MethodPost, s.URL(), ""},
		{"another name", http.MethodGet, s.URL(), "attacker.example.org"},
		{"a name with this address", http.MethodGet, s.URL(), "127.0.0.1.example.org:80"},
		{"a name like this machine's", http.MethodGet, s.URL(), "localhost.example.org"},
		{"another address", http.MethodGet, s.URL(), "10.0.0.1"},
	} {
		status, body, _ := get(t, tc.method, tc.url, func(r *http.Request) {
			if tc.host != "" {
				r.Host = tc.host
			}
		})
		if first == "" {
			first = body
		}
		if status != http.StatusNotFound || body != first || strings.Contains(body, s.token) {
			t.Errorf("%s: %d, %s", tc.name, status, body)
		}
	}
	if read > 0 {
		t.Errorf("the run was read %d times", read)
	}
	for _, host := range []string{"localhost:9000", "127.0.0.1:80", "[::1]:80", "localhost"} {
		status, _, _ := get(t, http.MethodGet, s.URL(), func(r *http.Request) { r.Host = host })
		if status != http.StatusOK {
			t.Errorf("%s: %d", host, status)
		}
	}
}

// TestLiveReadsOnce verifies that many requests read the run once, and that a failure is reported.
func TestLiveReadsOnce(t *testing.T) {
	read := 0
	s := startLive(t, func(ctx context.Context) (*View, error) {
		if read++; read > 1 {
			return nil, errors.New("it has disappeared")
		}
		return runningView(ctx)
	})
	for range 5 {
		if status, _, _ := get(t, http.MethodGet, s.URL(), nil); status != http.StatusOK {
			t.Errorf("the status is %d", status)
		}
	}
	s.mu.Lock()
	s.nextRead = time.Time{}
	s.mu.Unlock()
	status, body, _ := get(t, http.MethodGet, s.URL(), nil)
	if status != http.StatusServiceUnavailable || !strings.Contains(body, "it has disappeared") || read != 2 {
		t.Errorf("a run that cannot be read is %d, %s after %d readings", status, body, read)
	}
}

func TestListenLive(t *testing.T) {
	for _, address := range []string{
		"", "0.0.0.0:0", "[::]:0", "10.0.0.1:8080", ":8080", "localhost:0", "127.0.0.1",
	} {
		if s, err := ListenLive(t.Context(), address, ""); err == nil {
			_ = s.listener.Close()
			t.Errorf("%q is accepted", address)
		}
	}
	one, err := ListenLive(t.Context(), "127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = one.listener.Close() }()
	other, err := ListenLive(t.Context(), "[::1]:0", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.listener.Close() }()
	if len(one.token) < 26 || one.token == other.token {
		t.Errorf("the tokens are %s and %s", one.token, other.token)
	}
	_, err = ListenLive(t.Context(), one.Address(), "")
	if err == nil || !strings.Contains(err.Error(), "give another port") {
		t.Errorf("a port that is taken: %v", err)
	}
}

// TestOtherUsersCannotOpenPage verifies that a connection of another user is closed before the
// request is read, even with the token.
func TestOtherUsersCannotOpenPage(t *testing.T) {
	users.Need(t)
	s := startLive(t, runningView)
	request := fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; "+
		"printf 'GET /%s/ HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3; cat <&3", s.Port(), s.token)
	for _, tc := range []struct {
		user users.User
		want bool
	}{{users.Stranger, false}, {users.User{}, true}} {
		dir := users.Stranger.Dir(t)
		command := tc.user.Command(t.Context(), dir, "bash", "-c", request)
		command.Stderr = io.Discard // the connection may be reset
		answer, _ := command.Output()
		if got := strings.Contains(string(answer), "200 OK"); got != tc.want || !tc.want && len(answer) > 0 {
			t.Errorf("user %d gets %.200q", tc.user.ID, answer)
		}
	}
}

// TestOtherUsersLeaveNothing verifies that the kernel keeps nothing of the connections of another user:
// thousands of them would delay all that reads its tables.
func TestOtherUsersLeaveNothing(t *testing.T) {
	users.Need(t)
	s := startLive(t, runningView)
	const connections = 100
	command := fmt.Sprintf("for i in {1..%d}; do exec 3<>/dev/tcp/127.0.0.1/%d && echo; done", connections, s.Port())
	opened, err := users.Stranger.Command(t.Context(), users.Stranger.Dir(t), "bash", "-c", command).Output()
	if err != nil || len(opened) != connections {
		t.Fatalf("the other user has opened %d connections: %v", len(opened), err)
	}
	if status, _, _ := get(t, http.MethodGet, s.URL(), nil); status != http.StatusOK { // those before it are handled
		t.Errorf("the status is %d", status)
	}
	table, err := os.ReadFile("/proc/self/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	// The one of this test may be left. Both ends of a connection are in this table.
	waiting := regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: .*:%04X (\S+ )?06 `, s.Port()))
	if left := len(waiting.FindAll(table, -1)); left > connections/10 {
		t.Errorf("%d of %d connections are left", left, connections)
	}
}
