package lifecycle

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	nics := []gpu.NIC{{Name: "mlx5_0", Bus: "0000:18:00.0", Distance: gpu.SeveralSwitches}}
	return gpu.Topology{Version: gpu.TopologyVersion, Domain: domain, GPUs: []gpu.Locality{
		{UUID: "GPU-a", Bus: "0000:1b:00.0", CPUs: "0-7,16-23", NICs: nics, Domain: domain},
		{Index: 1, UUID: "GPU-b", Bus: "0000:9b:00.0", NUMA: 1, CPUs: "8-15,24-31", NICs: []gpu.NIC{}, Domain: domain},
	}}
}

// newTestGPUMonitor returns the GPU monitor of the head of a run of two nodes, and its private
// directory.
func newTestGPUMonitor(t *testing.T) (*GPUMonitor, string) {
	t.Helper()
	return newTestGPUMonitorOf(t, 2)
}

// newTestGPUMonitorOf is [newTestGPUMonitor] for a run of size nodes.
func newTestGPUMonitorOf(t *testing.T, size int) (*GPUMonitor, string) {
	t.Helper()
	private := t.TempDir()
	place := signal.Location{LogDir: filepath.Join(t.TempDir(), "logs"), Run: "17.0", Key: "k", Size: size, Host: "n0"}
	place.Meter = new(signal.CallMeter)
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	life := NewLifetime(t.Context())
	t.Cleanup(life.Close)
	publisher := &Publisher{Lifetime: life, Events: eventlog.New(), Log: zap.NewNop(),
		Meter: place.Meter, Dir: dir, PeerTimeout: time.Minute}
	return NewGPUMonitor(GPUMonitorConfig{Publisher: publisher,
		NodeEvents: &NodeEvents{Publisher: publisher, Size: size},
		PrivateDir: func() (string, error) { return private, nil },
		Header:     func() record.Header { return record.Header{} },
	}), private
}

// nonempty returns the variables that are not empty.
func nonempty(c *GPUMonitor) map[string]string {
	env := map[string]string{}
	for name, value := range c.TopologyEnv() {
		if value != "" {
			env[name] = value
		}
	}
	return env
}

// TestTopology verifies what programs learn of the topology, which may be learned again.
func TestTopology(t *testing.T) {
	c, private := newTestGPUMonitor(t)
	file := filepath.Join(private, "topology.json")
	check := func(what, domain string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, nonempty(c)); diff != "" || c.NVLinkDomain() != domain {
			t.Errorf("%s: the domain is %q; %s", what, c.NVLinkDomain(), diff)
		}
	}
	check("at first", "", map[string]string{})
	known := testTopology()
	c.storeTopology(known)
	all := map[string]string{
		"BRINGUPD_TOPOLOGY": file, "BRINGUPD_GPU_COUNT": "2", "BRINGUPD_GPU_UUIDS": "GPU-a,GPU-b",
		"BRINGUPD_GPU_NUMA": "0,1", "BRINGUPD_GPU_CPUS": "0-7,16-23;8-15,24-31", "BRINGUPD_GPU_NICS": "mlx5_0;",
		"BRINGUPD_NVLINK_DOMAIN": testFabric + ".7",
	}
	check("once known", testFabric, all)
	var got gpu.Topology
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if diff := cmp.Diff(known, got); err != nil || diff != "" {
		t.Errorf("the file differs: %s, %v", diff, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
	c.storeTopology(gpu.Topology{Version: gpu.TopologyVersion, GPUs: []gpu.Locality{}})
	check("without GPUs", "", map[string]string{"BRINGUPD_TOPOLOGY": file, "BRINGUPD_GPU_COUNT": "0"})
	if err := os.RemoveAll(private); err != nil {
		t.Fatal(err)
	}
	c.storeTopology(known)
	delete(all, gpu.TopologyFileVariable)
	check("without a file", testFabric, all)
}

// TestEventsThatLeaveAGPUUnfit verifies that the first such event has a name of its own and is
// reported, however many other events came before it.
func TestEventsThatLeaveAGPUUnfit(t *testing.T) {
	c, _ := newTestGPUMonitor(t)
	own := 0
	c.cfg.NodeEvents.OnEvent = func(record.Event) { own++ }
	for range maxNodeEvents + 3 {
		c.handleEvent(gpu.ClassifyEvent(gpu.Event{Kind: gpu.KindXid, Xid: 31}))
	}
	if own != maxNodeEvents {
		t.Errorf("%d events are reported", own)
	}
	for _, xid := range []int{64, 64, 79} {
		c.handleEvent(gpu.ClassifyEvent(gpu.Event{Kind: gpu.KindXid, Xid: xid}))
	}
	c.cfg.Reports.AwaitTried(time.Minute)
	unfit := signal.EventName(0, 2, signal.UnfitEventNumber)
	var rec record.Event
	err := c.cfg.Dir.ReadRecord(t.Context(), signal.NodesDir, unfit, &rec)
	if err != nil || own != maxNodeEvents+1 {
		t.Errorf("%d events are reported, and that of the unfit GPU is %+v, %v", own, rec, err)
	}
	if cause := context.Cause(c.cfg.RunCtx); cause == nil || !strings.Contains(cause.Error(), "Xid 79") {
		t.Errorf("the run is ended by %v", cause)
	}
}

// TestGPUEventsOf verifies that the number of events stays within the limit for the shared file
// system if the NVIDIA driver reports errors on all GPUs at once.
func TestGPUEventsOf(t *testing.T) {
	for size, want := range map[int]int{1: 16, 64: 16, 65: 15, 256: 4, 512: 2, 4096: 2} {
		if got := nodeEventLimit(size); got != want {
			t.Errorf("of %d nodes each tells of %d, want %d", size, got, want)
		}
	}
}
