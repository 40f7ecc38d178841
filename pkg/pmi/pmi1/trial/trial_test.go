package trial

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alone is Peers of a job on one node.
type alone struct{ spawned chan pmi.Spawn }

func (alone) Gather(_ context.Context, _ pmi.Meet, _ []pmi.Proc, data []byte) ([]byte, error) {
	return data, nil
}
func (alone) Publish(context.Context, []pmi.Entry) error { return pmi.NotSupported }
func (alone) Lookup(context.Context, []string, bool) ([]pmi.Entry, error) {
	return nil, pmi.NotSupported
}
func (alone) Unpublish(context.Context, pmi.Proc, []string) error { return pmi.NotSupported }
func (a alone) Spawn(_ context.Context, s pmi.Spawn) (string, error) {
	a.spawned <- s
	return "job.1", nil
}

// tried runs a trial in each of two ranks, and returns what they print and how they fail.
func tried(t *testing.T, t0 Trial, peers alone) (said []string, kinds []health.Kind, errs []error, aborts []int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	job := &pmi.Job{Name: "job", Hosts: []string{"host"}, Nodes: []int{0, 0}, Universe: 4}
	var mu sync.Mutex
	space := pmi1.New(pmi1.Config{Job: job, Peers: peers, Log: zap.NewNop(), Abort: func(rank, code int, _ string) {
		mu.Lock()
		defer mu.Unlock()
		aborts = append(aborts, rank, code)
		cancel()
	}})
	said, kinds, errs = make([]string, 2), make([]health.Kind, 2), make([]error, 2)
	var all sync.WaitGroup
	for rank := range job.Nodes {
		ours, theirs, err := pmi1.Pair()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(theirs.Fd())) // which the trial closes
		if err != nil {
			t.Fatal(err)
		}
		_ = theirs.Close()
		all.Go(func() { space.Serve(ctx, rank, ours) })
		all.Go(func() {
			environ := pmi1.Environ(job, rank, fd)
			try := t0
			try.Getenv = func(name string) string { return environ[name] }
			var out strings.Builder
			kinds[rank], errs[rank] = try.Run(ctx, &out)
			said[rank] = out.String()
		})
	}
	all.Wait()
	return said, kinds, errs, aborts
}

func TestTrial(t *testing.T) {
	for _, tc := range []struct {
		name  string
		trial Trial
		says  []string
		not   []string
	}{
		{"what is asked for by default", Trial{}, []string{"universe 4, mapping (vector,(0,1,2)), name job", "put ", "1 gets ", "5 fences "}, []string{"spawn"}},
		{"a put", Trial{Put: true}, []string{"put "}, []string{"5 fences"}},
		{"fences", Trial{Fence: true}, []string{"5 fences"}, []string{"put "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.trial.Timeout = time.Minute
			said, kinds, errs, _ := tried(t, tc.trial, alone{})
			for rank, line := range said {
				if kinds[rank] != "" || errs[rank] != nil || !strings.HasPrefix(line, "rank "+strconv.Itoa(rank)+" of 2: ") {
					t.Errorf("rank %d: %q, %v, %q", rank, kinds[rank], errs[rank], line)
				}
				for _, part := range tc.says {
					if !strings.Contains(line, part) {
						t.Errorf("it does not say %q: %s", part, line)
					}
				}
				for _, part := range tc.not {
					if strings.Contains(line, part) {
						t.Errorf("it says %q: %s", part, line)
					}
				}
			}
		})
	}
}

func TestSpawn(t *testing.T) {
	peers := alone{make(chan pmi.Spawn, 2)}
	said, _, errs, _ := tried(t, Trial{Spawn: true, Timeout: time.Minute, Program: "/bringupd"}, peers)
	if errors.Join(errs...) != nil || !strings.Contains(said[0], "spawn ") || strings.Contains(said[1], "spawn ") || len(peers.spawned) != 1 {
		t.Fatalf("%q, %v, %d spawns", said, errs, len(peers.spawned))
	}
	if s := <-peers.spawned; !slices.Equal(s.Commands[0].Argv, []string{"/bringupd", "pmi", "test", "--fence"}) || s.Preput[preput] != "port" {
		t.Errorf("%+v", s)
	}
}

func TestAbort(t *testing.T) {
	_, kinds, errs, aborts := tried(t, Trial{Fence: true, Abort: true, Timeout: time.Minute}, alone{})
	if !slices.Equal(aborts, []int{1, AbortCode}) || errs[0] == nil || kinds[1] != health.PeerLost {
		t.Errorf("%v, %v, %v", aborts, kinds, errs)
	}
}

func TestNoServer(t *testing.T) {
	nothing := func(string) string { return "" }
	if kind, err := (Trial{Getenv: nothing, Timeout: time.Minute}).Run(t.Context(), os.Stdout); kind != health.Usage || !strings.Contains(err.Error(), "bringupd pmi test") {
		t.Errorf("%v, %v", kind, err)
	}
}

// TestSilence meets a server that accepts, and then says nothing.
func TestSilence(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	environ := map[string]string{"PMI_PORT": listener.Addr().String(), "PMI_ID": "0"}
	began := time.Now()
	kind, err := Trial{Getenv: func(name string) string { return environ[name] }, Timeout: 100 * time.Millisecond}.Run(t.Context(), os.Stdout)
	if kind != health.Deadline || err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("%v, %v", kind, err)
	}
}
