package dask

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tinylib/msgp/msgp"

	"github.com/bringupd/bringupd/pkg/framework"
)

// recorded returns a recorded answer of the scheduler of distributed 2026.8.0: "greeting", or the
// name of an operation. It had two nodes with two workers each, with one thread and one GPU per
// worker, and does not know the operation "none".
func recorded(t testing.TB, what string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "dask-2026.8.0-"+what+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// scheduler answers like the recorded one, with TLS if guarded, and returns its address and the
// directory of the certificate.
func scheduler(t *testing.T, guarded bool, answers map[string][]byte) (address, dir string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	address, dir = "tcp://"+listener.Addr().String(), t.TempDir()
	if guarded {
		text, err := makeCertificate([]byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, certificateFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := clientTLSConfig(text)
		if err != nil {
			t.Fatal(err)
		}
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, config.RootCAs
		listener, address = tls.NewListener(listener, config), "tls://"+listener.Addr().String()
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = conn.Write(recorded(t, "greeting"))
				if greeting := heard(t, conn); greeting["pickle-protocol"] != int64(5) ||
					greeting["compression"] != nil {
					t.Errorf("it is greeted by %v", greeting)
				}
				op, _ := heard(t, conn)["op"].(string)
				_, _ = conn.Write(answers[op])
			}()
		}
	}()
	return address, dir
}

// heard returns a message that a scheduler receives.
func heard(t *testing.T, conn net.Conn) map[string]any {
	message, err := receiveMessage(conn)
	said := map[string]any{}
	if err == nil {
		said, _, err = msgp.ReadMapStrIntfBytes(message, said)
	}
	if err != nil {
		t.Errorf("it is told nothing: %v", err)
	}
	return said
}

func TestDaskReadyAndFleet(t *testing.T) {
	well := map[string][]byte{"identity": recorded(t, "identity"), "ncores": recorded(t, "ncores")}
	nobody := frameMessage([]byte("\x80"))
	members := []framework.Member{{NodeIndex: 0, Host: "n0"}, {NodeIndex: 1, Host: "n1"}}
	for _, tc := range []struct {
		name    string
		answers map[string][]byte
		dask    Cluster
		node    func(*framework.Node)
		members []framework.Member
		// Expected parts of the errors; empty: no error.
		head, worker, fleet string
	}{
		{name: "all are counted", answers: well},
		{name: "without TLS", answers: well, dask: Cluster{Auth: framework.AuthOff}},
		{name: "a thread too few", answers: well, node: func(n *framework.Node) { n.CPUs = 4 },
			worker: "the worker job.0-1-0 has nthreads 1, expected 2"},
		{name: "a GPU too few", answers: well, node: func(n *framework.Node) { n.GPUs = 4 },
			worker: "the worker job.0-1-0 has GPU 1, expected 2"},
		{
			name: "another run's", answers: well, node: func(n *framework.Node) { n.RunName = "job.1" },
			worker: "the worker job.1-1-0 is not in the scheduler's list of workers",
			fleet:  "job.0-0-0 (tls://127.0.0.1:",
		},
		{name: "one is missing", answers: well,
			members: append(members[:2:2], framework.Member{NodeIndex: 2, Host: "n2"}),
			fleet:   "node 2 (n2): its worker job.0-2-0 is not in the scheduler's list"},
		{name: "one is too many", answers: well, members: members[:1], fleet: "is not a worker of this job"},
		{name: "nobody works on a dedicated head", answers: well,
			dask: Cluster{DedicatedHead: true}, fleet: "job.0-0-0 (tls://"},
		{
			name: "nobody yet", answers: map[string][]byte{
				"identity": frameMessage([]byte("\x82\xa4type\xa9Scheduler\xa7workers\x80")), "ncores": nobody},
			worker: "does not list a worker of 127.0.0.1 yet", fleet: "node 0 (n0): its worker job.0-0-0",
		},
		{
			name: "no scheduler", answers: map[string][]byte{"identity": recorded(t, "none"),
				"ncores": recorded(t, "none")},
			head: "cannot parse", worker: "cannot parse", fleet: "cannot parse",
		},
		{name: "no answer", answers: map[string][]byte{"identity": {1}, "ncores": {}},
			head: "cannot query", worker: "cannot query", fleet: "cannot query"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			address, dir := scheduler(t, tc.dask.usesTLS(), tc.answers)
			dask := tc.dask
			dask.WorkerArgs = []string{"--nworkers=2"}
			node := func(rank int) framework.Node {
				n := testNode(rank)
				n.CPUs, n.GPUs = 2, 2
				n.Environ = append(n.Environ, authorityVariable+"="+filepath.Join(dir, certificateFile))
				if tc.node != nil {
					tc.node(&n)
				}
				return n
			}
			endpoint := framework.Endpoint{Address: address}
			worker, err := dask.WorkerService(node(1), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			_, err = fetchWorkers(ctx, address, node(0))
			says(t, "the head", err, tc.head)
			says(t, "the worker", worker.CheckReady(ctx), tc.worker)
			if tc.members == nil {
				tc.members = members
			}
			says(t, "the fleet", dask.CheckMembers(ctx, node(0), endpoint, tc.members), tc.fleet)
		})
	}
}

func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v; wanted %q", what, err, want)
	}
}

func TestDaskReceive(t *testing.T) {
	for _, tc := range []struct {
		name    string
		message string
	}{
		{"nothing", ""},
		{"cut short", string(recorded(t, "identity")[:1000])},
		{"too long", "\xff\xff\xff\xff\xff\xff\xff\x7f"},
		{"no frames", "\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"},
		{"more frames than there are", "\x08\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if value, err := receiveMessage(strings.NewReader(tc.message)); err == nil {
				t.Errorf("it is read as %v", value)
			}
		})
	}
}

// TestDaskWorkersOf decodes answers of a scheduler. The bytes are those of Python's msgpack 1.2.4,
// if it can write them.
func TestDaskWorkersOf(t *testing.T) {
	const scheduler = "\x82\xa4type\xa9Scheduler\xa7workers"
	none := map[string]float64{}
	for _, tc := range []struct {
		name, answer string
		want         []workerInfo // nil: refused
	}{
		{"none", scheduler + "\x80", []workerInfo{}},
		{"whole", scheduler + "\x81\xa1a\x84\xa4name\xa1b\xa6status\xa7running\xa8nthreads\xcd\x01\x00" +
			"\xa9resources\x81\xa3GPU\xcb@\x00\x00\x00\x00\x00\x00\x00",
			[]workerInfo{{Name: "b", Address: "a", Status: "running", Threads: 256,
				Resources: map[string]float64{"GPU": 2}}}},
		{"a number for a name", scheduler + "\x81\xa1a\x81\xa4name\x07",
			[]workerInfo{{Name: "7", Address: "a", Resources: none}}},
		{"a key that is no text", scheduler + "\x81\xa1a\x82\x92\x01\x02\xa1b\xa4name\xa1b",
			[]workerInfo{{Name: "b", Address: "a", Resources: none}}},
		{"nonsense for a name", scheduler + "\x81\xa1a\x81\xa4name\x91\x01",
			[]workerInfo{{Name: "<nil>", Address: "a", Resources: none}}},
		{"nothing", "", nil},
		{"no MessagePack", "\xc1", nil},
		{"a text", "\xa1a", nil},
		{"no workers", "\x81\xa4type\xa9Scheduler", nil},
		{"a worker's", "\x82\xa4type\xa6Worker\xa7workers\x80", nil},
		{"workers that are none", scheduler + "\x01", nil},
		{"a worker that is none", scheduler + "\x81\xa1a\x01", nil},
		{"cut short", scheduler + "\x81\xa1a\x81\xa4name", nil},
		{"more than there are", scheduler + "\xdf\xff\xff\xff\xff\xa1a\x80", nil},
		{"too deep", "\x81\xa1a" + strings.Repeat("\x91", 1<<20), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseWorkers([]byte(tc.answer))
			if (err != nil) != (tc.want == nil) {
				t.Fatalf("got %v: %v", got, err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzDaskReplies parses any answer of a scheduler.
func FuzzDaskReplies(f *testing.F) {
	for _, what := range []string{"greeting", "identity", "ncores", "none"} {
		f.Add(recorded(f, what))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		value, err := receiveMessage(bytes.NewReader(message))
		if err != nil {
			return
		}
		workers, err := parseWorkers(value)
		if err != nil {
			return
		}
		if err := compareMembers("job.0", []framework.Member{{NodeIndex: 0, Host: "n0"}}, 1,
			workers); err == nil && len(workers) != 1 {
			t.Errorf("%+v are taken for one worker", workers)
		}
	})
}
