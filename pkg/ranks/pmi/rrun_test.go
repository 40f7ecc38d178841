package pmi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestCommunicator does what create_ucxx_comm of rapidsmpf does, twice: rank 0 publishes an address
// that the other ranks read after a synchronisation.
func TestCommunicator(t *testing.T) {
	m := serveRrun(t, 0, 0, 1, 2)
	var ranks sync.WaitGroup
	for rank := range m.job.Nodes {
		ranks.Go(func() {
			for turn := range 2 {
				p := m.rank(rank)
				address := fmt.Sprintf("address\x00\n%d", turn)
				if rank == 0 {
					p.expect(fmt.Sprintf("PUT key=ucxx_root_address valuelen=%d\n%s", len(address), address), "OK\n")
				}
				p.expect("SYNC\n", "OK\n")
				if rank != 0 {
					p.expect("GET key=ucxx_root_address timeout=30000\n",
						fmt.Sprintf("VALUE valuelen=%d\n%s", len(address), address))
				}
				p.expect("BARRIER\n", "OK\n")
				_ = p.conn.Close()
			}
		})
	}
	ranks.Wait()
	slices.Sort(m.entered)
	var want []string
	for rank := range m.job.Nodes {
		for range 2 {
			want = append(want, fmt.Sprintf("rapidsmpf barrier by %d", rank), fmt.Sprintf("rapidsmpf sync by %d", rank))
		}
	}
	if slices.Sort(want); !slices.Equal(m.entered, want) {
		t.Errorf("these have been recorded: %q", m.entered)
	}
}

// TestGetWaits verifies that a get waits for a later put, and not longer than its timeout.
func TestGetWaits(t *testing.T) {
	m := serveRrun(t, 0, 1)
	other := m.rank(1)
	other.expect("GET key=k timeout=1\n", "TIMEOUT\n")
	other.send("GET key=k timeout=30000\n")
	time.Sleep(20 * time.Millisecond) // usually the get waits by now
	m.rank(0).expect("PUT key=k valuelen=0\n", "OK\n")
	other.receive("VALUE valuelen=0\n")
}

// TestBarriersAreIndependent verifies that a rank in a barrier does not complete the others' sync.
func TestBarriersAreIndependent(t *testing.T) {
	m := serveRrun(t, 0, 0)
	first, second := m.rank(0), m.rank(1)
	first.send("BARRIER\n")
	second.send("SYNC\n")
	m.rank(0).expect("SYNC\n", "OK\n")
	second.receive("OK\n")
	second.expect("BARRIER\n", "OK\n")
	first.receive("OK\n")
}

// TestEndInABarrier verifies that the end of a connection is noticed while its request waits, and
// that the rank can continue to wait on another connection.
func TestEndInABarrier(t *testing.T) {
	m := serveRrun(t, 0, 0)
	gone := m.rank(0)
	gone.send("BARRIER\n")
	for deadline := time.Now().Add(rrunTimeout); ; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		entered := len(m.entered) == 1
		m.mu.Unlock()
		if entered {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the rank has not entered the barrier")
		}
	}
	_ = gone.conn.Close()
	again := m.rank(0)
	again.send("BARRIER\n")
	m.rank(1).expect("BARRIER\n", "OK\n")
	again.receive("OK\n")
}

// TestStrangersAreRefused verifies that only the ranks of the node get a session.
func TestStrangersAreRefused(t *testing.T) {
	m := serveRrun(t, 0, 0, 1)
	token := m.servers[0].RankEnviron(ProcID{Job: m.job.Name})["RRUN_SOCKET_TOKEN"]
	if len(token) != 64 || token == m.servers[1].RankEnviron(ProcID{Job: m.job.Name, Rank: 2})["RRUN_SOCKET_TOKEN"] {
		t.Errorf("the token is %q, and that of another node may be the same", token)
	}
	for request, text := range map[string]string{
		"SYNC\n":                               "invalid AUTH",
		"AUTH rank=0 nranks=3 token=\n":        "invalid AUTH",
		"AUTH rank=0 nranks=3 token=00\n":      "bad token",
		strings.Repeat("x", 2*maxRrunLine):     "cannot read a line",
		"AUTH rank=3 nranks=3 token=" + token:  "invalid rank",
		"AUTH rank=-1 nranks=3 token=" + token: "invalid rank",
		"AUTH rank=0 nranks=4 token=" + token:  "invalid rank",
		"AUTH rank=2 nranks=3 token=" + token:  "not a rank of this node",
	} {
		p := m.connect(0)
		p.expectError(strings.TrimSuffix(request, "\n")+"\n", text)
		p.expectEnd()
	}
	m.servers[0].RemoveJob(m.job.Name)
	m.connect(0).expectError("AUTH rank=0 nranks=3 token="+token+"\n", "bad token")
	if env := m.servers[2].RankEnviron(ProcID{Job: m.job.Name}); len(env) != 0 {
		t.Errorf("a node without ranks sets %v", env)
	}
}

// TestConnectionsAreBounded verifies that strangers cannot keep ranks away, and that ranks cannot
// use up the file descriptors of the daemon.
func TestConnectionsAreBounded(t *testing.T) {
	m := serveRrun(t, 0)
	first := m.connect(0)
	for range maxStrangers {
		m.connect(0)
	}
	first.expectEnd()
	for range maxConnsPerRank {
		m.rank(0)
	}
	token := m.servers[0].RankEnviron(ProcID{Job: m.job.Name})["RRUN_SOCKET_TOKEN"]
	m.connect(0).expectError("AUTH rank=0 nranks=1 token="+token+"\n", "already have 16 connections")
}

// TestRequestsAreBounded verifies that requests which are wrong or too large are refused, and that
// the connection can be used afterwards.
func TestRequestsAreBounded(t *testing.T) {
	m := serveRrun(t, 0, 0)
	p := m.rank(0)
	for request, text := range map[string]string{
		"TEA\n":                   "unknown command",
		"\n":                      "unknown command",
		"PUT key=k\n":             "bad PUT",
		"PUT key=k valuelen=-1\n": "bad PUT",
		"GET key=k\n":             "bad GET",
		"GET key=" + strings.Repeat("k", 256) +
			" timeout=1\n": "a key has 256 bytes",
		"PUT key=" + strings.Repeat("k", 256) +
			" valuelen=3\nabc": "a key has 256 bytes",
		fmt.Sprintf("PUT key=k valuelen=%d\n%s", maxRrunValue+1,
			strings.Repeat("v", maxRrunValue+1)): "a value has 1048577 bytes",
	} {
		p.expectError(request, text)
	}
	m.rank(1).expectError("PUT key=k valuelen=3\nabc", "only rank 0 may PUT")
	p.expect("GET key=k timeout=-5\n", "TIMEOUT\n")
}

// TestNoLink verifies that ranks learn why this node cannot reach the others.
func TestNoLink(t *testing.T) {
	m := serveRrun(t, 0)
	m.linkErr = errors.New("cannot exchange data\nwithout links")
	token := m.servers[0].RankEnviron(ProcID{Job: m.job.Name})["RRUN_SOCKET_TOKEN"]
	p := m.connect(0)
	p.expectError("AUTH rank=0 nranks=1 token="+token+"\n", "cannot exchange data without links")
	p.expectEnd()
}

// TestLoopback verifies that the server cannot be reached from other hosts.
func TestLoopback(t *testing.T) {
	m := serveRrun(t, 0)
	address := m.servers[0].RankEnviron(ProcID{Job: m.job.Name})["RRUN_SOCKET_ADDR"]
	if host, _, err := net.SplitHostPort(address); host != "127.0.0.1" || err != nil {
		t.Errorf("the address is %s", address)
	}
}

// FuzzReadRequest verifies that requests are within their limits.
func FuzzReadRequest(f *testing.F) {
	for _, sent := range []string{"SYNC\n", "PUT key=k valuelen=3\nabcBARRIER\n",
		"GET key=k timeout=-1\n", "PUT key=k valuelen=9999999\n", "PUT key=\n\nGET"} {
		f.Add([]byte(sent))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(sent), maxRrunLine)
		for {
			r, err := readRrunRequest(in)
			if err != nil {
				return
			}
			if len(r.value) > len(sent) || r.err == nil && len(r.key) > maxRrunKey ||
				r.timeout < 0 || r.timeout > maxRrunTimeout {
				t.Errorf("read %+v", r)
			}
		}
	})
}
