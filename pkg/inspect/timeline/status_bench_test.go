package timeline

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// BenchmarkStatus measures the status of a run with eight instances on each node, of which one in ten
// is not ready yet and has written to its log. The cost per node must not grow with the number of nodes.
func BenchmarkStatus(b *testing.B) {
	for _, size := range []int{64, 1024} {
		dir := writeLargeRun(b, size)
		b.Run(fmt.Sprintf("%d-nodes", size), func(b *testing.B) {
			for b.Loop() {
				run, err := Read(b.Context(), dir, DepthQuick)
				if err != nil {
					b.Fatal(err)
				}
				status := SummarizeRun(run, Observation{Now: time.Now()})
				if text := status.Text(TextStyle{}); status.Roles[0].Starting == 0 || len(text) > 10_000 {
					b.Fatal(text)
				}
			}
		})
	}
}

// writeLargeRun writes the directory of a run of size nodes.
func writeLargeRun(b *testing.B, size int) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "4711.0")
	for _, sub := range []string{signal.ControlDir, signal.NodesDir, signal.EventsDir, signal.LogsDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	write := func(sub, name, text string) {
		if err := os.WriteFile(filepath.Join(dir, sub, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	put := func(name string, rec any) {
		text, err := json.Marshal(rec)
		if err != nil {
			b.Fatal(err)
		}
		write(signal.ControlDir, name, string(text)+"\n")
	}
	const perNode = 8
	header := record.Header{Version: record.FormatVersion, Nonce: "n0", WrittenAt: time.Now()}
	put(signal.NameJob, &record.Job{Header: header, Run: "4711.0", Size: size,
		Hosts: fmt.Sprintf("node[0000-%04d]", size-1), Plan: &record.Plan{Framework: "none", NodesNeeded: size}})
	plan := &roles.PlanRecord{Header: header, Roles: []roles.Definition{{Name: "judge",
		Placement: roles.Placement{Nodes: roles.NodesAll, InstancesPerNode: perNode, NodesPerInstance: 1,
			RanksPerNode: 1},
		Ready:    roles.ReadyProbe{Probe: "tcp:1", Timeout: time.Hour},
		Required: roles.Requirement{Start: roles.QuorumAll, Run: roles.QuorumAll}}}}
	for node := range size {
		plan.Offers = append(plan.Offers, roles.NodeFacts{NodeIndex: node, Host: fmt.Sprintf("node%04d", node)})
		write(signal.NodesDir, signal.NodeName(node, size, record.StateJoined), "")
		for i := range perNode {
			number := node*perNode + i
			if number%10 == 0 {
				write(signal.LogsDir, fmt.Sprintf("judge-%d.log", number), "loading weights 61 %\n")
				continue
			}
			mark := record.InstanceMark{Node: node, Instance: number, State: record.InstanceReady}
			write(signal.NodesDir, signal.InstanceName(mark, size), "")
		}
	}
	put(signal.SeriesPlan.Name(0), plan)
	return dir
}
