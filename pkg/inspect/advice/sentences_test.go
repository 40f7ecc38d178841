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

var update = flag.Bool("update", false, "write the golden files anew")

// ending is one way in which a job of 64 nodes ends.
type ending struct {
	name   string
	result record.Result
	others []record.Failure
	change func(*Summary) // before the advice is made; nil: nothing
}

// ended returns the end of a job without a failure.
func ended(name, word string, code int, why string) ending {
	return ending{name: name, result: record.Result{Code: code, Outcome: word, Reason: why}}
}

// driverEnded returns the end by a driver with a code other than 0.
func driverEnded(name string, code int, how string) ending {
	return ended(name, health.DriverOutcomeName, code, "the driver has ended: "+how)
}

// failed returns the end that follows from a cause, with other failures.
func failed(name string, first record.Failure, others ...record.Failure) ending {
	hostOf := func(node int) string { return fmt.Sprintf("n%d", node) }
	v := health.DecideVerdict([]health.ObservedFailure{{Failure: first}}, hostOf)
	return ending{name: name, others: others, result: record.Result{
		Code: v.Code, Outcome: v.Name, Reason: v.Cause.Message, Cause: &v.Cause, BadNodes: v.BadNodes,
	}}
}

func (e ending) with(change func(*Summary)) ending {
	e.change = change
	return e
}

// beforeGate returns the end of a job whose gate never opened.
func beforeGate(e ending) ending {
	change := e.change
	return e.with(func(a *Summary) {
		a.AtPhase, a.AfterGate, a.TimeToGate, a.Duration = a.Cause.Phase, 0, 0, 8340*time.Millisecond
		if change != nil {
			change(a)
		}
	})
}

// wallClock is the time of all records.
var wallClock = time.Date(2026, 11, 21, 3, 12, 44, 0, time.UTC)

func headerOf(node int, host string) record.Header {
	return record.Header{Version: 1, Nonce: "nonce", NodeIndex: node, Host: host, WrittenAt: wallClock}
}

// cause returns a failure record of a node.
func cause(
	node int, kind health.Kind, phase record.Phase, message string, changes ...func(*record.Failure),
) record.Failure {
	rec := record.Failure{Header: headerOf(node, fmt.Sprintf("n%d", node)), Kind: kind, Message: message, Phase: phase}
	for _, change := range changes {
		change(&rec)
	}
	return rec
}

func lost(nodes ...int) func(*record.Failure) {
	return func(f *record.Failure) { f.LostNodes = nodes }
}

// died sets a child's end; code is its exit code if no signal ended it.
func died(child, log, exit, signal string, code int, lines ...string) func(*record.Failure) {
	return func(f *record.Failure) {
		f.Child, f.Log, f.ExitText, f.Signal, f.Code, f.Lines = child, log, exit, signal, code, lines
	}
}

func ofWorld(number int, gpus string) func(*record.Failure) {
	return func(f *record.Failure) { f.WorldRank = &record.WorldRank{Number: number, GPUs: gpus} }
}

// inPod makes the job one of Kubernetes, where users cannot log in to nodes.
func inPod(a *Summary) { a.ID.Launcher, a.ID.Job = launcher.LauncherKubernetes, "train" }

func signalled(name string) func(*record.Failure) {
	return func(f *record.Failure) { f.Signal = name }
}

func outOfMemory(f *record.Failure) { f.OOM = &record.OOMReport{Kills: 1, Limit: 64 << 30} }

func found(findings ...check.Finding) func(*record.Failure) {
	return func(f *record.Failure) {
		f.Report, _ = json.Marshal(check.Report{Host: f.Host, Verdict: check.Fail, Findings: findings})
	}
}

func gpuEvent(report string) func(*record.Failure) {
	return func(f *record.Failure) { f.Report = json.RawMessage(report) }
}

// consequences returns a failure of each of these nodes.
func consequences(kind health.Kind, phase record.Phase, nodes ...int) (records []record.Failure) {
	for _, node := range nodes {
		record := cause(node, kind, phase, "it failed, too")
		switch kind {
		case health.ServiceDied, health.SandboxDied:
			record.ExitText = "exit code 1"
		case health.PeerLost, health.HostLost:
			record.NodeIndex, record.Host, record.LostNodes = 0, "n0", []int{node}
		case health.RankFailed:
			ofWorld(node, "")(&record)
		}
		records = append(records, record)
	}
	return records
}

func unfitEvent(node int, host, detail string) record.Event {
	return record.Event{Header: headerOf(node, host), Message: "Xid 64 on " + host, Detail: json.RawMessage(detail)}
}

func hasRanks(a *Summary) { a.HasRanks = true }

// driverEndings are the ends by the driver or by the user.
var driverEndings = []ending{
	ended("orderly", health.DriverOutcomeName, 0, "the driver has ended: exit code 0"),
	ended("stopped", "stopped", 143, "a stop was requested"),
	failed("time-up", cause(0, health.JobDeadlinePassed, "driver", "the --deadline of 2h has passed")),
	failed("time-up-after-an-error", cause(0, health.JobDeadlinePassed, "driver",
		"the --deadline of 2h has passed: rank 3 (n7) printed ValueError: x 12m ago and nothing since")).with(
		func(a *Summary) {
			a.Cause.ErrorLine, a.Cause.Log = "ValueError: x", "rank-0003.log"
			a.Events = []record.Event{{Message: "rank 3 (n7) printed ValueError: x 1m ago and nothing since",
				Silence: &record.Silence{Child: "rank 3", Error: "ValueError: x"}}}
		}),
	failed("hang-of-the-last-rank", cause(0, health.DeadlinePassed, "driver", "no rank has used CPU time for "+
		"30m: rank 3 (n7) still runs, 29m after the end of all other ranks of its world")).with(
		func(a *Summary) { hasRanks(a); a.Cause.Log = "rank-0003.log" }),
	failed("ranks-hang", cause(0, health.DeadlinePassed, "driver", "no rank has used CPU time for 30m")).with(hasRanks),
	ended("ranks-failed", health.DriverOutcomeName, 1, "all ranks have ended; 3 failed").with(hasRanks),
	driverEnded("driver-failed", 3, "exit code 3"),
	func() ending {
		e := failed("driver-failed-and-restarts", cause(0, health.DriverFailed, "driver", "the driver has ended"))
		e.result.Outcome, e.result.Code = health.DriverOutcomeName, 3
		return e
	}(),
	driverEnded("driver-advice", 1, "exit code 1").with(func(a *Summary) {
		a.Framework.AdviseDriver = func([]string) string { return "enable the dashboard" }
	}),
	driverEnded("driver-without-ranks", 1, "exit code 1").with(func(a *Summary) {
		a.DriverLines = []string{"ValueError: Error initializing torch.distributed using env:// rendezvous: " +
			"environment variable RANK expected, but not set"}
	}),
	driverEnded("driver-of-python-package", 1, "exit code 1").with(func(a *Summary) {
		a.DriverLines = []string{"bringupd._errors.NotInRunError: cannot find BRINGUPD_RANK: bringupd has not " +
			"started this process, or does not set it here"}
	}),
	driverEnded("driver-mpirun-slots", 1, "exit code 1").with(func(a *Summary) {
		a.DriverLines = []string{"Alternatively, you can use the --oversubscribe option to ignore the",
			"number of available slots when deciding the number of processes to", "launch."}
	}),
	driverEnded("driver-dask-alone", 1, "exit code 1").with(func(a *Summary) {
		a.DriverLines = []string{"RuntimeError: Nanny failed to start."}
	}),
	driverEnded("driver-port-taken", 1, "exit code 1").with(func(a *Summary) {
		a.DriverLines = []string{"torch.distributed.DistNetworkError: The server socket has failed to listen on any " +
			"local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE"}
	}),
	failed("role-without-ranks", cause(0, health.DriverFailed, "", "the trainer.0 of node 0 (n0) failed: exit code 1",
		died("trainer.0", "trainer-0.log", "exit code 1", "", 1, "KeyError: 'RANK'"))).
		with(func(a *Summary) { a.Driver = "" }),
	failed("rank-without-pmix", cause(0, health.RankFailed, "driver", "rank 3 (n0) failed: exit code 1",
		died("rank 3", "rank-0003.log", "exit code 1", "", 1, "  ompi_mpi_init: ompi_rte_init failed",
			"*** An error occurred in MPI_Init_thread"), ofWorld(3, ""))),
	failed("service-stopped-by-driver", cause(0, health.ServiceDied, "driver",
		`the ray head of node 0 (n0) has ended: the driver has run "ray stop"`,
		died("head", "ray-head.log", "exit code 0", "", 0, "bye"))),
	driverEnded("driver-killed", 137, "killed by SIGKILL").with(func(a *Summary) {
		a.LeftProcesses = []string{"worker: cannot end pid 4242"}
	}),
	driverEnded("driver-killed-in-a-pod", 137, "killed by SIGKILL (perhaps out of memory)").with(inPod),
	driverEnded("driver-out-of-memory", 137, "killed by SIGKILL").with(func(a *Summary) {
		a.DriverEnd.OOM = &record.OOMReport{Kills: 1, Limit: 64 << 30}
	}),
	driverEnded("driver-silent", 1, "exit code 1").with(func(a *Summary) { a.DriverLines = nil }),
	driverEnded("driver-failed-after-events", 3, "exit code 3").with(func(a *Summary) {
		a.Events = []record.Event{
			{Header: headerOf(3, "n3"), Message: "Xid 31 on GPU 5 of node 3 (n3)"},
			{Header: headerOf(7, "n7"), Message: "Xid 13 on GPU 0 of node 7 (n7): \x1b[31mred"},
		}
	}),
	failed("terminated",
		cause(0, health.Terminated, "driver", "node 0 (n0) was told to end by SIGTERM", signalled("SIGTERM")),
		consequences(health.PeerLost, "driver", 5)...),
	failed("ended-by-slurm",
		cause(1, health.Terminated, "driver", "Slurm ended the job: node 1 (n1) got SIGTERM", signalled("SIGTERM"))).
		with(func(a *Summary) { a.GivenGrace = 100 * time.Second }), // Slurm's KILL cuts it
	beforeGate(failed("ended-by-slurm-at-join",
		cause(0, health.Terminated, "check", "Slurm ended the job: node 0 (n0) got SIGTERM", signalled("SIGTERM")))),
	failed("interrupted",
		cause(0, health.Interrupted, "join", "node 0 (n0) was told to end by SIGINT", signalled("SIGINT"))),
	failed("signalled", cause(5, health.Signalled, "driver", "rank 5 (n5) died", signalled("SIGHUP"))).
		with(hasRanks),
	beforeGate(failed("driver-not-found", cause(0, health.NotFound, "join", "cannot start train.py: not found"))),
	beforeGate(failed("driver-quoted-line",
		cause(0, health.NotFound, "join", `cannot start "python3 -c \"print(1)\"": not found in PATH`)).
		with(func(a *Summary) { a.Driver = `python3 -c "print(1)"` })),
	beforeGate(failed("driver-path-not-found", // the message has the shortest form of the path
		cause(0, health.NotFound, "join", "cannot start run.sh: not found")).
		with(func(a *Summary) { a.Driver = "./run.sh" })),
	failed("driver-of-another-machine",
		cause(0, health.NotExecutable, "driver", "cannot start the driver on node 0 (n0): train: not executable")),
	beforeGate(failed("driver-script-quoted",
		cause(0, health.NotFound, "join", `cannot start "python3 t.py": not found in PATH`)).
		with(func(a *Summary) { a.Driver = "python3 t.py" })),
	failed("spawned-not-found", cause(2, health.NotFound, "driver", "cannot start rank 13 on n2: /no/such: not found")),
	beforeGate(failed("driver-not-executable", // nodes cut a long message
		cause(0, health.NotExecutable, "join", "cannot start train.py: "+strings.Repeat("not executable ", 20)))),
}

// nodeEndings are the ends by a node that is lost, or unfit, or cannot reach the shared file system.
var nodeEndings = []ending{
	failed("daemon-died", cause(0, health.DaemonDied, "driver", "the daemon of node 17 (n17) has died", lost(17)),
		consequences(health.ServiceDied, "driver", 2, 3, 4, 5)...),
	failed("host-lost", cause(0, health.HostLost, "driver", "the host of node 17 (n17) is lost", lost(17)),
		append(consequences(health.PeerLost, "driver", 30, 31), consequences(health.ServiceDied, "driver", 18)...)...),
	failed("attempt-follows", cause(0, health.HostLost, "driver", "the host of node 17 (n17) is lost", lost(17))).
		with(func(a *Summary) { a.NextAttempt = 1 }),
	failed("requeue-follows", cause(0, health.HostLost, "driver", "the host of node 17 (n17) is lost", lost(17))).
		with(func(a *Summary) { a.Requeue = &record.RequeueDecision{Wanted: true} }),
	failed("requeue-impossible", cause(0, health.HostLost, "driver", "the host of node 17 (n17) is lost", lost(17))).
		with(func(a *Summary) { a.Requeue = &record.RequeueDecision{Reason: "an allocation"} }),
	failed("host-hangs", cause(0, health.HostHangs, "driver", "node 17 (n17) hangs", lost(17))),
	failed("daemon-died-in-a-pod",
		cause(0, health.DaemonDied, "driver", "the daemon of node 17 (n17) has died", lost(17))).with(inPod),
	failed("cut-off-pod", cause(3, health.CutOff, "driver", "node 3 (n3) is cut off from the others", lost(3))).
		with(inPod),
	failed("host-lost-without-names", cause(3, health.HostLost, "driver", "the host of node 17 is lost", lost(17))).
		with(func(a *Summary) { a.ID.Launcher, a.HostNames = launcher.LauncherFlux, nil }),
	failed("cut-off", cause(3, health.CutOff, "driver", "node 3 (n3) is cut off from the others", lost(3))),
	failed("peer-lost", cause(0, health.PeerLost, "driver", "node 17 (n17) is lost: no heartbeat for 6.7s", lost(17))),
	failed("not-back", cause(0, health.NotReturned, "join", "node 17 (n17) has not come back within 30s", lost(17))),
	failed("head-lost", cause(3, health.PeerLost, "driver", "the head, node 0 (n0), is lost", lost(0))),
	failed("local", cause(0, health.PeerLost, "driver", "nodes 1,3 are lost: no heartbeat for 6.7s", lost(1, 3)),
		consequences(health.ServiceDied, "driver", 0, 2, 4)...).
		with(func(a *Summary) { a.ID.Launcher = launcher.LauncherLocal }),
	failed("aborted", cause(5, health.Aborted, "driver", "node 5 (n5) has aborted the run")),
	failed("gave-up", cause(0, health.RequeuesExhausted, "driver", "the job has been requeued 3 times")),
	beforeGate(failed("check", cause(3, health.CheckFailed, "check", "node 3 (n3) is not fit for the job", found(
		check.Finding{
			ID: "gpu.count", Device: &check.Device{Index: 5, Bus: "0000:9b:00.0"}, Verdict: check.Fail,
			Observed: "GPU_IS_LOST", Hint: "power-cycle the node", Class: check.ClassNode,
		},
		check.Finding{ID: "host.shm", Verdict: check.Warn, Hint: "enlarge it"},
	)))),
	beforeGate(failed("check-user", cause(3, health.CheckUser, "check", "node 3 (n3) is not fit for the job", found(
		check.Finding{ID: "gpu.nvml", Verdict: check.Fail, Hint: "give --gpu-check=off", Class: check.ClassUser},
	)))),
	beforeGate(failed("check-environment",
		cause(3, health.CheckEnvironment, "check", "node 3 (n3) is not fit for the job", found(check.Finding{
			ID: "host.disk", Verdict: check.Fail, Hint: "give --temp-dir", Class: check.ClassEnvironment,
		})))),
	beforeGate(failed("check-differ",
		cause(0, health.NodesDiffer, "check", "the nodes of the job differ", lost(3), found(check.Finding{
			ID: "x.gpu_count", Verdict: check.Fail, Hint: "look at the nodes with fewer", Class: check.ClassUser,
		})))),
	failed("gpu", cause(3, health.GPUFailed, "driver", "Xid 79 on GPU 5 of node 3 (n3)",
		gpuEvent(`{"action":"reboot the node; where it comes back, have the GPU replaced"}`))),
	failed("gpu-unfit", cause(3, health.ServiceDied, "driver", "the service of node 3 (n3) has died"),
		cause(3, health.GPUFailed, "driver", "Xid 79",
			gpuEvent(`{"kind":"xid","xid":79,"gpu":5,"next":"unfit","meaning":"it has fallen off the bus"}`))).
		with(func(a *Summary) {
			a.Events = []record.Event{
				unfitEvent(4, "n4", `{"kind":"xid","xid":64,"gpu":2,"next":"unfit","meaning":"a row"}`),
				unfitEvent(4, "n4", `{"kind":"recovery","gpu":2,"next":"unfit","meaning":"drain"}`),
				unfitEvent(5, "n5", `{"kind":"xid","xid":31,"gpu":2,"next":"fit"}`),
				unfitEvent(6, "n6$(id)", `{"kind":"xid","xid":64,"gpu":2,"next":"unfit"}`),
			}
		}),
	beforeGate(failed("share-not-met",
		cause(0, health.ShareUnusable, "join", "cannot reach 3 of 64 nodes: n[1-3] did not join", lost(1, 2, 3)))),
	failed("share-hangs", cause(3, health.ShareUnusable, "driver", "the share has not responded to node 3 (n3)")),
	beforeGate(failed("deadline", cause(0, health.DeadlinePassed, "workers", "the head waited 5m0s for n[3-4]"),
		consequences(health.SetupFailed, "check", 7)...)),
	beforeGate(failed("sandbox-late",
		cause(0, health.DeadlinePassed, "sandbox", "after 5m6s the sandbox of n[0-3] is not ready")).
		with(func(a *Summary) { a.AtPhase = record.PhaseCheck })),
	beforeGate(failed("usage", cause(3, health.Usage, "join", "the configuration of node 3 (n3) differs"))),
	beforeGate(failed("launch", cause(3, health.Launch, "join", "cannot take part as node 3 (n3) of 8"))),
	failed("internal", cause(3, health.Internal, "driver", "cannot encode a record of node 3: odd")),
}

// childEndings are the ends by a service, a sandbox, a setup command or a rank.
var childEndings = []ending{
	failed("service-killed", cause(2, health.ServiceDied, "driver", "the worker of node 2 (n2) died: killed by SIGKILL",
		died("worker", "worker-0002.log", "killed by SIGKILL", "SIGKILL", 0,
			"loading shard 3 of 8", "\x1b[32mstep 41\x1b[0m: 10%\rstep 41: 90%\r\n", "a\ttab and a bell\a, \xff")),
		consequences(health.SandboxDied, "driver", 1, 2)...),
	failed("service-out-of-memory",
		cause(2, health.ServiceDied, "driver", "the worker of node 2 (n2) died: killed by SIGKILL",
			died("worker", "worker-0002.log", "killed by SIGKILL", "SIGKILL", 0, "loading shard 3 of 8"), outOfMemory)),
	failed("service-ended-with-0", cause(2, health.ServiceDied, "driver", "the worker of node 2 (n2) ended with 0",
		died("worker", "worker-0002.log", "exit code 0", "", 0))),
	failed("service-ended-with-0-and-an-error", cause(2, health.ServiceDied, "driver",
		"the engine.0 of node 2 (n2) ended with 0: EngineDeadError: see above",
		died("engine.0", "engine-0.log", "exit code 0", "", 0, "EngineDeadError: see above"),
		func(f *record.Failure) { f.ErrorLine = "EngineDeadError: see above" })),
	beforeGate(failed("instance-port-taken",
		cause(2, health.ServiceDied, "workers", "the engine.0 of node 2 (n2) died before it was ready: exit code 1",
			died("engine.0", "engine-0.log", "exit code 1", "", 1,
				"zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5570')")))),
	failed("service-of-ray", cause(5, health.ServiceDied, "driver", "the ray worker of node 5 (n5) died: exit code 1",
		died("ray worker", "ray-worker-0005.log", "exit code 1", "", 1, slices.Repeat([]string{"a line"}, 20)...))).
		with(func(a *Summary) { a.Framework.LogsProgram = "Ray's own logs" }),
	beforeGate(failed("service-not-ready",
		cause(2, health.ServiceDied, "workers", "the worker of node 2 (n2) was not ready within 5m0s",
			died("worker", "worker-0002.log", "", "", 0, "waiting for a licence")),
		cause(3, health.ServiceDied, "workers", "it failed, too"))),
	beforeGate(failed("instance-not-ready",
		cause(2, health.ServiceDied, "workers", "the judge.0 of node 2 (n2) was not ready within 3s "+
			"(9 attempts): nothing listens on port 24576; its processes listen on port 18765 instead",
			died("judge.0", "judge-0.log", "", "", 0, "loading weights")))),
	failed("vital-ended",
		cause(2, health.ServiceDied, "driver", "the ray worker of node 2 (n2) died: its raylet has ended",
			died("ray worker", "ray-worker-0002.log", "", "", 0, "ERR raylet.out: exit code -9"))),
	beforeGate(failed("oneshot-not-ended",
		cause(2, health.ServiceDied, "workers", "the prepare.0 of node 2 (n2) had not ended after 10m0s",
			died("prepare.0", "prepare-0.log", "", "", 0, "copying")))),
	beforeGate(failed("service-not-found",
		cause(2, health.ServiceDied, "workers", "the worker of node 2 (n2) died before it was ready: exit code 127",
			died("worker", "worker-0002.log", "exit code 127", "", 127, "/bin/sh: 1: redis-server: not found")))),
	beforeGate(failed("service-program-not-found",
		cause(0, health.ServiceDied, "head", `cannot start ray head: "ray": not found in PATH`,
			func(f *record.Failure) { f.Code = 127 }))),
	beforeGate(failed("service-port-taken",
		cause(0, health.ServiceDied, "head", "cannot start the ray head: port 6379 (gcs) is taken: held by pid 4242"))),
	failed("sandbox", cause(3, health.SandboxDied, "sandbox", "the sandbox of node 3 (n3) died: killed by SIGRTMIN+6",
		died("sandbox", "sandbox-0003.log", "killed by SIGRTMIN+6", "SIGRTMIN+6", 0, "ready"))),
	failed("rank-killed", cause(3, health.RankFailed, "driver", "rank 12 (n3, GPU 2) died: killed by SIGSEGV",
		died("rank 12", "rank-0012.log", "killed by SIGSEGV", "SIGSEGV", 0, "step 41"), ofWorld(12, "2")),
		consequences(health.RankFailed, "driver", 3, 4, 13)...),
	failed("rank-failed", cause(3, health.RankFailed, "driver", "rank 12 (n3, GPUs 4-7) failed: exit code 3",
		died("rank 12", "rank-0012.log", "exit code 3", "", 3, slices.Repeat([]string{"  File \"train.py\""}, 20)...),
		ofWorld(12, "4-7"))),
	failed("rank-aborted", cause(3, health.RankAborted, "driver", "rank 12 (n3, GPU 2) has aborted the job",
		died("rank 12", "rank-0012.log", "", "", 42, "step 41: loss nan"), ofWorld(12, "2"))),
	beforeGate(failed("setup", cause(3, health.SetupFailed, "check", "the setup command of node 3 (n3) failed",
		died("setup", "setup-0003.log", "exit code 1", "", 1, "no space left on /local")))),
}

var allEndings = slices.Concat(driverEndings, nodeEndings, childEndings)

// summaryOn returns a node's summary of the end. Without a run directory, runDir is empty.
func (e ending) summaryOn(node int, runDir string) *Summary {
	const size = 64
	result := e.result
	result.FailureContext = record.FailureContext{AtPhase: "driver", AfterGate: 192 * time.Second}
	result.RunTimings = record.RunTimings{TimeToGate: 12_440 * time.Millisecond, Duration: 205 * time.Second}
	a := &Summary{
		Result: &result, RunDir: runDir, Consequences: e.others, LogDir: "/shared/logs", Driver: "train.py",
		ID: launcher.Identity{
			NodeIndex: node, Host: fmt.Sprintf("n%d", node), Size: size, Launcher: launcher.LauncherSlurm, Job: "17",
		},
		DriverGrace: 10 * time.Second, GivenGrace: 10 * time.Second, DriverLines: []string{"the loss is nan"},
		Framework: framework.Traits{FreePortAdvice: "--framework-port=0 picks a free port"},
		Timeouts:  Timeouts{Join: 2 * time.Minute, Start: 5 * time.Minute},
	}
	for node := range size {
		a.HostNames = append(a.HostNames, fmt.Sprintf("n%d", node))
	}
	if e.change != nil {
		e.change(a)
	}
	a.Advice = a.NextSteps()
	return a
}

// messages returns the final messages of the head, of the node that the cause concerns, of an
// unrelated node and, for an early end, of a daemon without a run directory.
func (e ending) messages() string {
	const runDir = "/shared/logs/17.0"
	var b strings.Builder
	block := func(who string, lines []string) {
		fmt.Fprintf(&b, "== %s\n", who)
		for _, line := range lines {
			b.WriteString(line + "\n")
		}
	}
	block("the head", e.summaryOn(0, runDir).HeadMessage())
	if cause := e.result.Cause; cause != nil && cause.FaultyNodes()[0] != 0 {
		block("the node that it is about", e.summaryOn(cause.FaultyNodes()[0], runDir).NodeMessage())
	}
	block("another node", e.summaryOn(40, runDir).NodeMessage())
	if cause := e.result.Cause; cause != nil && cause.Phase == record.PhaseJoin {
		block("a daemon without a run directory", e.summaryOn(3, "").StandaloneMessage())
	}
	return b.String()
}

// TestMessages compares the messages with the golden files, of which each kind of failure has one.
func TestMessages(t *testing.T) {
	kinds, files := make(map[health.Kind]bool), make(map[string]bool)
	for _, e := range allEndings {
		path := filepath.Join("testdata", "lastwords", e.name+".txt")
		files[path] = true
		if e.result.Cause != nil {
			kinds[e.result.Cause.Kind] = true
		}
		t.Run(e.name, func(t *testing.T) {
			got := e.messages()
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
				t.Errorf("the messages differ (-update writes them):\n%s", diff)
			}
		})
	}
	for _, kind := range health.AllKinds() {
		if !kinds[kind] {
			t.Errorf("no ending has the kind %s", kind)
		}
	}
	written, _ := filepath.Glob("testdata/lastwords/*")
	for _, path := range written {
		if !files[path] {
			t.Errorf("no ending writes %s", path)
		}
	}
}

// TestMessagesAreLines verifies that every line is complete, whatever children print.
func TestMessagesAreLines(t *testing.T) {
	for _, e := range allEndings {
		for _, node := range []int{0, 2, 40} {
			a := e.summaryOn(node, "/shared/logs/17.0")
			for _, line := range slices.Concat(a.HeadMessage(), a.NodeMessage(), a.StandaloneMessage()) {
				if strings.TrimSpace(line) == "" || textutil.TerminalLine(line) != line {
					t.Errorf("%s: node %d prints %q", e.name, node, line)
				}
			}
			if lines := a.NodeMessage(); len(lines) > 3 {
				t.Errorf("%s: a node prints %q", e.name, lines)
			}
		}
	}
}
