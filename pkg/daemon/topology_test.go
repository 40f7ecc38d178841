package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

const testFabric = "6e2a1c6f-59b4-4c7e-9b3c-0f3b8a1d2e10"

func testTopology() gpu.Topology {
	domain := &gpu.Domain{Cluster: testFabric, Clique: 7}
	return gpu.Topology{Version: gpu.TopologyVersion, Domain: domain, GPUs: []gpu.Locality{
		{Index: 0, UUID: "GPU-a", Bus: "0000:1b:00.0", CPUs: "0-7,16-23", NICs: []gpu.NIC{{Name: "mlx5_0", Bus: "0000:18:00.0", Distance: gpu.Switches}}, Domain: domain},
		{Index: 1, UUID: "GPU-b", Bus: "0000:9b:00.0", NUMA: 1, CPUs: "8-15,24-31", NICs: []gpu.NIC{}, Domain: domain},
	}}
}

// topologyNode is a node that can say what its children would be told.
func topologyNode(t *testing.T) *node {
	dir, err := signal.Create(bounded(t), signal.Place{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: 2, Host: "n0"}, signal.Job{})
	if err != nil {
		t.Fatal(err)
	}
	address := func() (string, error) { return "192.0.2.1", nil }
	n := bare(t, config.Config{Identity: testIdentity(1, 2), Means: config.Means{Address: address}}, dir)
	n.private = service.NewPrivate(t.TempDir(), time.Minute, func(string) {}, n.log, service.Life{Run: n.life, Work: n.work})
	return n
}

func privateDir(t *testing.T, n *node) string {
	t.Helper()
	dir, err := n.private.Dir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// toldChildren are the variables of the topology that a child of the node has.
func toldChildren(n *node) map[string]string {
	told := map[string]string{}
	inherited := []string{"BRINGUPD_GPU_COUNT=99", "BRINGUPD_GPU_NICS=old", "BRINGUPD_TOPOLOGY=/old"}
	for _, entry := range n.childEnv(inherited, n.launchSeat()) {
		name, value, _ := strings.Cut(entry, "=")
		if _, ours := n.cards.topologyEnv()[name]; ours {
			told[name] = value
		}
	}
	return told
}

func TestChildrenAreToldOfTheTopology(t *testing.T) {
	n := topologyNode(t)
	if diff := cmp.Diff(map[string]string{}, toldChildren(n)); diff != "" {
		t.Errorf("before anything is known: %s", diff)
	}
	n.cards.learn(testTopology())
	file := filepath.Join(privateDir(t, n), "topology.json")
	want := map[string]string{
		"BRINGUPD_TOPOLOGY": file, "BRINGUPD_GPU_COUNT": "2", "BRINGUPD_GPU_UUIDS": "GPU-a,GPU-b", "BRINGUPD_GPU_NUMA": "0,1",
		"BRINGUPD_GPU_CPUS": "0-7,16-23;8-15,24-31", "BRINGUPD_GPU_NICS": "mlx5_0;", "BRINGUPD_NVLINK_DOMAIN": testFabric + ".7",
	}
	if diff := cmp.Diff(want, toldChildren(n)); diff != "" {
		t.Error(diff)
	}
	n.cards.learn(gpu.Topology{Version: gpu.TopologyVersion, GPUs: []gpu.Locality{}})
	if diff := cmp.Diff(map[string]string{"BRINGUPD_TOPOLOGY": file, "BRINGUPD_GPU_COUNT": "0"}, toldChildren(n)); diff != "" {
		t.Errorf("what was learned last counts: %s", diff)
	}
}

func TestTopologyFile(t *testing.T) {
	n := topologyNode(t)
	for _, want := range []gpu.Topology{{Version: gpu.TopologyVersion}, testTopology()} {
		n.cards.learn(want)
		file := n.cards.topologyEnv()[gpu.TopologyFile]
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
	if entries, err := os.ReadDir(privateDir(t, n)); err != nil || len(entries) != 1 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

// A disk that is full costs the file, not what else is known.
func TestTopologyWithoutItsFile(t *testing.T) {
	n := topologyNode(t)
	if err := os.Remove(privateDir(t, n)); err != nil {
		t.Fatal(err)
	}
	n.cards.learn(testTopology())
	env := toldChildren(n)
	if file, told := env[gpu.TopologyFile]; told || env["BRINGUPD_GPU_COUNT"] != "2" {
		t.Errorf("the file is %q, and the variables %v", file, env)
	}
}

func TestFrameworksAreToldOfTheDomain(t *testing.T) {
	n := topologyNode(t)
	domain := func() string {
		t.Helper()
		described, err := n.describe(n.launchSeat())
		if err != nil {
			t.Fatal(err)
		}
		return described.NVLinkDomain
	}
	if got := domain(); got != "" {
		t.Errorf("before anything is known it is %q", got)
	}
	n.cards.learn(testTopology())
	if got := domain(); got != testFabric {
		t.Errorf("it is %q", got)
	}
	n.cards.learn(gpu.Topology{Version: gpu.TopologyVersion})
	if got := domain(); got != "" {
		t.Errorf("without one it is %q", got)
	}
}

// What is started in the meantime sees one or the other.
func TestLearningWhileChildrenStart(t *testing.T) {
	n := topologyNode(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.cards.learn(testTopology())
	}()
	for range 100 {
		if count := toldChildren(n)["BRINGUPD_GPU_COUNT"]; count != "" && count != "2" {
			t.Errorf("the count is %q", count)
		}
	}
	<-done
}
