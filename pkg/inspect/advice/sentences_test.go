package advice

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var update = flag.Bool("update", false, "write what the last words are into testdata")

// plight is one way in which a job ends.
type plight struct {
	name     string
	end      ending
	launcher launcher.Launcher // empty: Slurm
	before   bool              // the gate never opened
	at       record.Phase      // the phase that the head entered last; empty: the cause's
	left     []string
	events   []record.Event
	ownLogs  string // of the framework
	world    bool   // of ranks
	driver   string // empty: train.py
	oom      bool   // the kernel killed processes of the driver
	silent   bool   // the driver printed nothing
	advice   string // of the framework, for the driver's lines
}

func reported(findings ...check.Finding) func(*record.Failure) {
	return func(f *record.Failure) {
		f.Report, _ = json.Marshal(check.Report{Host: f.Host, Verdict: check.Fail, Findings: findings})
	}
}

// at is the wall-clock time of all records.
var at = time.Date(2026, 11, 21, 3, 12, 44, 0, time.UTC)

// cause returns a failure record of a node.
func cause(node int, kind health.Kind, phase record.Phase, what string, change ...func(*record.Failure)) record.Failure {
	rec := record.Failure{
		Header: record.Header{Version: 1, Nonce: "nonce", NodeIndex: node, Host: fmt.Sprintf("n%d", node), WrittenAt: at},
		Kind:   kind, Message: what, Phase: phase,
	}
	for _, do := range change {
		do(&rec)
	}
	return rec
}

func lost(nodes ...int) func(*record.Failure) {
	return func(f *record.Failure) { f.LostNodes = nodes }
}

// died sets a child's end; code is its exit code if no signal ended it.
func died(child, log, exit, sig string, code int, lines ...string) func(*record.Failure) {
	return func(f *record.Failure) {
		f.Child, f.Log, f.ExitText, f.Signal, f.Code, f.Lines = child, log, exit, sig, code, lines
	}
}

func ofWorld(number int, gpus string) func(*record.Failure) {
	return func(f *record.Failure) { f.WorldRank = &record.WorldRank{Number: number, GPUs: gpus} }
}

// consequencesOfRanks returns failures of ranks of the world, each on the node with its number.
func consequencesOfRanks(numbers ...int) (records []record.Failure) {
	for _, number := range numbers {
		records = append(records, cause(number, health.RankFailed, "driver", "it failed, too", ofWorld(number, "")))
	}
	return records
}

func consequences(kind health.Kind, phase record.Phase, nodes ...int) (records []record.Failure) {
	for _, node := range nodes {
		record := cause(node, kind, phase, "it failed, too")
		switch kind {
		case health.ServiceDied, health.SandboxDied:
			record.ExitText = "exit code 1"
		case health.PeerLost, health.HostLost:
			record.NodeIndex, record.Host, record.LostNodes = 0, "n0", []int{node}
		}
		records = append(records, record)
	}
	return records
}

// ending describes how a job has ended.
type ending struct {
	code         int
	word, why    string
	cause        *record.Failure // nil if nothing failed
	nodes        []string
	consequences []record.Failure
}

// endedBy returns the end that follows from a cause, with other failures.
func endedBy(first record.Failure, more ...record.Failure) ending {
	v := health.DecideVerdict([]health.ObservedFailure{{Failure: first}}, func(node int) string { return fmt.Sprintf("n%d", node) })
	return ending{code: v.Code, word: v.Name, why: v.Cause.Message, cause: &v.Cause, nodes: v.BadNodes, consequences: more}
}

var plights = []plight{
	{name: "orderly", end: ending{word: health.DriverOutcomeName, why: "the driver has ended: exit code 0"}},
	{name: "stopped", end: ending{word: "stopped", code: 143, why: "a stop was requested"}},
	{name: "time-up", end: endedBy(cause(0, health.JobDeadlinePassed, "driver", "the --deadline of 2h has passed, and the driver had run for 1h58m of it"))},
	{
		name: "ranks-hang", world: true,
		end: endedBy(cause(0, health.DeadlinePassed, "driver", "no rank has used CPU time or printed anything for 30m (--hang-timeout); daemon-0000.log has what each of them was doing")),
	},
	{
		name: "ranks-failed", world: true,
		end: ending{word: health.DriverOutcomeName, code: 1, why: "all ranks have ended; 3 failed, rank 1 first: exit code 1"},
	},
	{name: "driver-failed", end: ending{word: health.DriverOutcomeName, code: 3, why: "the driver has ended: exit code 3"}},
	{
		name: "driver-failed-and-restarts",
		end: func() ending {
			failed := endedBy(cause(0, health.DriverFailed, "driver", "the driver has ended: exit code 3"))
			failed.word, failed.code = health.DriverOutcomeName, 3
			return failed
		}(),
	},
	{
		name: "driver-advice", advice: "enable the dashboard",
		end: ending{word: health.DriverOutcomeName, code: 1, why: "the driver has ended: exit code 1"},
	},
	{
		name: "driver-killed",
		end:  ending{word: health.DriverOutcomeName, code: 137, why: "the driver has ended: killed by SIGKILL (perhaps out of memory: see dmesg)"},
		left: []string{"worker: cannot end pid 4242"},
	},
	{
		name: "driver-out-of-memory", oom: true,
		end: ending{word: health.DriverOutcomeName, code: 137, why: "the driver has ended: killed by SIGKILL: the kernel has ended 1 process of this cgroup because memory ran out (limit 64 GiB; /sys/fs/cgroup)"},
	},
	{name: "driver-silent", silent: true, end: ending{word: health.DriverOutcomeName, code: 1, why: "the driver has ended: exit code 1"}},
	{
		name: "daemon-died",
		end:  endedBy(cause(0, health.DaemonDied, "driver", "the daemon of node 17 (n17) has died: its host has closed the peer link", lost(17)), consequences(health.ServiceDied, "driver", 2, 3, 4, 5)...),
	},
	{
		name: "host-lost",
		end: endedBy(cause(0, health.HostLost, "driver", "the host of node 17 (n17) is lost: nothing there has responded for 9.2s", lost(17)),
			slices.Concat(consequences(health.PeerLost, "driver", 30, 31), consequences(health.ServiceDied, "driver", 18))...),
	},
	{name: "host-hangs", end: endedBy(cause(0, health.HostHangs, "driver", "node 17 (n17) hangs: the kernel of its host responds, but its daemon, or its mount of the shared file system, has not for 9.2s", lost(17)))},
	{name: "cut-off", end: endedBy(cause(3, health.CutOff, "driver", "node 3 (n3) is cut off from the others: its network interface eth0 is down", lost(3)))},
	{name: "peer-lost", end: endedBy(cause(0, health.PeerLost, "driver", "node 17 (n17) is lost: no heartbeat for 6.7s (the daemon was killed, or the node or its mount hangs)", lost(17)))},
	{name: "not-back", end: endedBy(cause(0, health.NotReturned, "join", "node 17 (n17) was lost in attempt 1 and has not come back within 30s", lost(17)))},
	{name: "head-lost", end: endedBy(cause(3, health.PeerLost, "driver", "the head, node 0 (n0), is lost: node 3 (n3) has seen no heartbeat of it for 6.7s", lost(0)))},
	{
		name: "service-killed",
		end: endedBy(cause(2, health.ServiceDied, "driver", "the worker of node 2 (n2) died: killed by SIGKILL (perhaps out of memory: see dmesg)",
			died("worker", "worker-0002.log", "killed by SIGKILL (perhaps out of memory: see dmesg)", "SIGKILL", 0,
				"loading shard 3 of 8", "\x1b[32mstep 41\x1b[0m: 10%\rstep 41: 90%\r\n", "a\ttab and a bell\a, \xff")),
			consequences(health.SandboxDied, "driver", 1, 2)...),
	},
	{
		name: "service-out-of-memory",
		end: endedBy(cause(2, health.ServiceDied, "driver", "the worker of node 2 (n2) died: killed by SIGKILL: the kernel has ended 1 process of this cgroup because memory ran out (limit 64 GiB; /sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/step_0/user/task_0)",
			died("worker", "worker-0002.log", "killed by SIGKILL", "SIGKILL", 0, "loading shard 3 of 8"),
			func(f *record.Failure) {
				f.OOM = &record.OOMReport{Kills: 1, Limit: 64 << 30, Cgroup: "/sys/fs/cgroup"}
			})),
	},
	{
		name: "service-ended-with-0",
		end: endedBy(cause(2, health.ServiceDied, "driver", "the worker of node 2 (n2) ended with 0, but it must run as long as the job",
			died("worker", "worker-0002.log", "exit code 0", "", 0))),
	},
	{
		name: "service-of-ray", ownLogs: "Ray's own logs",
		end: endedBy(cause(5, health.ServiceDied, "driver", "the ray worker of node 5 (n5) died: exit code 1 (raylet.out: Check failed)",
			died("ray worker", "ray-worker-0005.log", "exit code 1", "", 1, slices.Repeat([]string{"a line of Ray"}, 20)...))),
	},
	{
		name: "service-not-ready", before: true,
		end: endedBy(cause(2, health.ServiceDied, "workers", "the worker of node 2 (n2) was not ready within 5m0s: connection refused by 127.0.0.1:7000",
			died("worker", "worker-0002.log", "", "", 0, "waiting for a licence")),
			func() []record.Failure {
				more := consequences(health.ServiceDied, "workers", 3)
				more[0].ExitText = ""
				return more
			}()...),
	},
	{
		name: "instance-not-ready", before: true,
		end: endedBy(cause(2, health.ServiceDied, "workers", "the judge.0 of node 2 (n2) was not ready within 3s: connection refused by 127.0.0.1:7000",
			died("judge.0", "judge-0.log", "", "", 0, "loading weights"))),
	},
	{
		name: "vital-ended",
		end: endedBy(cause(2, health.ServiceDied, "driver", "the ray worker of node 2 (n2) died: its raylet has ended",
			died("ray worker", "ray-worker-0002.log", "", "", 0, "ERR scripts.py:128 -- raylet.out: exit code -9 (signal 9)"))),
	},
	{
		name: "oneshot-not-ended", before: true,
		end: endedBy(cause(2, health.ServiceDied, "workers", "the prepare.0 of node 2 (n2) had not ended after 10m0s",
			died("prepare.0", "prepare-0.log", "", "", 0, "copying"))),
	},
	{
		name: "service-not-found", before: true,
		end: endedBy(cause(2, health.ServiceDied, "workers", "the worker of node 2 (n2) died before it was ready: exit code 127",
			died("worker", "worker-0002.log", "exit code 127", "", 127, "/bin/sh: 1: redis-server: not found"))),
	},
	{
		name: "service-program-not-found", before: true,
		end: endedBy(cause(0, health.ServiceDied, "head", `cannot start the ray head of node 0 (n0): cannot start ray head: "ray": not found in PATH (/usr/bin:/bin)`,
			func(f *record.Failure) { f.Code = 127 })),
	},
	{
		name: "service-port-taken", before: true,
		end: endedBy(cause(0, health.ServiceDied, "head", "cannot start the ray head of node 0 (n0): port 6379 (gcs) is taken: held by pid 4242 (redis-server) of user bob")),
	},
	{
		name: "sandbox",
		end: endedBy(cause(3, health.SandboxDied, "sandbox", "the sandbox of node 3 (n3) died: killed by SIGRTMIN+6",
			died("sandbox", "sandbox-0003.log", "killed by SIGRTMIN+6", "SIGRTMIN+6", 0, "ready"))),
	},
	{
		name: "rank-killed",
		end: endedBy(cause(3, health.RankFailed, "driver", "rank 12 (n3, GPU 2) died: killed by SIGSEGV",
			died("rank 12", "rank-0012.log", "killed by SIGSEGV", "SIGSEGV", 0, "step 41", "loading shard 3 of 8"), ofWorld(12, "2")),
			consequencesOfRanks(3, 4, 13)...),
	},
	{
		name: "rank-failed",
		end: endedBy(cause(3, health.RankFailed, "driver", "rank 12 (n3, GPUs 4-7) failed: exit code 3",
			died("rank 12", "rank-0012.log", "exit code 3", "", 3, slices.Repeat([]string{"  File \"train.py\", line 210"}, 20)...), ofWorld(12, "4-7"))),
	},
	{
		name: "rank-aborted",
		end: endedBy(cause(3, health.RankAborted, "driver", "rank 12 (n3, GPU 2) has aborted the job with code 42: the loss is not a number",
			died("rank 12", "rank-0012.log", "", "", 42, "step 41: loss nan"), ofWorld(12, "2"))),
	},
	{
		name: "setup", before: true,
		end: endedBy(cause(3, health.SetupFailed, "check", "the setup command of node 3 (n3) failed: exit code 1",
			died("setup", "setup-0003.log", "exit code 1", "", 1, "no space left on /local"))),
	},
	{
		name: "check", before: true,
		end: endedBy(cause(3, health.CheckFailed, "check", "node 3 (n3) is not fit for the job: gpu.count: GPU 5 (0000:9b:00.0): GPU_IS_LOST (expected: 8 GPUs)", reported(
			check.Finding{ID: "gpu.count", Device: &check.Device{Index: 5, Bus: "0000:9b:00.0"}, Verdict: check.Fail, Observed: "GPU_IS_LOST", Hint: "power-cycle the node", Class: check.ClassNode},
			check.Finding{ID: "host.shm", Verdict: check.Warn, Hint: "enlarge it"},
		))),
	},
	{
		name: "check-user", before: true,
		end: endedBy(cause(3, health.CheckUser, "check", "node 3 (n3) is not fit for the job: gpu.nvml: no NVIDIA library (expected: 8 GPUs)", reported(
			check.Finding{ID: "gpu.nvml", Verdict: check.Fail, Hint: "ask for nodes with GPUs, or give --gpu-check=off", Class: check.ClassUser},
		))),
	},
	{
		name: "check-environment", before: true,
		end: endedBy(cause(3, health.CheckEnvironment, "check", "node 3 (n3) is not fit for the job: host.disk: TMPDIR=/scratch/login: a byte could not be written: no such file or directory", reported(
			check.Finding{ID: "host.disk", Verdict: check.Fail, Hint: "give a directory that is on every node: --temp-dir, or TMPDIR", Class: check.ClassEnvironment},
		))),
	},
	{
		name: "check-differ", before: true,
		end: endedBy(cause(0, health.NodesDiffer, "check", "the nodes of the job differ: x.gpu_count: 7 on n3 (expected: 8, as on 63 other nodes)", lost(3), reported(
			check.Finding{ID: "x.gpu_count", Verdict: check.Fail, Hint: "look at the nodes with fewer", Class: check.ClassUser},
		))),
	},
	{
		name: "gpu",
		end: endedBy(cause(3, health.GPUFailed, "driver", "Xid 79 on GPU 5 (0000:9b:00.0) of node 3 (n3): it has fallen off the bus", func(f *record.Failure) {
			f.Report = json.RawMessage(`{"action":"reboot the node; where it comes back, have the GPU replaced"}`)
		})),
	},
	{
		name: "driver-failed-after-events",
		end:  ending{word: health.DriverOutcomeName, code: 3, why: "the driver has ended: exit code 3"},
		events: []record.Event{
			{Header: record.Header{NodeIndex: 3, WrittenAt: at}, Message: "Xid 31 on GPU 5 (0000:9b:00.0) of node 3 (n3): an access to memory that does not exist"},
			{Header: record.Header{NodeIndex: 7, WrittenAt: at}, Message: "Xid 13 on GPU 0 of node 7 (n7): \x1b[31mred"},
		},
	},
	{
		name: "gpu-unfit",
		end:  endedBy(cause(3, health.ServiceDied, "driver", "the service of node 3 (n3) has died"), gpuFailed(3)),
		events: []record.Event{
			unfitEvent(4, "n4", `{"kind":"xid","xid":64,"gpu":2,"next":"unfit","meaning":"a row could not be remapped"}`),
			unfitEvent(4, "n4", `{"kind":"recovery","gpu":2,"next":"unfit","meaning":"the GPU asks to be drained"}`),
			unfitEvent(5, "n5", `{"kind":"xid","xid":31,"gpu":2,"next":"fit"}`),
			unfitEvent(6, "n6$(id)", `{"kind":"xid","xid":64,"gpu":2,"next":"unfit"}`),
		},
	},
	{
		name: "share-not-met", before: true,
		end: endedBy(cause(0, health.ShareUnusable, "join", "cannot reach 3 of 64 nodes: n[1-3] did not join through /shared/logs within 2m0s: check that their tasks have started, and that they see the same file system", lost(1, 2, 3))),
	},
	{name: "share-hangs", end: endedBy(cause(3, health.ShareUnusable, "driver", "cannot continue: the shared file system has not responded to node 3 (n3) for 10.1s: see whether /shared/logs/17.0 hangs on that node"))},
	{
		name: "deadline", before: true,
		end: endedBy(cause(0, health.DeadlinePassed, "workers", "the head waited 5m0s for n[3-4] to be up, which neither happened nor failed"),
			consequences(health.SetupFailed, "check", 7)...),
	},
	{
		name: "sandbox-step", before: true, at: "check",
		end: endedBy(cause(0, health.DeadlinePassed, "sandbox", "the gate needs the sandbox of all, and after 5m6s that of n[0-3] is not ready (--start-timeout=5m)")),
	},
	{name: "terminated", end: endedBy(signalledBy("SIGTERM"), consequences(health.PeerLost, "driver", 5)...)},
	{
		name: "ended-by-slurm",
		end: endedBy(cause(1, health.Terminated, "driver", "Slurm ended the job: node 1 (n1) got SIGTERM",
			func(f *record.Failure) { f.Signal = "SIGTERM" })),
	},
	{name: "interrupted", end: endedBy(signalledBy("SIGINT"))},
	{
		name: "signalled", world: true,
		end: endedBy(cause(5, health.Signalled, "driver", "rank 5 (n5) died: killed by SIGHUP, a signal that node 5 (n5) got and passed on",
			func(f *record.Failure) { f.Signal = "SIGHUP" })),
	},
	{name: "aborted", end: endedBy(cause(5, health.Aborted, "driver", "node 5 (n5) has aborted the run, and its record cannot be read: it is damaged"))},
	{name: "gave-up", end: endedBy(cause(0, health.RequeuesExhausted, "driver", "the job has been requeued 3 times, and node 17 (n17) is lost again"))},
	{name: "driver-not-found", before: true, end: endedBy(cause(0, health.NotFound, "join", "cannot start the driver on node 0 (n0): train.py: not found in PATH"))},
	{
		name: "driver-quoted-line", before: true, driver: `python3 -c "print(1)"`,
		end: endedBy(cause(0, health.NotFound, "join", `cannot start the driver on node 0 (n0): "python3 -c \"print(1)\"": not found in PATH (/usr/bin:/bin)`)),
	},
	{
		name: "driver-path-not-found", before: true, driver: "./run.sh", // the message has the shortest form of the path
		end: endedBy(cause(0, health.NotFound, "join", "cannot start the driver on node 0 (n0): run.sh: not found")),
	},
	{name: "spawned-not-found", end: endedBy(cause(2, health.NotFound, "driver", "cannot start rank 13 on n2: /no/such: not found"))},
	{name: "driver-not-executable", before: true, end: endedBy(cause(0, health.NotExecutable, "join", "cannot start the driver on node 0 (n0): train.py: not executable: its first line ends in a carriage return, so that the interpreter is \"/bin/bash\\r\": save it with Unix line endings, for example by: sed -i 's/\\r$//' train.py"))},
	{name: "usage", before: true, end: endedBy(cause(3, health.Usage, "join", "cannot take part as node 3 (n3): its configuration differs from the head's; give all nodes the same flags, environment variables and configuration file"))},
	{name: "launch", before: true, end: endedBy(cause(3, health.Launch, "join", "cannot take part as node 3 (n3) of 8: the head runs 64 nodes; start all nodes with one launch"))},
	{name: "internal", end: endedBy(cause(3, health.Internal, "driver", "cannot encode a record of node 3: odd"))},
	{
		name: "local", launcher: launcher.LauncherLocal,
		end: endedBy(cause(0, health.PeerLost, "driver", "nodes 1,3 are lost: no heartbeat for 6.7s", lost(1, 3)), consequences(health.ServiceDied, "driver", 0, 2, 4)...),
	},
}

func unfitEvent(node int, host, detail string) record.Event {
	return record.Event{Header: record.Header{NodeIndex: node, Host: host, WrittenAt: at}, Message: "Xid 64 on " + host, Detail: json.RawMessage(detail)}
}

func gpuFailed(node int) record.Failure {
	return cause(node, health.GPUFailed, "driver", "Xid 79", func(f *record.Failure) {
		f.Report = json.RawMessage(`{"kind":"xid","xid":79,"gpu":5,"next":"unfit","meaning":"it has fallen off the bus"}`)
	})
}

func signalledBy(name string) record.Failure {
	kind := health.Terminated
	if name == "SIGINT" {
		kind = health.Interrupted
	}
	return cause(0, kind, "driver", "node 0 (n0) was told to end by "+name, func(f *record.Failure) { f.Signal = name })
}

// tells returns a node's summary of the end.
func (p plight) tells(node int) *Summary {
	const size = 64
	end := p.end
	result := &record.Result{
		Code: end.code, Outcome: end.word, Reason: end.why, Cause: end.cause, BadNodes: end.nodes,
		FailureContext: record.FailureContext{Events: p.events, AtPhase: "driver", AfterGate: 192 * time.Second},
		RunTimings:     record.RunTimings{TimeToGate: 12_440 * time.Millisecond, Duration: 205 * time.Second},
	}
	if p.before {
		result.AtPhase, result.AfterGate, result.TimeToGate, result.Duration = end.cause.Phase, 0, 0, 8340*time.Millisecond
	}
	a := &Summary{
		Result: result, RunDir: "/shared/logs/17.0", Consequences: end.consequences, LeftProcesses: p.left, LogDir: "/shared/logs", Driver: "train.py",
		ID:          launcher.Identity{NodeIndex: node, Host: fmt.Sprintf("n%d", node), Size: size, Launcher: p.startedBy(), Job: "17"},
		DriverGrace: 10 * time.Second, GivenGrace: p.givenGrace(), HasRanks: p.world,
		Framework: framework.Traits{LogsProgram: p.ownLogs, FreePortAdvice: "--framework-port=0 picks a free port", AdviseDriver: func(lines []string) string { return p.advice }},
		Timeouts:  Timeouts{Join: 2 * time.Minute, Start: 5 * time.Minute},
	}
	if p.at != "" {
		a.AtPhase = p.at
	}
	if p.driver != "" {
		a.Driver = p.driver
	}
	if !p.silent {
		a.DriverLines = []string{"the loss is nan"}
	}
	if p.oom {
		a.DriverEnd.OOM = &record.OOMReport{Kills: 1, Limit: 64 << 30, Cgroup: "/sys/fs/cgroup"}
	}
	for node := range size {
		a.HostNames = append(a.HostNames, fmt.Sprintf("n%d", node))
	}
	a.Advice = a.NextSteps()
	return a
}

// givenGrace returns the driver's grace period, which Slurm's KILL has cut if Slurm has ended the job.
func (p plight) givenGrace() time.Duration {
	if p.name == "ended-by-slurm" {
		return 100 * time.Second
	}
	return 10 * time.Second
}

func (p plight) startedBy() launcher.Launcher {
	if p.launcher != "" {
		return p.launcher
	}
	return launcher.LauncherSlurm
}

// words returns the final messages of the head, of the node that the cause concerns, and of an
// unrelated node.
func (p plight) words() string {
	var b strings.Builder
	block := func(who string, lines []string) {
		fmt.Fprintf(&b, "== %s\n", who)
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	block("the head", p.tells(0).HeadMessage())
	if p.end.cause != nil {
		if blamed := p.tells(0).Cause.FaultyNodes()[0]; blamed != 0 {
			block("the node that it is about", p.tells(blamed).NodeMessage())
		}
	}
	block("another node", p.tells(40).NodeMessage())
	return b.String()
}

func TestLastWords(t *testing.T) {
	for _, p := range plights {
		t.Run(p.name, func(t *testing.T) {
			path := filepath.Join("testdata", "lastwords", p.name+".txt")
			got := p.words()
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the last words are others (-update takes them over):\n%s", diff)
			}
		})
	}
}

// TestLastWordsOfEveryKind verifies that the files match the kinds of failure: every kind has its
// texts.
func TestLastWordsOfEveryKind(t *testing.T) {
	told := make(map[health.Kind]bool)
	names := make(map[string]bool)
	for _, p := range plights {
		names[p.name+".txt"] = true
		if p.end.cause != nil {
			told[p.end.cause.Kind] = true
		}
	}
	for _, kind := range health.AllKinds() {
		if !told[kind] {
			t.Errorf("nobody tells of %s", kind)
		}
	}
	files, err := os.ReadDir(filepath.Join("testdata", "lastwords"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !names[file.Name()] {
			t.Errorf("no test writes %s", file.Name())
		}
	}
}

// TestLastWordsAreLines verifies that every line is complete, whatever children print.
func TestLastWordsAreLines(t *testing.T) {
	for _, p := range plights {
		for _, node := range []int{0, 2, 40} {
			a := p.tells(node)
			for _, line := range slices.Concat(a.HeadMessage(), a.NodeMessage(), a.StandaloneMessage()) {
				if strings.TrimSpace(line) == "" || textutil.TerminalLine(line) != line {
					t.Errorf("%s: node %d says %q", p.name, node, line)
				}
			}
			if words := a.NodeMessage(); len(words) > 3 {
				t.Errorf("%s: a node says %q", p.name, words)
			}
		}
	}
}

func TestAloneWords(t *testing.T) {
	for _, tc := range []struct {
		name string
		what string
		kind health.Kind
		want []string
	}{
		{
			"no directory", "cannot use the directory /logs on n3: its parent / does not exist", health.ShareUnusable,
			[]string{
				"bringupd: node 3 (n3) ends with code 66: cannot use the directory /logs on n3: its parent / does not exist",
				"  next: see the file system of each node, by a line of the script before bringupd: srun --label stat -f -c %T /shared/logs",
				"  next: or give another place with --log-dir",
			},
		},
		{"a signal", "node 3 (n3) was told to end by SIGINT", health.Interrupted, []string{"bringupd: node 3 (n3) ends with code 130: node 3 (n3) was told to end by SIGINT"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := plight{end: endedBy(cause(3, tc.kind, "join", tc.what)), before: true}.tells(3)
			a.RunDir = ""
			a.Advice = a.NextSteps()
			if diff := cmp.Diff(tc.want, a.StandaloneMessage()); diff != "" {
				t.Error(diff)
			}
		})
	}
}
