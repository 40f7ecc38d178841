//go:build testbed

package testbed

import (
	"fmt"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/hostile"
)

func testFilter(t *testing.T, b *Bed) {
	reaches := func() bool {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(b.Address(1), "6818"),
			500*time.Millisecond)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}
	must(t, b.FilterTCP(t.Context(), 1, 6818))
	if reaches() {
		t.Errorf("n1's slurmd can be reached though its port is filtered")
	}
	output(t, b.OnNode(t.Context(), 1, "ls")) // the shared file system uses another port
	must(t, b.FilterTCP(t.Context(), 1))
	if reaches() {
		t.Errorf("n1's slurmd can be reached though all TCP is filtered")
	}
	must(t, b.UnfilterTCP(t.Context(), 1))
	must(t, b.UnfilterTCP(t.Context(), 1))
	eventually(t, "n1 to be reached again", func() (bool, string) { return reaches(), "" })
}

// TestHostileShare checks that each node's mount of a hostile share has its own faults.
func TestHostileShare(t *testing.T) {
	b := start(t, Config{Nodes: 2, Share: Hostile})
	testSeen(t, b)
	touch := func(node int) error {
		return b.OnNode(t.Context(), node, "touch", fmt.Sprint("by-", node)).Run()
	}

	must(t, b.TurnShare(t.Context(), 1, hostile.Knobs{Full: syscall.ENOSPC}))
	must(t, touch(0))
	if touch(1) == nil {
		t.Errorf("n1 can make a file on a share that is full for it")
	}
	must(t, b.HealShare(t.Context(), 1))
	must(t, touch(1))

	must(t, b.TurnShare(t.Context(), 1, hostile.Knobs{Unread: true}))
	stuck := b.OnNode(t.Context(), 1, "ls")
	must(t, stuck.Start())
	output(t, b.OnNode(t.Context(), 0, "ls"))
	eventually(t, "ls to be on the node", func() (bool, string) {
		processes, err := b.AllProcesses()
		must(t, err)
		return slices.ContainsFunc(processes[1], func(p Process) bool { return !p.Infra }),
			fmt.Sprint(processes)
	})
	must(t, b.HealShare(t.Context(), 1))
	must(t, stuck.Wait())

	must(t, b.LoseNode(t.Context(), 1))
	if b.HealShare(t.Context(), 1) == nil {
		t.Errorf("the share of a lost node can be turned")
	}
	must(t, b.HealNode(t.Context(), 1))
	output(t, b.OnNode(t.Context(), 1, "ls", "seen"))
}
