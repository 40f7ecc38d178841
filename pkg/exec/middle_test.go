package exec

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/test/proxy"
)

// TestManInTheMiddle verifies that an attacker on the path between the nodes and the head can
// neither read a command nor have another one executed in its place.
func TestManInTheMiddle(t *testing.T) {
	s := raise(t)
	listener, err := peerlink.TCP{}.Listen()
	must(t, err)
	key := bytes.Repeat([]byte{7}, peerlink.KeySize)
	head := peerlink.NewHead(peerlink.Config{Key: key, Nodes: 4, HeartbeatInterval: time.Second}, listener, nil)
	head.HandleStreams(peerlink.CommandStream, s.exchange.ServeConn)
	ctx, cancel := context.WithCancel(s.ctx)
	var serving sync.WaitGroup
	serving.Go(func() { head.Run(ctx) })
	defer serving.Wait()
	defer cancel()
	middle := proxy.New(t, listener.Addr().String())
	for _, rank := range []int{1, 2} {
		s.nodes[rank].Dial = peerlink.StreamDialer(peerlink.CommandStream, key, rank,
			peerlink.TCP{}, []string{middle.Address})
	}
	mark := filepath.Join(t.TempDir(), "mark")
	made := func() bool {
		_, err := os.Lstat(mark)
		return os.Remove(mark) == nil && err == nil
	}

	var mu sync.Mutex
	var recorded []byte // the request that the head sends to node 2
	middle.Set(func(toHead bool, record []byte) ([]byte, bool) {
		mu.Lock()
		defer mu.Unlock()
		if !toHead && recorded == nil {
			recorded = bytes.Clone(record)
		}
		return record, false
	})
	if got := s.call(t.Context(), 1, "n2", "touch "+mark); got != (said{}) || !made() {
		t.Fatalf("a proxy that changes nothing: %+v", got)
	}
	if bytes.Contains(middle.Seen(), []byte(mark)) || bytes.Contains(recorded, []byte(mark)) {
		t.Error("the command can be read on its way")
	}
	for _, tc := range []struct {
		name   string
		toHead bool
		change func(record []byte) []byte
	}{
		{"the request to the head is changed", true, func(record []byte) []byte { record[20] ^= 1; return record }},
		{"the request to the node is changed", false, func(record []byte) []byte { record[20] ^= 1; return record }},
		{"the request to the node is a recorded one", false, func([]byte) []byte { return recorded }},
		{"the request to the node is in plain text", false, func([]byte) []byte {
			return []byte(`{"command":"touch ` + mark + `"}` + "\n")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			middle.Set(func(toHead bool, record []byte) ([]byte, bool) {
				if toHead == tc.toHead {
					record = tc.change(record)
				}
				return record, false
			})
			ctx, cancel := context.WithTimeout(t.Context(), ceiling)
			defer cancel()
			if got := s.call(ctx, 1, "n2", "touch "+mark); got.code != NoCode || got.why == "" {
				t.Errorf("it said %+v", got)
			}
			if made() {
				t.Error("a command was run")
			}
		})
	}
	middle.Set(nil)
	if got := s.call(t.Context(), 1, "n2", "touch "+mark); got != (said{}) || !made() {
		t.Errorf("once nothing is changed any more: %+v", got)
	}
}
