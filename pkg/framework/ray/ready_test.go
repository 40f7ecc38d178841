package ray

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// tableOf returns the reply of a GCS with these nodes.
func tableOf(t *testing.T, nodes ...*GcsNodeInfo) []byte {
	t.Helper()
	return marshalled(t, &GetAllNodeInfoReply{NodeInfoList: nodes})
}

func marshalled(t *testing.T, message proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// portOf returns the port of a server, or an unused port if server is nil.
func portOf(t *testing.T, server *fakeGCS) int32 {
	t.Helper()
	address := "127.0.0.1:1"
	if server != nil {
		address = server.serve(t)
	}
	_, text, _ := net.SplitHostPort(address)
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

func TestRayReady(t *testing.T) {
	well := &fakeGCS{replies: map[string][]byte{grpc_health_v1.Health_Check_FullMethodName: recorded(t, "health")}}
	up, killed := portOf(t, well), portOf(t, nil)
	node := func(change func(*GcsNodeInfo)) *GcsNodeInfo {
		n := &GcsNodeInfo{
			NodeName: "job.0-1", NodeManagerAddress: "127.0.0.1", NodeManagerPort: up, StartTimeMs: 5, ResourcesTotal: map[string]float64{"CPU": 4},
		}
		change(n)
		return n
	}
	alive := node(func(*GcsNodeInfo) {})
	other := node(func(n *GcsNodeInfo) { n.NodeName = "job.0-2" })
	dead := node(func(n *GcsNodeInfo) { n.State = GcsNodeInfo_DEAD })
	small := node(func(n *GcsNodeInfo) { n.ResourcesTotal = map[string]float64{"CPU": 2} })
	gone := node(func(n *GcsNodeInfo) { n.NodeManagerPort = killed })
	newer := node(func(n *GcsNodeInfo) { n.StartTimeMs = 9 })
	newerGone := node(func(n *GcsNodeInfo) { n.StartTimeMs, n.NodeManagerPort = 9, killed })
	tests := []struct {
		name    string
		session string
		nodes   []*GcsNodeInfo // nil: no answer
		head    bool           // whether the head is ready
		worker  bool
	}{
		{"up", "session_1", []*GcsNodeInfo{alive, other}, true, true},
		{"no answer", "", nil, false, false},
		{"no session yet", "", []*GcsNodeInfo{alive}, false, true},
		{"another's session", "session_2", []*GcsNodeInfo{alive}, false, true},
		{"another node only", "session_1", []*GcsNodeInfo{other}, false, false},
		{"dead", "session_1", []*GcsNodeInfo{dead}, false, false},
		{"too small", "session_1", []*GcsNodeInfo{small}, false, false},
		{"killed, which the GCS does not know yet", "session_1", []*GcsNodeInfo{gone}, false, false},
		{"an earlier start that was killed", "session_1", []*GcsNodeInfo{newer, gone}, true, true},
		{"started again, and killed", "session_1", []*GcsNodeInfo{newerGone, alive}, false, false},
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
				fake.replies[nodeInfoMethod] = tableOf(t, tc.nodes...)
				fake.replies[kvGetMethod] = marshalled(t, &InternalKVGetReply{Value: []byte(tc.session)})
			}
			at := readinessCheck{gcsAddress: fake.serve(t), tempDir: temp, ownNode: expectedNode{Name: "job.0-1", MinResources: map[string]float64{"CPU": 4}}}
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
	at := readinessCheck{gcsAddress: listener.Addr().String(), tempDir: t.TempDir()}
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
		0: 100 * time.Millisecond, 2: 100 * time.Millisecond, 100: 100 * time.Millisecond, 256: 256 * time.Millisecond, 4096: 500 * time.Millisecond,
	} {
		if got := readyInterval(nodes); got != want {
			t.Errorf("of %d nodes it is %s, not %s", nodes, got, want)
		}
	}
}
