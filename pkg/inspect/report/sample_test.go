package report

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var dawn = time.Date(2026, 11, 21, 2, 10, 50, 0, time.UTC)

func mark(at time.Duration) timeline.RecordTime {
	return timeline.RecordTime{Exists: true, At: dawn.Add(at)}
}

// sample returns a plausible run: the last node but one is slow in its check, and, if fails is set,
// the last node's service dies while the driver runs.
func sample(size int, fails bool) *timeline.Run {
	random := rand.New(rand.NewPCG(1, uint64(size)))
	wobble := func(d time.Duration) time.Duration { return d + time.Duration(random.Int64N(int64(d)/2)) }
	end := 3*time.Hour + 12*time.Minute
	run := &timeline.Run{
		Path: "/scratch/me/bringupd/4711.0", Name: "4711.0", ReadAt: dawn.Add(4 * time.Hour),
		Job: &record.Job{
			Header: record.Header{Version: record.FormatVersion, Host: "n0", WrittenAt: dawn.Add(200 * time.Millisecond)}, Run: "4711.0", Size: size, ConfigDigest: "7fedb824288bff83",
			Addresses: []string{"10.0.0.1"}, LinkAddresses: []string{"10.0.0.1:41801"}, ProgramVersion: "v0.6.0", PID: 4242, FileSystem: "lustre",
			Plan: &record.Plan{Framework: "ray", Phases: []record.Phase{"join", "check", "head", "workers", "driver"}},
		},
	}
	slow, dies := size-2, size-1
	latest := time.Duration(0)
	var ups []time.Duration
	for node := range size {
		host := fmt.Sprintf("n%d", node)
		n := timeline.Node{NodeIndex: node, Host: host, Clock: timeline.Clock{Known: node > 0, Offset: time.Duration(node) * 7 * time.Millisecond, Residual: 3 * time.Millisecond}}
		from := time.Duration(random.Int64N(int64(600 * time.Millisecond)))
		span := func(phase string, took time.Duration) time.Duration {
			n.Phases = append(n.Phases, timeline.PhaseSpan{Phase: phase, Daemon: "daemon", From: dawn.Add(from), To: dawn.Add(from + took), OK: true})
			from += took
			return from
		}
		state := func(word record.State, at time.Duration) {
			n.States = append(n.States, timeline.NodeState{Word: word, At: dawn.Add(at)})
		}
		joined := span("join", wobble(700*time.Millisecond))
		state(record.StateJoined, joined)
		took := wobble(1500 * time.Millisecond)
		if node == slow {
			took = 7200 * time.Millisecond
		}
		checked := span("check", took)
		state(record.StateChecked, checked)
		n.Check = sampleCheck(node, slow, host)
		if node > 0 {
			from = max(from, 3200*time.Millisecond)
		} else {
			from = 1800 * time.Millisecond
			span("head", 1400*time.Millisecond)
		}
		up := span("workers", wobble(1100*time.Millisecond))
		state(record.StateServiceUp, up)
		ups = append(ups, up)
		latest = max(latest, up)
		n.Joined = &record.Joined{Address: fmt.Sprintf("10.0.%d.%d", node/250, node%250+1), PID: 4000 + node, ProgramVersion: "v0.6.0"}
		n.Done = &record.Done{Share: &record.CallStats{Calls: 44 + int64(node%7), ByKind: map[string]int64{"open": 14, "list": 12, "close": 14, "rename": 4 + int64(node%7)}}}
		run.Nodes = append(run.Nodes, n)
	}
	gate := latest + 300*time.Millisecond
	for node := range run.Nodes {
		n := &run.Nodes[node]
		to := end
		if node == dies && fails {
			to = end - 400*time.Millisecond
		}
		phase := func(name string, from, to time.Duration, ok bool) {
			n.Phases = append(n.Phases, timeline.PhaseSpan{Phase: name, Daemon: "daemon", From: dawn.Add(from), To: dawn.Add(to), OK: ok})
		}
		if node == 0 {
			phase("gate", latest, gate, true)
		}
		phase("driver", max(gate, ups[node]+200*time.Millisecond), to, node != dies || !fails)
		phase("drain", to, end+time.Duration(random.Int64N(int64(2*time.Second))), true)
		n.States = append(n.States, timeline.NodeState{Word: record.StateDone, At: dawn.Add(end + 2*time.Second)})
		n.LastSign = dawn.Add(end + 2*time.Second)
	}
	run.Control = timeline.Control{Job: mark(200 * time.Millisecond), Head: mark(3200 * time.Millisecond), Go: mark(gate),
		HeadRecord: &record.Head{Address: "10.0.0.1:6379", Env: map[string]string{"RAY_ADDRESS": "10.0.0.1:6379", "RAY_PASSWORD": "hush"}}}
	run.Result = sampleResult(run, end, gate, fails)
	return run
}

func sampleCheck(node, slow int, host string) *check.Report {
	r := &check.Report{Host: host, NodeIndex: node, Verdict: check.Pass, Findings: []check.Finding{
		{ID: "gpu.count", Verdict: check.Pass, Observed: "8 GPUs", Source: "NVML"},
		{ID: "gpu.ecc", Verdict: check.Pass, Observed: "no uncorrected errors"},
		{ID: "limits.nofile", Verdict: check.Pass, Observed: fmt.Sprint(1048576 + node)},
		{ID: "net.ib", Verdict: check.Skip, Observed: "no InfiniBand here"},
	}}
	if node == slow {
		r.Verdict = check.Warn
		r.Findings = append(r.Findings, check.Finding{ID: "gpu.pcie", Verdict: check.Warn, Device: &check.Device{Index: 3, Bus: "0000:3b:00.0"},
			Observed: "the link runs at 8 of 16 lanes", Expected: "16 lanes", Hint: "reseat the card, or drain the node", Class: check.ClassNode})
	}
	if node%3 == 1 {
		r.Findings = append(r.Findings, check.Finding{ID: "limits.memlock", Verdict: check.Warn, Observed: "64 MiB", Expected: "unlimited", Hint: "RDMA needs it: ulimit -l unlimited", Class: check.ClassNode})
	}
	return r
}

func sampleResult(run *timeline.Run, end, gate time.Duration, fails bool) *record.Result {
	size := len(run.Nodes)
	r := &record.Result{
		Header: record.Header{Host: "n0", WrittenAt: dawn.Add(end)}, Run: run.Name, Size: size, Outcome: "driver", Reason: "the driver has ended: exit code 0",
		RunTimings: record.RunTimings{Duration: end, TimeToGate: gate, ProgramVersion: "v0.6.0"},
		Share: &record.FileSystemReport{Head: record.CallStats{Calls: 153, Retries: 2, ByKind: map[string]int64{"open": 46, "list": 35, "close": 44, "write": 8, "rename": 5, "read": 15},
			Slowest: record.SlowCall{Op: "open", Path: "/scratch/me/bringupd/4711.0/control/.drain.tmp", Took: 41 * time.Millisecond}}},
		Links: &record.LinkReport{Reconnects: 1},
	}
	if !fails {
		return r
	}
	dead := size - 1
	cause := record.Failure{
		Header: record.Header{NodeIndex: dead, Host: fmt.Sprintf("n%d", dead), WrittenAt: dawn.Add(end - 400*time.Millisecond + time.Duration(dead)*7*time.Millisecond)}, Kind: "service", Phase: "driver",
		Message: fmt.Sprintf("the worker's service on n%d has died: killed by signal 9 (SIGKILL); the kernel ended 1 process for lack of memory", dead), Child: "worker", Signal: "SIGKILL", ChildExit: record.ChildExit{ExitText: "killed by SIGKILL"},
		Log: signal.LogName("worker", dead, size), Lines: []string{
			"raylet: object store is 97 % full, spilling", `{"evil":"</script><script>window.hacked=1</script>"}`, "<img src=x onerror=\"window.hacked=2\">", "\x1b[31mred\x1b[0m \x1b]0;title\x07gone",
			"raylet: cannot allocate 8.0 GiB for a task argument", "Killed",
		},
	}
	r.Code, r.Outcome, r.Reason, r.Cause, r.AtPhase = 77, "service", cause.Message, &cause, "driver"
	r.Advice = []string{"give each node more memory (--mem), or the tasks less: the limit here is 480 GiB", "read logs/" + cause.Log}
	r.BadNodes = []string{cause.Host}
	for _, node := range []int{0, 1} {
		r.Consequences = append(r.Consequences, record.Failure{Header: record.Header{NodeIndex: node, Host: fmt.Sprintf("n%d", node), WrittenAt: dawn.Add(end)}, Kind: "aborted", Phase: "driver",
			Message: "the head has ended the job"})
	}
	run.Nodes[dead].Failures = []record.Failure{cause}
	run.Nodes[1].EventRecords = []record.Event{{Message: "Xid 63 on GPU 2: a row was remapped", Count: 2}}
	r.Events = []record.Event{{Header: record.Header{NodeIndex: 1, Host: "n1"}, Message: "Xid 63 on GPU 2: a row was remapped", Count: 2, Detail: json.RawMessage("{}")}}
	return r
}

// sampleLogs returns the ends of the logs that ReadLogs would find.
func sampleLogs(run *timeline.Run) (logs []LogTail) {
	size := len(run.Nodes)
	add := func(name string, node int, lines ...string) {
		logs = append(logs, LogTail{Name: name, NodeIndex: node, Size: 91234, Cut: true, Lines: lines})
	}
	add("driver.log", 0, "step 18200  loss 1.8812  4102 tokens/s", "step 18300  loss 1.8790  4098 tokens/s", "Traceback (most recent call last):",
		`  File "train.py", line 212, in <module>`, "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.")
	add(signal.LogName("worker", size-1, size), size-1, "raylet: object store is 97 % full, spilling", "<script>window.hacked=3</script>", "raylet: cannot allocate 8.0 GiB for a task argument", "Killed")
	add("head.log", 0, "gcs_server: node n3 is dead: missed too many heartbeats")
	for node := range size {
		if size <= MaxFullRows || node == 0 {
			add(signal.LogName("daemon", node, size), node, "02:10:51.402 info phase join is over  took=701ms", "02:10:53.011 info phase check is over  took=1.6s", "02:10:54.209 info phase workers is over  took=1.2s")
		}
	}
	return logs
}
