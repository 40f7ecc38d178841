package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var dawn = time.Date(2026, 11, 21, 2, 10, 50, 0, time.UTC)

// Times of the sample from its begin.
const (
	sampleGate = 12 * time.Second
	sampleEnd  = 3*time.Hour + 12*time.Minute
)

func mark(at time.Duration) timeline.RecordTime {
	return timeline.RecordTime{Exists: true, At: dawn.Add(at)}
}

func headerOf(node int, at time.Duration) record.Header {
	host := fmt.Sprintf("n%d", node)
	return record.Header{Version: record.FormatVersion, NodeIndex: node, Host: host, WrittenAt: dawn.Add(at)}
}

// sample returns a plausible run: the last node but one is slow in its check, and, if fails is set,
// the last node's service dies while the driver runs.
func sample(size int, fails bool) *timeline.Run {
	run := &timeline.Run{
		Path: "/scratch/me/bringupd/4711.0", Name: "4711.0", ReadAt: dawn.Add(4 * time.Hour),
		Job: &record.Job{
			Header: headerOf(0, 200*time.Millisecond), Run: "4711.0", Size: size, ConfigDigest: "7fedb824288bff83",
			Addresses: []string{"10.0.0.1"}, ProgramVersion: "v0.6.0", FileSystem: "lustre",
			Plan: &record.Plan{Framework: "ray", CheckTimeout: time.Minute, Driver: "train.py"},
		},
		Control: timeline.Control{
			Job: mark(200 * time.Millisecond), Head: mark(3200 * time.Millisecond), Go: mark(sampleGate),
			HeadRecord: &record.Head{Address: "10.0.0.1:6379", Env: map[string]string{"RAY_PASSWORD": "hush"}},
		},
		Result: &record.Result{
			Header: headerOf(0, sampleEnd), Run: "4711.0", Size: size, Outcome: "driver",
			Reason:     "the driver has ended: exit code 0",
			RunTimings: record.RunTimings{Duration: sampleEnd, TimeToGate: sampleGate, ProgramVersion: "v0.6.0"},
			Share:      &record.FileSystemReport{Head: sampleCalls(153)},
		},
	}
	for node := range size {
		run.Nodes = append(run.Nodes, sampleNode(node, size, fails))
	}
	if fails {
		addFailure(run)
	}
	return run
}

// sampleRoles returns a run of roles on nodes with four servers each and a trainer: some servers
// have failed once, or twice, or are not ready, and one is lost. If it has failed, the trainer has
// ended it.
func sampleRoles(nodes int, fails bool) *timeline.Run {
	run := sample(nodes, false)
	run.Job.Plan = &record.Plan{
		JobName: "rl", Roles: []string{"srv", "trainer"}, Flags: []string{"--config=rl.yaml"}, NodesNeeded: nodes,
	}
	run.Control.HeadRecord = nil
	all := roles.Requirement{Start: roles.QuorumAll, Run: 1}
	plan, err := roles.MakePlan([]roles.Definition{
		{Name: "srv", Required: all, Restarts: roles.RestartPolicy{Max: 3}, Ready: roles.ReadyProbe{Probe: "tcp:1"},
			Placement: roles.Placement{
				Nodes: nodes - 1, InstancesPerNode: 4, NodesPerInstance: 1, RanksPerNode: 1,
			}},
		{Name: "trainer", Required: all, Primary: true, After: []string{"srv"}, Placement: roles.Placement{
			Nodes: roles.NodesRest, InstancesPerNode: 1, NodesPerInstance: 1, RanksPerNode: 1,
		}},
	}, sampleOffers(nodes))
	if err != nil {
		panic(err)
	}
	run.Roles = &timeline.PlacedRoles{Plan: plan}
	for node := range nodes {
		run.Roles.Members = append(run.Roles.Members, node)
	}
	for i := range plan.Roles {
		role := timeline.Role{RolePlan: &plan.Roles[i], StartRule: roles.StartWithPlan}
		if role.Primary {
			role.StartRule = roles.StartAtGate
		}
		for j := range role.RolePlan.Instances {
			planned := &role.RolePlan.Instances[j]
			role.Instances = append(role.Instances, sampleInstance(run, &role, planned))
		}
		run.Roles.Roles = append(run.Roles.Roles, role)
	}
	slices.SortStableFunc(run.Events, func(a, b timeline.Event) int { return a.At.Compare(b.At) })
	if fails {
		failProgram(run, "driver", "trainer.0", "trainer-0.log")
	} else {
		run.Result, run.ReadAt = nil, dawn.Add(time.Minute)
	}
	return run
}

func sampleOffers(nodes int) (offers []roles.NodeFacts) {
	for node := range nodes {
		offers = append(offers, roles.NodeFacts{NodeIndex: node, Host: fmt.Sprint("n", node), FirstPort: 20000})
	}
	return offers
}

// sampleInstance returns an instance, and adds the events of its marks to the run.
func sampleInstance(run *timeline.Run, role *timeline.Role, planned *roles.Instance) timeline.Instance {
	node, number := planned.Places()[0], planned.Number
	instance := timeline.Instance{
		Instance: planned, Nodes: []int{node}, InstanceState: roles.InstanceState{Status: roles.StatusReady},
	}
	mark := func(at time.Duration, generation int, state string) {
		name := fmt.Sprintf("%04d.i%04d.g%d.%s", node, number, generation, state)
		run.Events = append(run.Events, timeline.Event{
			Name: eventlog.RecordPublished, NodeIndex: node, At: dawn.Add(at),
			Fields: eventlog.Fields{ObjectFields: eventlog.ObjectFields{Record: name}},
		})
	}
	if role.Primary {
		return instance // it starts with the gate
	}
	ready := time.Duration(9000+number%37*80) * time.Millisecond
	mark(ready, 0, "ready")
	switch {
	case number%200 == 7: // it fails again and again
		for generation := range 3 {
			mark(ready+time.Duration(generation+1)*3*time.Second, generation, "exited")
			mark(ready+time.Duration(generation+1)*3*time.Second+time.Second, generation+1, "ready")
		}
		instance.Generation = 3
	case number%200 == 11:
		mark(20*time.Second, 0, "unready.000001")
		instance.Status = roles.StatusUnready
	case number == 13:
		mark(25*time.Second, 0, "exited")
		instance.Status = roles.StatusLost
		run.Events = append(run.Events, timeline.Event{
			Name: eventlog.InstanceExited, At: dawn.Add(25 * time.Second), Fields: eventlog.Fields{
				ObjectFields: eventlog.ObjectFields{Child: fmt.Sprint("srv.", number)},
				FailureFields: eventlog.FailureFields{
					Subject: &node, What: "srv.13 died: exit code 1", Lines: []string{"CUDA error"},
				},
				LinkFields: eventlog.LinkFields{Reason: "the role goes on without it"},
			},
		})
	}
	return instance
}

// sampleRanks returns a run that a rank on the last node has ended.
func sampleRanks(nodes int) *timeline.Run {
	run := sample(nodes, false)
	run.Job.Plan = &record.Plan{HasRanks: true, Command: "python train.py --lr=0.1", NodesNeeded: nodes}
	failProgram(run, "rank", "rank 31", "rank-0031.log")
	return run
}

// failProgram ends the run by a program on the last node, with a traceback that is longer than a
// box.
func failProgram(run *timeline.Run, outcome, child, log string) {
	var lines []string
	for i := range 30 {
		lines = append(lines, fmt.Sprint("step ", i))
	}
	lines = append(lines, "Traceback (most recent call last):")
	for i := range 10 {
		lines = append(lines, fmt.Sprintf("  File \"train.py\", line %d, in train", i))
	}
	r := run.Result
	r.ErrorLine = "ValueError: loss is NaN"
	r.Code, r.Outcome, r.Reason = 1, outcome, child+" failed: exit code 1: "+r.ErrorLine
	r.Cause = &record.Failure{
		Header: headerOf(len(run.Nodes)-1, sampleEnd-393*time.Millisecond), Kind: record.Kind(outcome),
		Message: r.Reason, Child: child, ChildExit: record.ChildExit{ErrorLine: r.ErrorLine}, Log: log,
		Lines: append(lines, r.ErrorLine, "wandb: synced"),
	}
}

func sampleCalls(lists int64) record.CallStats {
	return record.CallStats{Calls: lists, ByKind: map[string]int64{"list": lists}}
}

func sampleNode(node, size int, fails bool) timeline.Node {
	slow, dies := node == size-2, node == size-1 && fails
	n := timeline.Node{NodeIndex: node, Host: fmt.Sprintf("n%d", node), LastSign: dawn.Add(sampleEnd + 2*time.Second)}
	n.Clock = timeline.Clock{Known: node > 0, Offset: 7 * time.Millisecond, Residual: 3 * time.Millisecond}
	n.Joined = &record.Joined{Address: "10.0.0.7", PID: 4000 + node, ProgramVersion: "v0.6.0"}
	n.Done = &record.Done{Share: new(sampleCalls(44))}
	n.Check = &check.Report{Host: n.Host, NodeIndex: node, Verdict: check.Pass, Findings: []check.Finding{
		{ID: "gpu.count", Verdict: check.Pass, Observed: "8 GPUs"},
		{ID: "limits.nofile", Verdict: check.Pass, Observed: fmt.Sprint(1048576 + node)},
		{ID: "net.ib", Verdict: check.Skip, Observed: "no InfiniBand here"},
	}}
	phase := func(name string, from, to time.Duration, ok bool, reached ...record.State) time.Duration {
		n.Phases = append(n.Phases, timeline.PhaseSpan{
			Phase: name, Daemon: "daemon", From: dawn.Add(from), To: dawn.Add(to), OK: ok,
		})
		for _, state := range reached {
			n.States = append(n.States, timeline.NodeState{Word: state, At: dawn.Add(to)})
		}
		return to
	}
	// The nodes differ a little.
	from, took := time.Duration(node%7)*80*time.Millisecond, time.Duration(1500+node%11*40)*time.Millisecond
	if slow {
		took = 7200 * time.Millisecond
		n.Check.Findings = append(n.Check.Findings, check.Finding{
			ID: "gpu.pcie", Verdict: check.Warn, Observed: "8 of 16 lanes", Hint: "reseat the card",
		})
	}
	joined := phase("join", from, from+700*time.Millisecond, true, record.StateJoined)
	checked := phase("check", joined, joined+took, true, record.StateChecked)
	serviceFrom := max(checked, 3200*time.Millisecond)
	if node == 0 {
		phase("head", 1800*time.Millisecond, 3200*time.Millisecond, true)
		phase("gate", 10*time.Second, sampleGate, true)
	}
	up := phase("workers", serviceFrom, serviceFrom+1100*time.Millisecond, true, record.StateServiceUp)
	end := sampleEnd
	if dies {
		end -= 400 * time.Millisecond
	}
	phase("driver", max(sampleGate, up), end, !dies)
	phase("drain", end, sampleEnd+time.Duration(node%5)*300*time.Millisecond, true, record.StateDone)
	return n
}

// addFailure ends the run by the service of the last node.
func addFailure(run *timeline.Run) {
	size := len(run.Nodes)
	dead := size - 1
	cause := record.Failure{
		Header: headerOf(dead, sampleEnd-393*time.Millisecond), Kind: "service", Phase: "driver",
		Message:   fmt.Sprintf("the worker's service on n%d has died: killed by signal 9 (SIGKILL)", dead),
		ChildExit: record.ChildExit{ErrorLine: "raylet: cannot allocate 8.0 GiB for a task argument"},
		Child:     "worker", Signal: "SIGKILL", Log: signal.LogName("worker", dead, size), Lines: []string{
			`{"evil":"</script><script>window.hacked=1</script>"}`, "<img src=x onerror=\"window.hacked=2\">",
			"\x1b[31mred\x1b[0m \x1b]0;title\x07gone", "raylet: cannot allocate 8.0 GiB for a task argument", "Killed",
		},
	}
	event := record.Event{Header: headerOf(1, 0), Message: "Xid 63 on GPU 2: a row was remapped", Count: 2}
	r := run.Result
	r.Code, r.Outcome, r.Reason, r.Cause, r.AtPhase = 77, "service", cause.Message, &cause, "driver"
	r.Advice, r.BadNodes = []string{"give each node more memory (--mem)"}, []string{cause.Host}
	for _, node := range []int{0, 1} {
		r.Consequences = append(r.Consequences, record.Failure{
			Header: headerOf(node, sampleEnd), Kind: "aborted", Phase: "driver", Message: "the head has ended the job",
		})
	}
	r.Events = []record.Event{event}
	run.Nodes[dead].Failures, run.Nodes[1].EventRecords = []record.Failure{cause}, r.Events
}

// sampleLogs returns the ends of the logs that ReadLogs would find.
func sampleLogs(run *timeline.Run) (logs []LogTail) {
	size := len(run.Nodes)
	add := func(name string, node int, lines ...string) {
		logs = append(logs, LogTail{Name: name, NodeIndex: node, Size: 91234, Cut: true, Lines: lines})
	}
	add("driver.log", 0, "step 18300  loss 1.8790", "ray.exceptions.ActorDiedError: the actor died")
	add(signal.LogName("worker", size-1, size), size-1, "<script>window.hacked=3</script>", "Killed")
	add("head.log", 0, "gcs_server: node n3 is dead: missed too many heartbeats")
	for node := range size {
		if size <= MaxFullRows || node == 0 {
			add(signal.LogName("daemon", node, size), node, "02:10:51.402 info phase join is over  took=701ms")
		}
	}
	return logs
}
