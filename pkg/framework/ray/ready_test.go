package ray

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// fakeServers are GCSes and raylets by their addresses.
type fakeServers map[string]fakeServer

func (f fakeServers) dial(address string) (server, error) {
	server, found := f[address]
	if !found {
		return fakeServer{health: errors.New("nobody listens on " + address)}, nil
	}
	return server, nil
}

type fakeServer struct {
	health  error
	session string
	nodes   []entry
}

func (f fakeServer) Health(context.Context) error { return f.health }
func (f fakeServer) Close() error                 { return nil }

func (f fakeServer) SessionName(context.Context) (string, error) {
	if f.session == "" {
		return "", errors.New("it has none")
	}
	return f.session, nil
}

func (f fakeServer) Nodes(_ context.Context, names ...string) ([]entry, error) {
	return slices.DeleteFunc(slices.Clone(f.nodes), func(n entry) bool { return !slices.Contains(names, n.Name) }), f.health
}

func TestRayReady(t *testing.T) {
	const gcs = "192.0.2.1:6379"
	self := member{Name: "job.0-1", Want: map[string]float64{"CPU": 4}}
	node := entry{Name: "job.0-1", Alive: true, Address: "192.0.2.2", Port: 7000, StartedMS: 5, Resources: map[string]float64{"CPU": 4}}
	with := func(change func(*entry)) entry { n := node; change(&n); return n }
	other := with(func(n *entry) { n.Name = "job.0-2" })
	dead := with(func(n *entry) { n.Alive = false })
	small := with(func(n *entry) { n.Resources = map[string]float64{"CPU": 2} })
	newer := with(func(n *entry) { n.StartedMS, n.Port = 9, 7001 })
	raylet := fakeServers{"192.0.2.2:7000": {}}
	tests := []struct {
		name   string
		gcs    fakeServer
		others fakeServers
		head   bool // whether the head is ready
		worker bool
	}{
		{"up", fakeServer{session: "session_1", nodes: []entry{node, other}}, raylet, true, true},
		{"no answer", fakeServer{health: errors.New("no answer")}, raylet, false, false},
		{"no session yet", fakeServer{nodes: []entry{node}}, raylet, false, true},
		{"another's session", fakeServer{session: "session_2", nodes: []entry{node}}, raylet, false, true},
		{"another node only", fakeServer{session: "session_1", nodes: []entry{other}}, raylet, false, false},
		{"dead", fakeServer{session: "session_1", nodes: []entry{dead}}, raylet, false, false},
		{"too small", fakeServer{session: "session_1", nodes: []entry{small}}, raylet, false, false},
		{"killed, which the GCS does not know yet", fakeServer{session: "session_1", nodes: []entry{node}}, nil, false, false},
		{"an earlier start that was killed", fakeServer{session: "session_1", nodes: []entry{newer, node}}, fakeServers{"192.0.2.2:7001": {}}, true, true},
		{"started again, and killed", fakeServer{session: "session_1", nodes: []entry{newer, node}}, raylet, false, false},
	}
	temp := withLogs(t, "session_1")
	if err := os.WriteFile(filepath.Join(temp, "session_1", "sockets", "raylet"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			servers := fakeServers{gcs: tc.gcs}
			maps.Copy(servers, tc.others)
			if err := headReady(t.Context(), servers.dial, gcs, temp, self); (err == nil) != tc.head {
				t.Errorf("the head: %v", err)
			}
			if err := workerReady(t.Context(), servers.dial, gcs, temp, self); (err == nil) != tc.worker {
				t.Errorf("the worker: %v", err)
			}
		})
	}
}

// Before Ray has made its session nobody is asked.
func TestRayReadyBeforeTheSession(t *testing.T) {
	dial := func(string) (server, error) {
		t.Error("somebody was asked")
		return nil, errors.New("no")
	}
	temp := t.TempDir()
	if err := headReady(t.Context(), dial, "192.0.2.1:1", temp, member{}); err == nil {
		t.Error("the head is ready")
	}
	if err := workerReady(t.Context(), dial, "192.0.2.1:1", temp, member{}); err == nil {
		t.Error("the worker is ready")
	}
}
