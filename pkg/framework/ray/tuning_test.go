package ray

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/framework"
)

func TestTuning(t *testing.T) {
	waits := map[string]string{
		"RAY_worker_register_timeout_seconds": "120", "RAY_gcs_rpc_server_connect_timeout_s": "120",
		"RAY_gcs_rpc_server_reconnect_timeout_s": "120", "RAY_gcs_server_request_timeout_seconds": "120",
	}
	less := maps.Clone(waits)
	delete(less, "RAY_gcs_server_request_timeout_seconds")
	all := maps.Clone(waits)
	maps.Copy(all, map[string]string{
		"RAY_gcs_server_rpc_server_thread_num": "96", "RAY_gcs_server_rpc_client_thread_num": "96",
		"RAY_num_server_call_thread": "48", "RAY_gcs_max_active_rpcs_per_handler": "19200",
		"RAY_raylet_report_resources_period_milliseconds": "500", "RAY_task_events_report_interval_ms": "5000",
		"RAY_grpc_keepalive_time_ms": "60000", "RAY_grpc_keepalive_timeout_ms": "60000",
		"RAY_num_workers_soft_limit":                 "16",
		"RAY_ray_syncer_message_refresh_interval_ms": "10000", "RAY_core_worker_internal_heartbeat_ms": "5000",
		"RAY_health_check_period_ms": "10000", "RAY_enable_timeline": "false", "RAY_event_stats": "false",
	})
	for _, tc := range []struct {
		name string
		size int
		env  string
		want map[string]string
	}{
		{"a few nodes", 7, "", map[string]string{}},
		{"some", 8, "", waits},
		{"the user's own", 31, "RAY_gcs_server_request_timeout_seconds=60", less},
		{"many", 32, "", all},
		{"it is not known how many", 0, "", all},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := testNode(t, 0)
			node.Size, node.CPUs = tc.size, 96
			if tc.env != "" {
				node.Environ = append(node.Environ, tc.env)
			}
			want := maps.Clone(tc.want)
			maps.Copy(want, daemonSettings)
			if diff := cmp.Diff(want, daemonVariables(node)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTuningIsKnownAhead verifies that a worker started in advance gets the same settings as a
// later one.
func TestTuningIsKnownAhead(t *testing.T) {
	head, worker := testNode(t, 0), testNode(t, 1)
	head.Size, worker.Size = 64, 64
	_, endpoint, err := Cluster{}.HeadService(head)
	if err != nil {
		t.Fatal(err)
	}
	later, err := Cluster{}.WorkerService(worker, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	ahead, err := Cluster{}.WorkerService(worker, framework.Endpoint{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ahead.Env)
	slices.Sort(later.Env)
	if diff := cmp.Diff(ahead.Env, later.Env); diff != "" {
		t.Error(diff)
	}
	if got := endpoint.Env["RAY_health_check_period_ms"]; got != "10000" {
		t.Errorf("the driver is told %q", got)
	}
}
