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

	"github.com/bringupd/bringupd/pkg/framework"
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

func TestRayFleet(t *testing.T) {
	node := func(rank int, host string) expectedNode {
		return expectedNode{TeamIndex: rank, Host: host, Name: framework.NodeName("job.0", rank),
			MinResources: map[string]float64{"GPU": 8}}
	}
	alive := func(name string, gpus float64) tableEntry {
		return tableEntry{Name: name, Alive: true, Host: "h", Address: "192.0.2.9",
			Resources: map[string]float64{"GPU": gpus}}
	}
	members := []expectedNode{node(0, "n0"), node(1, "n1"), node(2, "n2")}
	full := []tableEntry{alive("job.0-0", 8), alive("job.0-1", 8), alive("job.0-2", 8)}
	many := make([]expectedNode, 20)
	for rank := range many {
		many[rank] = node(rank, "n")
	}
	tests := []struct {
		name    string
		members []expectedNode
		nodes   []tableEntry
		want    string
	}{
		{"all there", members, full, ""},
		{"more than wanted", members, []tableEntry{alive("job.0-0", 8), alive("job.0-1", 9), alive("job.0-2", 8)}, ""},
		{"nobody yet", members[:1], nil, "node 0 (n0) is not in Ray's node table"},
		{"one missing", members, full[:2], "node 2 (n2) is not in Ray's node table"},
		{
			"one dead", members, []tableEntry{full[0], {Name: "job.0-1", DeathReason: "preempted"}, full[2]},
			"node 1 (n1) is DEAD in Ray's node table: preempted",
		},
		{
			"one dead without a reason", members, []tableEntry{full[0], {Name: "job.0-1"}, full[2]},
			"node 1 (n1) is DEAD in Ray's node table: no reason given",
		},
		{"one dead and back", members, append([]tableEntry{{Name: "job.0-1"}}, full...), ""},
		{
			"one there twice", members, append([]tableEntry{alive("job.0-1", 8)}, full...),
			"node 1 (n1) is 2 times in Ray's node table: Ray has not yet detected the death of an earlier start",
		},
		{"a GPU short", members, []tableEntry{full[0], full[1], alive("job.0-2", 7)},
			"node 2 (n2) has GPU 7, expected 8"},
		{
			"no GPU at all", members[:1], []tableEntry{{Name: "job.0-0", Alive: true}},
			"node 0 (n0) has GPU 0, expected 8",
		},
		{"a stranger", members, append([]tableEntry{alive("other", 8)}, full...),
			"other (h, 192.0.2.9) is not a node of this job"},
		{"a stranger without a name", members, append([]tableEntry{alive("", 8)}, full...),
			"an unnamed node (h, 192.0.2.9) is not a node of this job"},
		{"a dead stranger", members, append([]tableEntry{{Name: "other"}}, full...), ""},
		{
			"several at once", members, []tableEntry{full[1], {Name: "job.0-2", DeathReason: "lost"}},
			"node 0 (n0) is not in Ray's node table; node 2 (n2) is DEAD in Ray's node table: lost",
		},
		{
			"too many to name", many[:10], nil,
			"node 0 (n) is not in Ray's node table; node 1 (n) is not in Ray's node table; node " +
				"2 (n) is not in Ray's node table; " +
				"node 3 (n) is not in Ray's node table; node 4 (n) is not in Ray's node table; " +
				"node 5 (n) is not in Ray's node table; " +
				"node 6 (n) is not in Ray's node table; node 7 (n) is not in Ray's node table; and 2 more",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if err := compareMembers(tc.members, tc.nodes); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
