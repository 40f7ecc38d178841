package exec

import (
	"net"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu/ncclras"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestMemberWord verifies by which word a member is selected.
func TestMemberWord(t *testing.T) {
	job := record.Job{Size: 4, Steps: []string{"judge", "eval"}}
	for member, want := range map[int]string{0: "0", 3: "3", 4: "judge/0", 11: "eval/3"} {
		if got := memberWord(job, member); got != want {
			t.Errorf("member %d is %s, want %s", member, got, want)
		}
	}
}

// TestSelectNCCLMember verifies that a member with a stopped process is asked only if there is no other.
func TestSelectNCCLMember(t *testing.T) {
	report := func(node int, state string, hasNCCL bool) stackdump.ChildReport {
		return stackdump.ChildReport{Child: "rank 0", Member: node, HasNCCL: hasNCCL,
			Process: &stackdump.Process{State: state}}
	}
	for _, tc := range []struct {
		name    string
		reports []stackdump.ChildReport
		want    int
	}{
		{"none", []stackdump.ChildReport{report(0, "S", false)}, -1},
		{"not the head", []stackdump.ChildReport{report(0, "S", false), report(1, "S", true), report(2, "S", true)}, 1},
		{"a stopped one", []stackdump.ChildReport{report(0, "S", true), report(0, "T", true), report(1, "R", true)}, 1},
		{"only stopped ones", []stackdump.ChildReport{report(0, "T", true), report(1, "D", true)}, 0},
	} {
		if got, _ := selectNCCLMember(stackdump.RunSnapshot{Reports: tc.reports}); got != tc.want {
			t.Errorf("%s: it is member %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestWorldRank verifies that a PID that two ranks have names neither.
func TestWorldRank(t *testing.T) {
	d := Diagnosis{RunSnapshot: stackdump.RunSnapshot{Reports: []stackdump.ChildReport{
		{Child: "rank 3", PID: 10, Process: &stackdump.Process{PID: 11}},
		{Child: "rank 4", PID: 20}, {Child: "rank 5", PID: 20}, {Child: "driver", PID: 30},
	}}}
	for pid, want := range map[int]int{10: 3, 11: 3, 20: -1, 30: -1, 40: -1} {
		if got := d.worldRank(ncclras.Member{PID: pid}); got != want {
			t.Errorf("pid %d is rank %d, want %d", pid, got, want)
		}
	}
}

func TestNodeHasNCCL(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	must(t, err)
	defer func() { _ = listener.Close() }()
	at := listener.Addr().String()
	for _, tc := range []struct {
		name, reserved, used string
		want                 bool
	}{
		{"a listener", at, at, true}, {"no listener", "127.0.0.1:1", "127.0.0.1:1", false},
		{"an address of the user", at, "127.0.0.1:28028", false}, {"none", "", "", false},
	} {
		lookup := func(name string) (string, bool) {
			value, isSet := map[string]string{ncclras.ReservedVariable: tc.reserved,
				ncclras.AddressVariable: tc.used}[name]
			return value, isSet
		}
		if got := NodeHasNCCL(lookup); got != tc.want {
			t.Errorf("%s: NCCL runs: %v, want %v", tc.name, got, tc.want)
		}
	}
}
