package progress

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPatternsOfFrameworks verifies the expressions of docs/progress.md with sample lines of each
// framework.
func TestPatternsOfFrameworks(t *testing.T) {
	page, err := os.ReadFile("../../docs/progress.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		file, expr string
		all        []float64 // the steps of all lines
	}{
		{"torch.txt", `step: +([\d,]+)`, []float64{1, 1250}},
		{"lightning.txt", `global_step=(\d+)`, []float64{50, 100}},
		{"lightning-bar.txt", `Epoch +\d+:.*[|] (\d+)/\d+ \[`, []float64{5}},
		{"megatron.txt", `iteration +(\d+)/`, []float64{1, 400}},
		{"nemo-rl.txt", `=+ Step (\d+)/`, []float64{1, 2}},
		{"transformers.txt", `'epoch': '?([\d.]+)`, []float64{0.06, 0.12}},
		{"transformers.txt", `[|] +(\d+)/\d+ \[`, []float64{20, 40}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			if !strings.Contains(string(page), "`"+strings.ReplaceAll(tc.expr, "|", `\|`)+"`") {
				t.Errorf("docs/progress.md does not have %s", tc.expr)
			}
			p, err := ParsePattern(tc.expr)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join("testdata", tc.file))
			if err != nil {
				t.Fatal(err)
			}
			// Line by line, and then all at once.
			var all []float64
			for line := range bytes.Lines(text) {
				if step, found := p.LastStep(line); found {
					all = append(all, step)
				}
			}
			if !slices.Equal(all, tc.all) {
				t.Errorf("the steps are %v, not %v", all, tc.all)
			}
			if step, found := p.LastStep(text); !found || step != tc.all[len(tc.all)-1] {
				t.Errorf("the last step is %v", step)
			}
		})
	}
}

func TestParsePattern(t *testing.T) {
	for expr, says := range map[string]string{
		`step \d+`:        "it has 0 groups: give one, around the number, as in 'step (\\d+)'",
		`(step) (\d+)`:    "it has 2 groups: give one",
		`step (\d+`:       "missing closing ): `step (\\d+`: give an expression of RE2's syntax, as 'step (\\d+)'",
		`step (?=x)(\d+)`: "invalid or unsupported Perl syntax: `(?=`: give",
		"":                "it has 0 groups",
	} {
		if _, err := ParsePattern(expr); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", expr, err, says)
		}
	}
	if _, err := ParsePattern(`(?:step|iteration) (\d+)`); err != nil {
		t.Error(err)
	}
}

func TestLastStep(t *testing.T) {
	for _, tc := range []struct {
		lines string
		want  float64
		found bool
	}{
		{"7: a step at the start", 7, true},
		{"8: a step\n: and a line without", 8, true},
		{"step 1e15", MaxStep, true},
		{"step 1000000000000001", 0, false},
		{"", 0, false},
		{"\n", 0, false},
		{"nothing", 0, false},
		{"step 1\nstep 2\n", 2, true},
		{"step 3\nother\n\n", 3, true},
		{"step 4\nstep x\n", 4, true},
		{"step nan\nstep inf\nstep -1\nstep 1e99\nstep 0x1p3_", 0, false},
		{"step 1_000\r", 1000, true},
		{"step 1\rstep 2\rstep 3", 3, true},
		{"\x1b[1;31mstep \x1b[0m7\x1b[0m", 7, true},
		{"step 0", 0, true},
		{"step 1.25", 1.25, true},
	} {
		p, err := ParsePattern(`(?:step|s)[ =]([^ ]*)`)
		if strings.Contains(tc.lines, ":") {
			p, err = ParsePattern(`^(\d+)?:`)
		}
		if err != nil {
			t.Fatal(err)
		}
		if step, found := p.LastStep([]byte(tc.lines)); step != tc.want || found != tc.found {
			t.Errorf("%q has step %v (%v)", tc.lines, step, found)
		}
	}
}
