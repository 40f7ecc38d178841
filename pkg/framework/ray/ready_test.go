package ray

import (
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// tableOf returns the reply of a GCS with these nodes.
func tableOf(nodes ...tableEntry) (reply []byte) {
	number := func(b []byte, field protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
	}
	for _, n := range nodes {
		entry := appendBytes(appendBytes(appendBytes(nil, 2, n.Address), 8, n.Host), 12, n.Name)
		entry = number(number(entry, 5, uint64(n.Port)), 23, n.StartedMS)
		if !n.Alive {
			entry = number(entry, 7, 1)
		}
		for name, amount := range n.Resources {
			resource := protowire.AppendTag(appendBytes(nil, 1, name), 2, protowire.Fixed64Type)
			entry = appendBytes(entry, 11, protowire.AppendFixed64(resource, math.Float64bits(amount)))
		}
		reply = appendBytes(reply, 2, entry)
	}
	return reply
}

// portOf returns the port of a server, or an unused port if server is nil.
func portOf(t *testing.T, server *fakeGCS) int {
	t.Helper()
	address := "127.0.0.1:1"
	if server != nil {
		address = server.serve(t)
	}
	_, text, _ := net.SplitHostPort(address)
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestRayReady(t *testing.T) {
	well := &fakeGCS{replies: map[string][]byte{healthMethod: recorded(t, "health")}}
	up, killed := portOf(t, well), portOf(t, nil)
	alive := tableEntry{Name: "job.0-1", Address: "127.0.0.1", Port: up, Alive: true, StartedMS: 5,
		Resources: map[string]float64{"CPU": 4}}
	other, dead, small, gone, newer := alive, alive, alive, alive, alive
	other.Name = "job.0-2"
	dead.Alive = false
	small.Resources = map[string]float64{"CPU": 2}
	gone.Port = killed
	newer.StartedMS = 9
	newerGone := newer
	newerGone.Port = killed
	tests := []struct {
		name    string
		session string
		nodes   []tableEntry // nil: no answer
		head    bool         // whether the head is ready
		worker  bool
	}{
		{"up", "session_1", []tableEntry{alive, other}, true, true},
		{"no answer", "", nil, false, false},
		{"no session yet", "", []tableEntry{alive}, false, true},
		{"another's session", "session_2", []tableEntry{alive}, false, true},
		{"another node only", "session_1", []tableEntry{other}, false, false},
		{"dead", "session_1", []tableEntry{dead}, false, false},
		{"too small", "session_1", []tableEntry{small}, false, false},
		{"killed, which the GCS does not know yet", "session_1", []tableEntry{gone}, false, false},
		{"an earlier start that was killed", "session_1", []tableEntry{newer, gone}, true, true},
		{"started again, and killed", "session_1", []tableEntry{newerGone, alive}, false, false},
	}
	temp := withLogs(t, "session_1")
	if err := os.WriteFile(filepath.Join(temp, "session_1", "sockets", "raylet"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			fake := fakeGCS{replies: map[string][]byte{}}
			if tc.nodes != nil {
				fake = *well
				fake.replies = maps.Clone(well.replies)
				fake.replies[nodeInfoMethod] = tableOf(tc.nodes...)
				fake.replies[kvGetMethod] = appendBytes(nil, 2, tc.session)
			}
			at := readinessCheck{gcs: gcsServer{address: fake.serve(t)}, tempDir: temp,
				ownNode: expectedNode{Name: "job.0-1", MinResources: map[string]float64{"CPU": 4}}}
			if err := at.checkHead(t.Context()); (err == nil) != tc.head {
				t.Errorf("the head: %v", err)
			}
			if err := at.checkWorker(t.Context()); (err == nil) != tc.worker {
				t.Errorf("the worker: %v", err)
			}
		})
	}
}

// TestRayReadyBeforeTheSession verifies that no server is contacted before Ray has created its
// session.
func TestRayReadyBeforeTheSession(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := readinessCheck{gcs: gcsServer{address: listener.Addr().String()}, tempDir: t.TempDir()}
	if err := at.checkHead(t.Context()); err == nil {
		t.Error("the head is ready")
	}
	if err := at.checkWorker(t.Context()); err == nil {
		t.Error("the worker is ready")
	}
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if conn, err := listener.Accept(); err == nil {
		t.Errorf("somebody was asked from %s", conn.RemoteAddr())
	}
	_ = listener.Close()
}

func TestPace(t *testing.T) {
	for nodes, want := range map[int]time.Duration{
		0: 100 * time.Millisecond, 2: 100 * time.Millisecond, 100: 100 * time.Millisecond,
		256: 256 * time.Millisecond, 4096: 500 * time.Millisecond,
	} {
		if got := readyInterval(nodes); got != want {
			t.Errorf("of %d nodes it is %s, not %s", nodes, got, want)
		}
	}
}
