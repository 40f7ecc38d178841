package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestGather(t *testing.T) {
	for name, tt := range map[string]struct {
		ranks string
		local map[int][]int // by node
	}{
		"the whole world": {"", map[int][]int{0: {0, 1}, 1: {2, 3}, 2: {4, 5}}},
		"some of it":      {"1-2", map[int][]int{0: {1}, 1: {2}}},
		"those that came": {"5-7", map[int][]int{2: {5}, 0: {6}, 1: {7}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := raise(t, 3, 2, true)
			came := []NodeRanks{{Node: 0, Ranks: []int{6}}, {Node: 1, Ranks: []int{7}}}
			s.head.AddRanks(came)
			for _, n := range s.nodes {
				n.AddRanks(came)
			}
			for round := range 3 {
				var nodes sync.WaitGroup
				for node, local := range tt.local {
					nodes.Go(func() {
						all, err := s.nodes[node].GatherGroup(t.Context(), "f",
							Group{tt.ranks, local}, fmt.Appendf(nil, "%d%d;", node, round))
						if err != nil || len(all) != 3*len(tt.local) {
							t.Errorf("node %d, round %d: %q, %v", node, round, all, err)
						}
					})
				}
				nodes.Wait()
			}
		})
	}
}

// TestEnterGroup verifies that the ranks of a group, each of which enters for itself, exchange the data
// of their nodes once per node and round, and that a failure of one node's function fails its ranks.
func TestEnterGroup(t *testing.T) {
	s := raise(t, 2, 2, true)
	var mu sync.Mutex
	received := make(map[string]int)
	for round := range 3 {
		var ranks sync.WaitGroup
		for rank := range 4 {
			node := rank / 2
			ranks.Go(func() {
				err := s.nodes[node].EnterGroup(t.Context(), "f",
					Group{"0-3", []int{2 * node, 2*node + 1}}, rank, Exchange{
						Send: func() []byte { return fmt.Appendf(nil, "%d%d;", node, round) },
						Receive: func(all []byte) error {
							mu.Lock()
							defer mu.Unlock()
							received[fmt.Sprint(node, len(all))]++
							if round == 2 && node == 1 {
								return errors.New("unreadable")
							}
							return nil
						},
					})
				if (err != nil) != (round == 2 && node == 1) {
					t.Errorf("rank %d, round %d: %v", rank, round, err)
				}
			})
		}
		ranks.Wait()
	}
	if len(received) != 2 || received["0 6"] != 3 || received["1 6"] != 3 {
		t.Errorf("received are %v", received)
	}
}

func TestGatherNamesTheMissing(t *testing.T) {
	s := raise(t, 3, 2, false)
	ctx, cancel := context.WithCancelCause(t.Context())
	var gathering sync.WaitGroup
	gathering.Go(func() {
		if err := s.nodes[2].EnterGroup(ctx, "f", Group{"0,4-5", []int{4, 5}}, 4,
			Exchange{}); !errors.Is(err, errRunOver) {
			t.Errorf("a rank got %v", err)
		}
	})
	gathering.Go(func() {
		if _, err := s.nodes[0].GatherGroup(ctx, "f", Group{"0,4-5", []int{0}}, nil); !errors.Is(err, errRunOver) {
			t.Errorf("got %v", err)
		}
	})
	until(t, "who is missing", func() (bool, any) {
		waits := s.nodes[0].PendingWaits()
		return len(waits) == 1 && len(waits[0].Missing) == 1 && waits[0].Missing[0] == 5, waits
	})
	cancel(errRunOver)
	gathering.Wait()
	_, err := s.nodes[1].GatherGroup(t.Context(), "f", Group{"2,99", []int{2}}, nil)
	want(t, err, "there is no rank 99")
}

func TestGatherFailsWithARankThatHasEnded(t *testing.T) {
	s := raise(t, 2, 2, false)
	s.nodes[1].ReportRankEnd(2, "exit code 3")
	_, err := s.nodes[0].GatherGroup(t.Context(), "f", Group{"0,2", []int{0}}, nil)
	want(t, err, "cannot pass the fence f of 0,2: rank 2 on n1 will not arrive: exit code 3")
}

func TestCallAndOrder(t *testing.T) {
	s := raise(t, 2, 1, true)
	got, err := s.nodes[1].CallHead(t.Context(), "find", []byte("it"))
	if string(got) != "head of 1: find it" || err != nil {
		t.Fatalf("a call returned %q, %v", got, err)
	}
	_, err = s.nodes[0].CallHead(t.Context(), "fail", nil)
	want(t, err, "no luck")
	got, err = s.head.CallNode(t.Context(), 1, "go", []byte("on"))
	if string(got) != "n1 of 1: go on" || err != nil {
		t.Fatalf("an order returned %q, %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = s.nodes[0].CallHead(ctx, "wait", nil)
	want(t, err, "deadline")
}

func TestOrderOutlivesItsConnection(t *testing.T) {
	s := raise(t, 2, 1, false)
	_, err := s.nodes[1].CallHead(t.Context(), "hello", nil) // makes a connection
	must(t, err)
	for i := range 50 {
		s.head.mu.Lock()
		if drop := s.head.peers[1].closeConn; drop != nil {
			drop()
		}
		s.head.mu.Unlock()
		got, err := s.head.CallNode(t.Context(), 1, "go", fmt.Append(nil, i))
		if string(got) != fmt.Sprint("n1 of 1: go ", i) || err != nil {
			t.Fatalf("an order returned %q, %v", got, err)
		}
	}
}

func TestOrderEndsWithItsNode(t *testing.T) {
	s := raise(t, 2, 1, false)
	_, err := s.nodes[1].CallHead(t.Context(), "hello", nil)
	must(t, err)
	failed := make(chan error)
	go func() {
		_, err := s.head.CallNode(t.Context(), 1, "wait", nil)
		failed <- err
	}()
	until(t, "the order is there", func() (bool, any) {
		s.head.mu.Lock()
		defer s.head.mu.Unlock()
		return len(s.head.peers[1].orders) == 1, nil
	})
	s.head.MarkNodeLost(1, "gone")
	want(t, <-failed, errNodeLost.Error())
	_, err = s.head.CallNode(t.Context(), 1, "wait", nil)
	want(t, err, errNodeLost.Error())
}

// TestTooMuchData verifies that every node of a fence whose data is too large gets the failure, also
// one that enters later.
func TestTooMuchData(t *testing.T) {
	h := NewHead(NewLayout([]NodeRanks{{0, "n0", []int{0}}, {1, "n1", []int{1}}, {2, "n2", []int{2}}}), zap.NewNop())
	enter := func(node int) {
		h.handleMessage(node, &message{Kind: kindEnter, Seq: 1, Name: "f",
			FenceFields: FenceFields{Number: 1}, Data: []byte{1}})
	}
	enter(0)
	h.fences[fenceID{name: "f", round: 1}].data = make([]byte, maxDataSize, maxDataSize+1) // never touched
	enter(1)
	enter(2)
	for node := range 3 {
		answer := h.peers[node].unacked[1]
		if answer == nil || answer.Error != "the data of all nodes exceeds 1 GiB, the maximum" {
			t.Errorf("node %d gets %+v", node, answer)
		}
	}
	if len(h.fences) != 0 {
		t.Errorf("%d fences are left", len(h.fences))
	}
}
