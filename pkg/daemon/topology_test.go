package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestChildrenAndFrameworksAreToldOfTheTopology verifies that children receive the topology of a
// node's GPUs, and that values of other GPUs, which an outer daemon has set, are replaced.
func TestChildrenAndFrameworksAreToldOfTheTopology(t *testing.T) {
	dir, err := signal.CreateRun(bounded(t), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: 2, Host: "n0"}, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	domain := &gpu.NVLinkDomain{Cluster: "fabric", Clique: 7}
	seen := &card{fails: errCeiling, topology: gpu.Topology{Domain: domain, GPUs: []gpu.Locality{{UUID: "GPU-a", Domain: domain}}}}
	address := func() (launcher.NodeAddress, error) { return launcher.NodeAddress{Address: "192.0.2.1"}, nil }
	n := bare(t, deps.Config{Config: config.Config{Identity: testIdentity(1, 2), Framework: framework.None{}}, Set: deps.Set{Address: address, GPUs: seen}}, dir)
	n.privateDir = service.NewTempDir(t.TempDir(), time.Minute, func(files.OwnedPath) {}, n.Log, service.Contexts{Run: n.RunCtx, Teardown: n.WorkCtx})
	n.gpuMonitor = newGPUMonitor(n)
	if err := n.gpuMonitor.StartWatch(bounded(t)); err != nil {
		t.Fatal(err)
	}
	told := n.childEnv([]string{"BRINGUPD_GPU_COUNT=99", "BRINGUPD_GPU_NICS=old", "BRINGUPD_TOPOLOGY=/old"}, n.launchPlace())
	for _, entry := range []string{"BRINGUPD_GPU_COUNT=1", "BRINGUPD_NVLINK_DOMAIN=fabric.7"} {
		if !slices.Contains(told, entry) {
			t.Errorf("a child is not told %s, but %q", entry, told)
		}
	}
	for _, entry := range []string{"BRINGUPD_GPU_COUNT=99", "BRINGUPD_GPU_NICS=old", "BRINGUPD_TOPOLOGY=/old"} {
		if slices.Contains(told, entry) {
			t.Errorf("a child is told %s, which is another daemon's", entry)
		}
	}
	described, err := n.describeForFramework(n.cfg.Framework, n.launchPlace())
	if err != nil || described.NVLinkDomain != "fabric" {
		t.Errorf("the framework is told of the domain %q, %v", described.NVLinkDomain, err)
	}
}
