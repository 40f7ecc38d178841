package stackdump

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// aSeen returns the report of a rank on node rank/8.
func aSeen(rank int, process Process, more ...func(*ChildReport)) ChildReport {
	seen := ChildReport{
		Child: fmt.Sprintf("rank %d", rank), Node: rank / 8, Host: fmt.Sprintf("n%d", rank/8), PID: 100 + rank,
		Process: &process, Processes: 1, Cores: process.Cores, Output: Output{Bytes: 1, AgoS: 42},
	}
	for _, change := range more {
		change(&seen)
	}
	return seen
}

func inCall(call, on string) Process {
	return Process{PID: 7, Name: "python3", State: "S", Call: call, On: on}
}

func at(frames ...Frame) func(*ChildReport) {
	return func(s *ChildReport) { s.Stack = &Stack{Source: stackByPySpy, Frames: frames} }
}

func called(name string) func(*ChildReport) { return func(s *ChildReport) { s.Child = name } }

const torch = "/v/lib/python3.11/site-packages/torch/distributed/"

var (
	allReduce = framesOf("wrapper "+torch+"c10d_logger.py:81", "main /home/me/train.py:210")
	reads     = framesOf("load /home/me/data.py:88", "main /home/me/train.py:200")
)

// TestUnknownHosts verifies the names of nodes whose host is unknown.
func TestUnknownHosts(t *testing.T) {
	seen := []ChildReport{aSeen(5, inCall("read", ""),
		func(s *ChildReport) { s.Node, s.Host = 1, "" }), {Node: 0, Problem: "cannot see"}}
	p := NewRunSnapshot("demo", 3, seen, []UnreachableNode{{Node: 2}})
	got := []string{p.Reports[0].Host, p.Groups[0].Hosts[0], p.Problems[0], p.Unreachable[0].Host}
	if want := []string{"node 1", "node 1", "node 0: cannot see", "node 2"}; !slices.Equal(got, want) {
		t.Errorf("they are %q, want %q", got, want)
	}
}

func TestText(t *testing.T) {
	allReduce := append(framesOf("all_reduce "+torch+"distributed_c10d.py:2501"), allReduce...)
	var deadlock, busyWorld, crowd, files []ChildReport
	for rank := range 64 {
		if rank == 17 {
			deadlock = append(deadlock, aSeen(rank, inCall("read", "/data/shard-17"), at(reads...)))
			continue
		}
		deadlock = append(deadlock, aSeen(rank, inCall("futex", ""), at(allReduce...)))
		busyWorld = append(busyWorld, aSeen(rank, Process{State: "R", Cores: 0.9 + float64(rank)/500}))
	}
	for rank := range 1000 {
		crowd = append(crowd, aSeen(rank, inCall(fmt.Sprintf("system call %d", rank%97), "")))
		files = append(files, aSeen(rank, inCall("read", fmt.Sprintf("/data/shard-%d", rank))))
	}
	for _, tc := range []struct {
		name   string
		seen   []ChildReport
		silent []UnreachableNode
		want   string // empty: at most a screen
	}{
		{"one rank reads, all others wait for it", deadlock, nil, `run demo: 8 nodes; 64 ranks
rank 17 on n2: in read at data.py:88 (/data/shard-17)
    processor: none; printed last 42 s ago; pid 7 python3
63 ranks 0-16,18-63 on 8 nodes: in all_reduce at train.py:210
    processor: none; printed last 42 s ago
`},
		{"all work", busyWorld, nil, `run demo: 8 nodes; 63 ranks
63 ranks 0-16,18-63 on 8 nodes: busy
    processor: 90 % of a core to 103 % of a core; printed last 42 s ago
`},
		{"each reads its own", files[:3], nil, `run demo: 8 nodes; 3 ranks
3 ranks 0-2 on n0: asleep in read (/data/shard-0 and 2 others)
    processor: none; printed last 42 s ago
`},
		{"the driver, services, and one that has ended", []ChildReport{
			aSeen(0, inCall("futex", ""), called("worker")), aSeen(8, inCall("futex", ""), called("worker")),
			aSeen(0, Process{PID: 9, Name: "sh", State: "T"}, called("driver"),
				func(s *ChildReport) { s.Output = Output{}; s.Processes = 3 }),
			{Child: "rank 5", Node: 0, Host: "n0", Ended: "exit code 0"},
		}, nil, `run demo: 8 nodes; 1 rank
rank 5 on n0: has ended: exit code 0
driver on n0: stopped by a signal
    processor: none; printed nothing; pid 9 sh, one of 3 processes
2 of worker on n0, n1: asleep in futex
    processor: none; printed last 42 s ago
`},
		{"at a fence", []ChildReport{
			aSeen(1, inCall("recvfrom", "a unix socket"), func(s *ChildReport) {
				s.Waits = []Wait{{Kind: "fence", Name: "step-3", SinceS: 41, Missing: []int{0}}}
			}),
			aSeen(0, Process{PID: 7, Name: "python3", State: "t", Call: "futex"}),
		}, nil, `run demo: 8 nodes; 2 ranks
rank 0 on n0: stopped by a debugger
    processor: none; printed last 42 s ago; pid 7 python3
rank 1 on n0: in fence step-3, asleep in recvfrom (a unix socket)
    fence step-3 for 41 s, where rank 0 is missing; processor: none; printed last 42 s ago; pid 7 python3
`},
		{"steps", []ChildReport{
			aSeen(0, inCall("futex", ""), atStep(1200)),
			aSeen(1, inCall("futex", ""), atStep(1199.5)), aSeen(2, inCall("futex", "")),
		}, nil, `run demo: 8 nodes; 3 ranks
1 of 2 ranks is behind step 1200: rank 1 on n0 at step 1199.5 (asleep in futex)
3 ranks 0-2 on n0: asleep in futex
    processor: none; printed last 42 s ago; at step 1199.5 to 1200
`},
		{"stuck", []ChildReport{
			aSeen(3, Process{PID: 7, Thread: 8, Name: "python3", State: "D", Call: "fsync",
				On: "/share/x"}, at(reads...)),
			aSeen(4, Process{PID: 7, Name: "python3", State: "D", Wchan: "rpc_wait", Problem: "permission denied"}),
		}, nil, `run demo: 8 nodes; 2 ranks
rank 3 on n0: stuck in the kernel in fsync, in fsync at data.py:88 (/share/x)
    processor: none; printed last 42 s ago; pid 7 python3, thread 8
rank 4 on n0: stuck in the kernel in rpc_wait
    processor: none; printed last 42 s ago; pid 7 python3; permission denied
`},
		{"nothing, and nodes without a response", []ChildReport{{Node: 1, Host: "n1", Problem: "cannot see"}},
			[]UnreachableNode{{Node: 3, Host: "n3", Reason: "it has not answered\x1b[2J in time"},
				{Node: 4, Reason: "lost"}}, `run demo: 8 nodes, of which 6 answered
n3: no answer: it has not answered in time
node 4: no answer: lost
n1: cannot see
no running processes were found
`},
		{"a thousand ranks, each few of which do something else", crowd,
			slices.Repeat([]UnreachableNode{{Node: 1, Reason: "lost"}}, 90), ""},
		{"a thousand ranks of every third number",
			slices.DeleteFunc(slices.Clone(crowd), func(s ChildReport) bool { return len(s.Child)%3 == 0 }), nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := 8
			got := NewRunSnapshot("demo", max(nodes, len(tc.silent)), tc.seen, tc.silent).FormatText()
			if diff := cmp.Diff(tc.want, got); tc.want != "" && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if lines := strings.Count(got, "\n"); lines > 24 {
				t.Errorf("it has %d lines:\n%s", lines, got)
			}
			for line := range strings.Lines(got) {
				if len([]rune(line)) > maxLineLength+1 {
					t.Errorf("a line is too long: %s", line)
				}
			}
		})
	}
}
