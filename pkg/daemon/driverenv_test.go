package daemon

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestChildAndDriverEnv(t *testing.T) {
	dir, err := signal.CreateRun(bounded(t), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "facts", Size: 2, Host: "n0"}, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	n := bare(t, deps.Config{Config: config.Config{Identity: testIdentity(1, 2)}}, dir)
	child := n.childEnv([]string{"HOME=/h", "BRINGUPD_NODE_RANK=99", "NOTIFY_SOCKET=/run/notify", "TRACESTATE=of-another", "BRINGUPD_GPU_COUNT=99"}, n.launchPlace())
	want := []string{"HOME=/h", "BRINGUPD_ATTEMPT=0", "BRINGUPD_LAUNCH_COUNT=2", "BRINGUPD_LAUNCH_RANK=1", "BRINGUPD_NODE_COUNT=2", "BRINGUPD_NODE_HOST=n1", "BRINGUPD_NODE_RANK=1", "BRINGUPD_RUN=17.0", "BRINGUPD_RUN_DIR=" + dir.Path(), "TRACEPARENT=" + n.traceContext().String()}
	if diff := cmp.Diff(want, child); diff != "" {
		t.Error(diff)
	}
	n.cfg.Team = membership.NodeRange{Min: 1, Max: 1}
	spare := n.childEnv([]string{"HOME=/h", "BRINGUPD_NODE_RANK=99"}, n.launchPlace())
	want = []string{"HOME=/h", "BRINGUPD_ATTEMPT=0", "BRINGUPD_LAUNCH_COUNT=2", "BRINGUPD_LAUNCH_RANK=1", "BRINGUPD_NODE_HOST=n1", "BRINGUPD_RUN=17.0", "BRINGUPD_RUN_DIR=" + dir.Path(), "TRACEPARENT=" + n.traceContext().String()}
	if diff := cmp.Diff(want, spare); diff != "" {
		t.Error(diff)
	}
	for _, tc := range []struct {
		name     string
		hosts    []string
		endpoint framework.Endpoint
		want     []string
	}{
		{"without a service", []string{"n0"}, framework.Endpoint{}, []string{"X=0", "BRINGUPD_HOSTS=n0"}},
		{"with one", []string{"n0", "n1"}, framework.Endpoint{Address: "10.0.0.1", Env: map[string]string{"RAY_ADDRESS": "10.0.0.1:6379", "X": "1"}}, []string{"BRINGUPD_HEAD_ADDRESS=10.0.0.1", "BRINGUPD_HOSTS=n0,n1", "RAY_ADDRESS=10.0.0.1:6379", "X=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, n.driverEnv([]string{"X=0"}, tc.hosts, tc.endpoint)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
