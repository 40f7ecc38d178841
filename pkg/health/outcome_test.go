package health

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
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

// The codes are a contract with those who requeue jobs by them.
func TestOutcomeOf(t *testing.T) {
	codes := map[Kind]int{
		Usage: 64, Launch: 65, Share: 66, Internal: 70, Check: 75, PeerLost: 76, Aborted: 76,
		SandboxDied: 77, ServiceDied: 77, Setup: 77, Deadline: 124, NotExecutable: 126, NotFound: 127,
		Interrupted: 130, Terminated: 143, DaemonDied: 76, HostLost: 76, HostHangs: 76, CutOff: 76, GaveUp: 69,
		CheckUser: 65, NodesDiffer: 75, GPUFailed: 75,
	}
	declared := kinds(t)
	if len(declared) != len(codes) {
		t.Errorf("%d kinds are declared and %d have a code here: %v", len(declared), len(codes), declared)
	}
	for _, kind := range declared {
		t.Run(string(kind), func(t *testing.T) {
			rows := 0
			for _, row := range outcomes {
				if slices.Contains(row.kinds, kind) {
					rows++
				}
			}
			if rows != 1 {
				t.Errorf("it has %d rows", rows)
			}
			if got := OutcomeOf(kind); got.Code != codes[kind] || got.Word == "" || got.Meaning == "" || got.Requeue == "" {
				t.Errorf("got %+v, want the code %d", got, codes[kind])
			}
		})
	}
	for _, unknown := range []Kind{"", "made up"} {
		if got := OutcomeOf(unknown); got.Code != 70 {
			t.Errorf("OutcomeOf(%q) = %+v", unknown, got)
		}
	}
}

func TestOutcomes(t *testing.T) {
	words := map[string]bool{Driven: true}
	last := 0
	for _, outcome := range Outcomes() {
		if outcome.Code <= last || outcome.Code > 255 {
			t.Errorf("the code %d comes after %d", outcome.Code, last)
		}
		last = outcome.Code
		if words[outcome.Word] {
			t.Errorf("two outcomes are called %q", outcome.Word)
		}
		words[outcome.Word] = true
	}
}
