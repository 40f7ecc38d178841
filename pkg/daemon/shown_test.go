package daemon

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
)

// waitsFor returns a line of shell that ends when a file exists.
func waitsFor(path string) string { return "while ! [ -e " + path + " ]; do sleep 0.02; done" }

// TestMetricsOfAJob verifies that each daemon has a metrics file for its lifetime, which shows the
// open gate, and that the head's endpoint serves the same metrics.
func TestMetricsOfAJob(t *testing.T) {
	t.Parallel()
	dir, marks := t.TempDir(), t.TempDir()
	j := newRealJob(t, 3, waitsFor(marks+"/go")).all(func(c *deps.Config) {
		c.Telemetry = config.Telemetry{MetricsDir: dir, MetricsListen: "127.0.0.1:0"}
		c.Setup = "true"
	}).start()
	file := func(nodeIndex int) string { return filepath.Join(dir, fmt.Sprintf("bringupd-17.0-%d.prom", nodeIndex)) }
	has := func(text string, lines ...string) bool {
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line) {
				return false
			}
		}
		return true
	}
	for nodeIndex := range 3 {
		common := fmt.Sprintf(`run="17.0",rank="%d"`, nodeIndex)
		lines := []string{"bringupd_up{" + common + "} 1", "bringupd_phase_seconds{" + common + `,phase="join"} `, `bringupd_share_operations_total{` + common + `,op="open"} `,
			`bringupd_share_operations_seconds_total{` + common + `,op="open"} `}
		role := "worker"
		if nodeIndex == 0 {
			role = "head"
			lines = append(lines, "bringupd_nodes{"+common+`,state="joined"} 3`, "bringupd_nodes{"+common+`,state="checked"} 3`, "bringupd_nodes{"+common+`,state="failed"} 0`)
		}
		lines = append(lines, "bringupd_info{"+common+`,version="test",role="`+role+`"} 1`)
		j.until(file(nodeIndex), func() bool {
			text, err := os.ReadFile(file(nodeIndex))
			return err == nil && has(string(text), lines...) && (nodeIndex == 0 || !strings.Contains(string(text), "bringupd_nodes"))
		})
	}
	url := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/metrics`).FindString(j.said())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: ceiling}
	response, err := client.Get(url)
	if err != nil {
		t.Fatalf("the log names %q: %v", url, err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || !has(string(text), `bringupd_up{run="17.0",rank="0"} 1`) {
		t.Errorf("the endpoint says %s: %v", text, err)
	}
	touch(t, marks+"/go")
	j.expect(0, 0, 0)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("this is left: %v", left)
	}
}

// TestMetricsThatCannotBeShown verifies that a daemon that cannot publish its metrics works
// nevertheless.
func TestMetricsThatCannotBeShown(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	marks := t.TempDir()
	j := newRealJob(t, 1, waitsFor(marks+"/go")).all(func(c *deps.Config) {
		c.Telemetry = config.Telemetry{MetricsDir: "/nonexistent", MetricsListen: taken.Addr().String(), NotifySocket: "/nonexistent/notify"}
	}).start()
	parts := []string{"cannot write the metrics: ", "cannot serve metrics: ", "cannot notify NOTIFY_SOCKET="}
	for _, part := range parts {
		j.until(part, func() bool { return strings.Contains(j.said(), part) })
	}
	touch(t, marks+"/go")
	j.expect(0)
	for _, part := range parts {
		if strings.Count(j.said(), part) != 1 {
			t.Errorf("%q is not said once", part)
		}
	}
}

// managed returns a service manager's socket that collects the messages sent to it.
func managed(t *testing.T) (socket string, heard func() []string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	var messages []string
	return socket, func() []string {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // all messages sent before are queued already
		for data := make([]byte, 4096); ; {
			n, err := conn.Read(data)
			if err != nil {
				return messages
			}
			messages = append(messages, string(data[:n]))
		}
	}
}

// TestNotifyOfAFailure verifies that a job that fails before its gate is never reported as ready.
func TestNotifyOfAFailure(t *testing.T) {
	t.Parallel()
	socket, heard := managed(t)
	j := newRealJob(t, 1, "true").all(func(c *deps.Config) { c.Setup, c.Telemetry.NotifySocket = "exit 3", socket })
	if code := j.start().wait()[0]; code == 0 {
		t.Error("it went well")
	}
	text := strings.Join(heard(), "\n")
	if strings.Contains(text, "READY=1") || strings.Count(text, "STOPPING=1") != 1 || !strings.Contains(text, "the setup command") {
		t.Errorf("it has told %q", text)
	}
}
