package ray

import (
	"maps"
	"strconv"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/framework"
)

// A tuningSetting is a setting of Ray for jobs with many nodes.
type tuningSetting struct {
	minNodes int // minimum number of nodes
	name     string
	value    string
}

// clusterTunings are for all of Ray, including the driver. Names and values are those of NeMo RL's
// ray.sub (github.com/NVIDIA-NeMo/RL), where they were found in jobs of hundreds of nodes whose
// actors register in bursts; the numbers of nodes are ours. With fewer nodes Ray's defaults apply,
// with which it detects a death sooner.
var clusterTunings = []tuningSetting{
	// A busy GCS answers late, so its peers wait longer.
	{8, "RAY_worker_register_timeout_seconds", "120"},
	{8, "RAY_gcs_rpc_server_connect_timeout_s", "120"},
	{8, "RAY_gcs_rpc_server_reconnect_timeout_s", "120"},
	{8, "RAY_gcs_server_request_timeout_seconds", "120"},
	// It gets fewer requests and reports.
	{32, "RAY_raylet_report_resources_period_milliseconds", "500"},
	{32, "RAY_task_events_report_interval_ms", "5000"},
	{32, "RAY_grpc_keepalive_time_ms", "60000"},
	{32, "RAY_grpc_keepalive_timeout_ms", "60000"},
	{32, "RAY_ray_syncer_message_refresh_interval_ms", "10000"},
	{32, "RAY_core_worker_internal_heartbeat_ms", "5000"},
	{32, "RAY_health_check_period_ms", "10000"},
	// These are for observation only.
	{32, "RAY_enable_timeline", "false"},
	{32, "RAY_event_stats", "false"},
	// Each idle worker process has a connection to the GCS.
	{32, "RAY_num_workers_soft_limit", "16"},
}

// gcsTunings returns settings for the daemons of a node with so many CPUs: more threads, and more
// concurrent calls.
func gcsTunings(cpus int) []tuningSetting {
	if cpus <= 0 {
		return nil // Ray decides itself
	}
	count := func(n int) string { return strconv.Itoa(max(1, n)) }
	return []tuningSetting{
		{32, "RAY_gcs_server_rpc_server_thread_num", count(cpus)},
		{32, "RAY_gcs_server_rpc_client_thread_num", count(cpus)},
		{32, "RAY_num_server_call_thread", count(cpus / 2)},
		{32, "RAY_gcs_max_active_rpcs_per_handler", count(200 * cpus)},
	}
}

// daemonVariables returns variables for the daemons of a node, which the user can override.
func daemonVariables(node framework.Node) map[string]string {
	set := applicableTunings(node, append(gcsTunings(node.CPUs), clusterTunings...))
	maps.Copy(set, daemonSettings)
	return set
}

// applicableTunings returns the tunings for the number of nodes that the user does not set. If
// there are spares, the head does not know the number, and many nodes are assumed.
func applicableTunings(node framework.Node, all []tuningSetting) map[string]string {
	set := map[string]string{}
	for _, t := range all {
		if _, users := envlist.Lookup(node.Environ, t.name); !users && (node.Size == 0 || node.Size >= t.minNodes) {
			set[t.name] = t.value
		}
	}
	return set
}
