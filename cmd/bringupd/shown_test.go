package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/service"
)

// TestNotifySocketIsTaken verifies that the daemon notifies the service manager, and that none of
// its children can.
func TestNotifySocketIsTaken(t *testing.T) {
	t.Setenv(service.SocketVariable, "/run/notify")
	l := &localCmd{invocation: &invocation{notifySocket: takeNotifySocket()}, opts: newOptions(), nodeCount: 2}
	if value, set := os.LookupEnv(service.SocketVariable); set {
		t.Errorf("children would have %q", value)
	}
	o := newOptions()
	o.cfg.Telemetry.MetricsDir = "metrics"
	cfg, _, _ := l.newConfig(o.daemonSettings(), o, nil) // the launch is wrong
	if got := cfg.Telemetry; got.NotifySocket != "/run/notify" || !filepath.IsAbs(got.MetricsDir) {
		t.Errorf("got %+v", got)
	}
	for node, has := range []bool{true, false} {
		spec := l.daemonCommand("bringupd", node, "")
		found := false
		for _, entry := range spec.Env {
			found = found || entry == service.SocketVariable+"=/run/notify"
		}
		if found != has {
			t.Errorf("node %d has the socket: %v", node, found)
		}
	}
}

// TestRefusalAsJSON verifies that a refusal is JSON if standard error is.
func TestRefusalAsJSON(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
	}{
		{"no launcher", []string{"--log-format=json", "--role=worker"}, 65},
		{"what makes no sense together", []string{"--log-format=json", "--head-ready=tcp:1"}, 64},
		{"the same of a local job", []string{"local", "--log-format=json", "--head-ready=tcp:1"}, 64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := call(t, nil, tc.args...)
			var line struct {
				Level, Daemon, Msg string
				Code               int
			}
			if err := json.Unmarshal([]byte(got.err), &line); err != nil || line.Level != "error" || line.Daemon != "bringupd" ||
				!strings.HasPrefix(line.Msg, "cannot ") || line.Code != tc.code || got.code != tc.code {
				t.Errorf("got %+v: %v", got, err)
			}
		})
	}
}
