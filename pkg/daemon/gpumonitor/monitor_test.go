package gpumonitor

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const testFabric = "6e2a1c6f-59b4-4c7e-9b3c-0f3b8a1d2e10"

func testTopology() gpu.Topology {
	domain := &gpu.NVLinkDomain{Cluster: testFabric, Clique: 7}
	return gpu.Topology{Version: gpu.TopologyVersion, Domain: domain, GPUs: []gpu.Locality{
		{Index: 0, UUID: "GPU-a", Bus: "0000:1b:00.0", CPUs: "0-7,16-23", NICs: []gpu.NIC{{Name: "mlx5_0", Bus: "0000:18:00.0", Distance: gpu.SeveralSwitches}}, Domain: domain},
		{Index: 1, UUID: "GPU-b", Bus: "0000:9b:00.0", NUMA: 1, CPUs: "8-15,24-31", NICs: []gpu.NIC{}, Domain: domain},
	}}
}

// testCards returns the GPU monitor of a node and the node's private directory.
func testCards(t *testing.T) (*Monitor, string) {
	private := t.TempDir()
	return New(Config{
		RunCtx: context.Background(), PrivateDir: func() (string, error) { return private, nil }, EventLog: eventlog.New(), Log: zap.NewNop(),
	}), private
}

// told returns the variables that are not empty.
func told(c *Monitor) map[string]string {
	told := map[string]string{}
	for name, value := range c.TopologyEnv() {
		if value != "" {
			told[name] = value
		}
	}
	return told
}

func TestEnv(t *testing.T) {
	c, private := testCards(t)
	if diff := cmp.Diff(map[string]string{}, told(c)); diff != "" {
		t.Errorf("before anything is known: %s", diff)
	}
	c.storeTopology(testTopology())
	file := filepath.Join(private, "topology.json")
	want := map[string]string{
		"BRINGUPD_TOPOLOGY": file, "BRINGUPD_GPU_COUNT": "2", "BRINGUPD_GPU_UUIDS": "GPU-a,GPU-b", "BRINGUPD_GPU_NUMA": "0,1",
		"BRINGUPD_GPU_CPUS": "0-7,16-23;8-15,24-31", "BRINGUPD_GPU_NICS": "mlx5_0;", "BRINGUPD_NVLINK_DOMAIN": testFabric + ".7",
	}
	if diff := cmp.Diff(want, told(c)); diff != "" {
		t.Error(diff)
	}
	c.storeTopology(gpu.Topology{Version: gpu.TopologyVersion, GPUs: []gpu.Locality{}})
	if diff := cmp.Diff(map[string]string{"BRINGUPD_TOPOLOGY": file, "BRINGUPD_GPU_COUNT": "0"}, told(c)); diff != "" {
		t.Errorf("what was learned last counts: %s", diff)
	}
}

func TestTopologyFile(t *testing.T) {
	c, private := testCards(t)
	for _, want := range []gpu.Topology{{Version: gpu.TopologyVersion}, testTopology()} {
		c.storeTopology(want)
		file := c.TopologyEnv()[gpu.TopologyFileVariable]
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got gpu.Topology
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %v, %v", info.Mode(), err)
		}
	}
	if entries, err := os.ReadDir(private); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

// TestTopologyWithoutItsFile verifies that a full disk prevents the topology file only, and not the
// other variables.
func TestTopologyWithoutItsFile(t *testing.T) {
	c, private := testCards(t)
	if err := os.Remove(private); err != nil {
		t.Fatal(err)
	}
	c.storeTopology(testTopology())
	env := told(c)
	if file, told := env[gpu.TopologyFileVariable]; told || env["BRINGUPD_GPU_COUNT"] != "2" {
		t.Errorf("the file is %q, and the variables %v", file, env)
	}
}

func TestNVLinkDomain(t *testing.T) {
	c, _ := testCards(t)
	if got := c.NVLinkDomain(); got != "" {
		t.Errorf("before anything is known it is %q", got)
	}
	c.storeTopology(testTopology())
	if got := c.NVLinkDomain(); got != testFabric {
		t.Errorf("it is %q", got)
	}
	c.storeTopology(gpu.Topology{Version: gpu.TopologyVersion})
	if got := c.NVLinkDomain(); got != "" {
		t.Errorf("without one it is %q", got)
	}
}

// TestLearningWhileChildrenStart verifies that a child that starts meanwhile sees the complete old
// or the complete new variables.
func TestLearningWhileChildrenStart(t *testing.T) {
	c, _ := testCards(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.storeTopology(testTopology())
	}()
	for range 100 {
		if count := told(c)["BRINGUPD_GPU_COUNT"]; count != "" && count != "2" {
			t.Errorf("the count is %q", count)
		}
	}
	<-done
}

// TestEventsThatLeaveAGPUUnfit verifies that the first such event has a name of its own and is
// reported, however many other events came before it.
func TestEventsThatLeaveAGPUUnfit(t *testing.T) {
	var told, ends []string
	var own []record.Event
	c := New(Config{
		Size: 2, RunCtx: context.Background(), EventLog: eventlog.New(), Log: zap.NewNop(), Header: func() record.Header { return record.Header{} },
		Background: func(task func(context.Context)) { task(context.Background()) },
		Publish:    func(name string, _ *record.Event) { told = append(told, name) },
		CancelRun:  func(cause error) { ends = append(ends, cause.Error()) },
	})
	c.OnEvent = func(rec record.Event) { own = append(own, rec) }
	befalls := func(xid int) {
		c.handleEvent(gpu.ClassifyEvent(gpu.Event{Kind: gpu.KindXid, Xid: xid}))
	}
	for range maxNodeEvents + 3 {
		befalls(31)
	}
	told, own = nil, nil
	befalls(64)
	befalls(64)
	befalls(79)
	if diff := cmp.Diff([]string{signal.EventName(0, 2, signal.UnfitEventNumber)}, told); diff != "" || len(own) != 1 {
		t.Errorf("the head learns of %d: %s", len(own), diff)
	}
	if len(ends) != 1 || !strings.Contains(ends[0], "Xid 79") {
		t.Errorf("the job is ended by %q", ends)
	}
}

// TestEventsOf verifies that the number of events stays within the limit for the shared file system
// if the NVIDIA driver reports errors on all GPUs at once.
func TestEventsOf(t *testing.T) {
	for size, want := range map[int]int{1: 16, 64: 16, 65: 15, 256: 4, 512: 2, 4096: 2} {
		if got := nodeEventLimit(size); got != want {
			t.Errorf("of %d nodes each tells of %d, want %d", size, got, want)
		}
	}
}
