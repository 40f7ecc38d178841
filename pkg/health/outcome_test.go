package health

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// kinds returns every Kind that the package declares, from its source.
func kinds(t *testing.T) []Kind {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "outcome.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Kind
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Kind" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Kind(text))
		}
		return true
	})
	return all
}

// TestOutcomeOf verifies the exit codes, which are a contract with scripts that requeue jobs by
// them. A code of 9 is that of the process which the failure is about.
func TestOutcomeOf(t *testing.T) {
	codes := map[Kind]int{
		Usage: 64, Launch: 65, CheckUser: 65, CheckEnvironment: 65, ShareUnusable: 66,
		RequeuesExhausted: 69, Internal: 70,
		CheckFailed: 75, NodesDiffer: 75, GPUFailed: 75, PeerLost: 76, Aborted: 76, DaemonDied: 76, HostLost: 76,
		HostHangs: 76, CutOff: 76, NotReturned: 76, SandboxDied: 77, ServiceDied: 77, SetupFailed: 77,
		DeadlinePassed: 124, JobDeadlinePassed: 124, NotExecutable: 126, NotFound: 127,
		Interrupted: 130, Terminated: 143,
		RankFailed: 9, RankAborted: 9, DriverFailed: 9, Signalled: 9, "": 70, "made up": 70,
	}
	declared := kinds(t)
	if len(declared) != len(codes)-2 {
		t.Errorf("%d kinds are declared and %d have a code here: %v", len(declared), len(codes)-2, declared)
	}
	for kind, code := range codes {
		got := OutcomeOfCause(record.Failure{Kind: kind, Code: 9})
		if got.Code != code || got.Name == "" || got.Meaning == "" || got.Requeue == "" {
			t.Errorf("%s: got %+v, want the code %d", kind, got, code)
		}
	}
	for kind, name := range map[Kind]string{RankFailed: RankOutcome.Name, RankAborted: RankOutcome.Name,
		DriverFailed: DriverOutcomeName, Signalled: "terminated"} {
		if got := OutcomeOfKind(kind).Name; got != name {
			t.Errorf("%s is called %s", kind, got)
		}
	}
	if got := AllKinds(); len(got) != len(slices.Compact(slices.Sorted(slices.Values(got)))) {
		t.Errorf("a kind has two rows: %v", got)
	}
}

// TestOutcomeBy verifies that the code of a world is that of the rank that failed first, as a shell
// reports it.
func TestOutcomeBy(t *testing.T) {
	died := func(exit process.Exit) record.Failure {
		return NewRankExitFailure(record.WorldRank{Number: 12}, "n3", exit, nil).Failure
	}
	aborted := func(code int) record.Failure {
		return NewRankAbortFailure(record.WorldRank{Number: 12}, "n3", code, "no such data", nil).Failure
	}
	for _, tc := range []struct {
		name  string
		cause record.Failure
		code  int
		word  string
	}{
		{"by itself", died(process.Exit{Code: 3}), 3, "rank"},
		{"with the code of another outcome", died(process.Exit{Code: 76}), 76, "rank"},
		{"by a signal", died(process.Exit{Code: -1, Signal: syscall.SIGSEGV}), 139, "rank"},
		{"by a real-time signal", died(process.Exit{Code: -1, Signal: 40}), 168, "rank"},
		{"by an abort", aborted(42), 42, "rank"},
		{"by an abort with 0", aborted(0), 1, "rank"},
		{"by an abort with -1", aborted(-1), 255, "rank"},
		{"by an abort with 256", aborted(256), 1, "rank"},
		{"by an abort with 300", aborted(300), 44, "rank"},
		{"by SIGHUP, which was passed on", record.Failure{Kind: Signalled, Signal: "SIGHUP"}, 129, "terminated"},
		{"by a signal that no system has", record.Failure{Kind: "rank", Signal: "SIGODD"}, 1, "rank"},
		{"by what is no rank", record.Failure{Kind: "service", Code: 3}, 77, "service"},
	} {
		if got := OutcomeOfCause(tc.cause); got.Code != tc.code || got.Name != tc.word || got.Meaning == "" {
			t.Errorf("%s: got %+v", tc.name, got)
		}
	}
}
