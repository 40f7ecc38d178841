package check

import (
	"errors"
	"slices"
	"testing"
)

// TestNetwork verifies the findings about names and variables, and that a node whose programs do not
// leave the machine has none.
func TestNetwork(t *testing.T) {
	fine := func() string { return "" }
	for _, tc := range []struct {
		name            string
		nameProblem     func() string
		wrong, doubtful []string
		err             error
		want            []Verdict // of node.name, if it is checked, and net.env
	}{
		{"all is well", fine, nil, nil, nil, []Verdict{Pass, Pass}},
		{"the name is not checked", nil, nil, nil, nil, []Verdict{Pass}},
		{"the name leads elsewhere", func() string { return "it resolves to 127.0.1.1" }, nil, nil, nil,
			[]Verdict{Warn, Pass}},
		{"a wrong variable, and one of a role", fine, []string{"A"}, []string{"B"}, nil, []Verdict{Pass, Fail, Warn}},
		{"no interfaces can be read", fine, nil, nil, errors.New("no"), []Verdict{Pass, Unknown}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Host{Root: tree(t, nil), TempDir: t.TempDir(), system: node{}}
			h.Network = &Network{NameProblem: tc.nameProblem,
				FindMistakes: func() ([]string, []string, error) { return tc.wrong, tc.doubtful, tc.err }}
			var got []Verdict
			for _, f := range h.Inspect(t.Context(), nil) {
				if f.ID == idName || f.ID == IDNetEnv {
					got = append(got, f.Verdict)
					complete(t, f)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("the verdicts are %v, want %v", got, tc.want)
			}
		})
	}
	for _, f := range (&Host{Root: tree(t, nil), TempDir: t.TempDir(), system: node{}}).Inspect(t.Context(), nil) {
		if f.ID == idName || f.ID == IDNetEnv {
			t.Errorf("a node without peers has %+v", f)
		}
	}
}
