package instances

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// testCluster is a framework whose head's service is ready, and whose members are listed, when the
// test says so.
type testCluster struct {
	isUp     *atomic.Bool
	isListed *atomic.Bool // nil: always
	port     int
	// hasWorkers reports that the first node has a worker's service, too.
	hasWorkers bool
}

var (
	_ framework.ClusterBuilder = testCluster{}
	_ framework.MemberLister   = testCluster{}
)

func (testCluster) Name() string      { return "ray" }
func (testCluster) HasServices() bool { return true }

func (c testCluster) WithHeadPort(port int) framework.Framework {
	c.port = port
	return c
}

func (c testCluster) HeadService(node framework.Node) (*framework.Service, framework.Endpoint, error) {
	service := c.service(0)
	service.CheckReady = func(context.Context) error {
		if !c.isUp.Load() {
			return errors.New("it is not up")
		}
		return nil
	}
	address := fmt.Sprintf("%s:%d", node.Address, c.port)
	env := map[string]string{"RAY_ADDRESS": "ray://" + address}
	return service, framework.Endpoint{Address: address, Env: env}, nil
}

func (c testCluster) WorkerService(node framework.Node, head framework.Endpoint) (*framework.Service, error) {
	if node.TeamIndex == 0 && !c.hasWorkers {
		return nil, nil
	}
	worker := c.service(node.TeamIndex)
	worker.Env = append(worker.Env, "HEAD="+head.Address)
	return worker, nil
}

func (c testCluster) CheckMembers(
	_ context.Context, _ framework.Node, _ framework.Endpoint, members []framework.Member,
) error {
	isPair := len(members) == 2 && members[0].Host == "n0" && members[1].Host == "n1"
	if isPair && (c.isListed == nil || c.isListed.Load()) || len(members) == 1 {
		return nil
	}
	return fmt.Errorf("not all of %v are listed", members)
}

// service returns the service of a node, which runs until it is stopped.
func (testCluster) service(node int) *framework.Service {
	return &framework.Service{Argv: []string{"sh"}, Env: []string{"BRINGUPD_ROLE=rl", "BRINGUPD_ROLE_INDEX=0",
		fmt.Sprintf("BRINGUPD_INSTANCE_RANK=%d", node), "BRINGUPD_GENERATION="}}
}

// listenInBlock listens at the last port of a block of this test's own, until the test ends. On ports that
// the kernel assigns to anybody, others may begin to listen meanwhile.
func listenInBlock(t *testing.T) (port int) {
	t.Helper()
	background, _ := testTasks(t)
	block, err := planning.ClaimBlock(background, t.Name(), 0)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", block.First+roles.BlockSize-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().(*net.TCPAddr).Port
}

// TestClusterAwaitsHead verifies that the other nodes of a cluster do not connect to its planned
// address, where another user may listen, before the first node has its head's service there. It
// does so again after a restart.
func TestClusterAwaitsHead(t *testing.T) {
	port := listenInBlock(t)
	isUp := new(atomic.Bool)
	inBubbleOf(t, func(r *run) {
		r.address, r.firstPort = "127.0.0.1", port
		r.frameworks = map[string]framework.Framework{"ray": testCluster{isUp: isUp}}
	}, 2, `
  - {name: rl, nodes: 2, nodes-per-instance: 2, framework: ray, restarts: {max: 9, backoff: 2s..4s}}
`, func(r *run) {
		if port := r.plan.Roles[0].Instances[0].Processes[0].Ports[0]; port != r.firstPort {
			t.Fatalf("the port of the cluster is %d", port)
		}
		r.later()
		r.want("starts before the head", r.starts(), "rl.0.0.g")
		isUp.Store(true)
		r.later()
		r.want("starts", r.starts(), "rl.0.0.g", "rl.0.1.g")
		r.want("marks", r.names(signal.NodesDir, ".g0."), "0000.i0000.g0.head", "0000.i0000.g0.ready",
			"0001.i0000.g0.ready")
		if status := r.head.instances[0].Status; status != roles.StatusReady {
			t.Errorf("the status is %v", status)
		}
		logs := func() []string {
			return []string{r.nodes[0].children.LogName("rl.0.0"), r.nodes[1].children.LogName("rl.0.1")}
		}
		r.want("logs", logs(), "rl-0.0.log", "rl-0.1.log")
		isUp.Store(false)
		r.exit("rl.0.1.g", 3)
		r.later()
		r.later()
		r.want("starts before the next head", r.starts(), "rl.0.0.g", "rl.0.0.g", "rl.0.1.g")
		isUp.Store(true)
		r.later()
		r.want("starts again", r.starts(), "rl.0.0.g", "rl.0.0.g", "rl.0.1.g", "rl.0.1.g")
		r.want("logs of the next generation", logs(), "rl-0.0.g1.log", "rl-0.1.g1.log")
		r.want("orders", r.names(signal.ControlDir, "head"), "inst.0000.g0.head", "inst.0000.g1.head")
		for range 4 { // the names of old generations do not fill the directory
			r.mu.Lock()
			newest := r.tasks[len(r.tasks)-1]
			r.mu.Unlock()
			newest.exit <- 3
			r.later()
			r.later()
		}
		orders := r.names(signal.ControlDir, ".head")
		if len(orders) > 1+roles.KeptGenerations || !slices.Contains(orders, "inst.0000.g5.head") {
			t.Errorf("the orders are %v", orders)
		}
	})
}

// TestClusterOnSpare verifies that the other nodes of a cluster know the address and the port of a spare
// that has taken the place of the first one.
func TestClusterOnSpare(t *testing.T) {
	isUp := new(atomic.Bool)
	isUp.Store(true)
	inBubbleOf(t, func(r *run) {
		r.spares, r.frameworks = 1, map[string]framework.Framework{"ray": testCluster{isUp: isUp}}
	}, 4, `
  - {name: store, nodes: 1, command: serve}
  - {name: rl, nodes: 2, nodes-per-instance: 2, framework: ray, restarts: 1}
`, func(r *run) {
		r.kill(1)
		r.lose(false, 1)
		r.sleep(time.Minute)
		var heads []string // known to the worker
		r.mu.Lock()
		for _, one := range r.tasks {
			if head := one.env("HEAD"); head != "" {
				heads = append(heads, head)
			}
		}
		r.mu.Unlock()
		r.want("heads", heads, "10.0.0.2:20000", "10.0.0.4:30000")
	})
}

// TestClusterCommand verifies that the command of a cluster starts when all members are listed, at
// the role's own port, and that it and the processes of the roles beside and after it find the head.
func TestClusterCommand(t *testing.T) {
	port := listenInBlock(t)
	isUp, isListed := new(atomic.Bool), new(atomic.Bool)
	isUp.Store(true)
	inBubbleOf(t, func(r *run) {
		r.address, r.firstPort = "127.0.0.1", port-roles.BlockSize+1 // the last port of the block
		cluster := testCluster{isUp: isUp, isListed: isListed, hasWorkers: true}
		r.frameworks = map[string]framework.Framework{"ray": cluster}
	}, 2, `
  - {name: rl, nodes: 2, nodes-per-instance: 2, framework: ray, command: serve}
  - {name: train, nodes: head, command: train, after: [rl]}
  - {name: beside, with: rl, nodes: 1, command: ask}
  - {name: other, nodes: head, command: ask}
  - {name: several, with: rl, nodes: 2, nodes-per-instance: 1, framework: ray}
  - {name: ofseveral, nodes: head, command: ask, after: [several]}
  - {name: ofboth, with: several, nodes: 1, command: ask, after: [rl], env: {RAY_ADDRESS: ""}}
`, func(r *run) {
		r.later()
		processes := func() []string { return slices.Sorted(slices.Values(r.nodes[0].starter.Left())) }
		r.want("processes without members", processes(),
			"beside.0", "ofseveral.0", "other.0", "rl.0.0", "rl.0.0-worker", "several.0", "several.0-worker")
		r.want("marks without members", r.names(signal.NodesDir, "i0000.g0."),
			"0000.i0000.g0.head", "0001.i0000.g0.ready")
		isListed.Store(true)
		r.later()
		r.want("processes", processes(),
			"beside.0", "ofboth.0", "ofseveral.0", "other.0", "rl.0.0", "rl.0.0-command", "rl.0.0-worker",
			"several.0", "several.0-worker", "train.0")
		address := fmt.Sprintf("127.0.0.1:%d", port)
		for name, head := range map[string]string{
			"rl.0.0.g0": address, "train.0.0.g0": address, "beside.0.0.g0": address,
			"other.0.0.g0": "", "ofseveral.0.0.g0": "", "ofboth.0.0.g0": "", // it is not one cluster
		} {
			process, ray := r.find(name), ""
			if head != "" {
				ray = "ray://" + head
			}
			if got := process.env(framework.HeadAddressVariable); got != head {
				t.Errorf("the head of %s is at %q, want %q", name, got, head)
			}
			if got := process.env("RAY_ADDRESS"); got != ray {
				t.Errorf("%s connects to %q, want %q", name, got, ray)
			}
		}
		if got := r.find("rl.0.0.g0").env("BRINGUPD_PORT"); got != fmt.Sprint(r.firstPort) {
			t.Errorf("the command serves at %s", got)
		}
		r.exit("rl.0.1.g", 3)
		r.later()
		r.wantCause(record.Failure{Child: "rl.0.1", Code: 3})
	})
}
