package fitness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

var update = flag.Bool("update", false, "write the findings in testdata anew")

// report is a line of testdata/reports.jsonl: facts and an expectation. The findings are in the file of
// testdata/findings with its name.
type report struct {
	Name  string
	Facts string // of testdata/facts; empty: the name
	// Set contains the changed values of the facts by their paths in JSON: see setValue.
	Set map[string]any
	// Job contains the fields that differ from the expectation of a job with eight GPUs.
	Job json.RawMessage
	// Fault describes the injected fault if the table of test/zoo/README.md lists it.
	Fault string
}

// reports returns all test cases, good and bad.
func reports(t *testing.T) (all []report) {
	t.Helper()
	file, err := os.Open("testdata/reports.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	for {
		var r report
		switch err := decoder.Decode(&r); err {
		case nil:
			all = append(all, r)
		case io.EOF:
			return all
		default:
			t.Fatalf("the report after %d: %v", len(all), err)
		}
	}
}

// setValue changes a value of a JSON document. The path consists of names and indices, * for all
// elements of a list, and len for its length.
func setValue(document any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch at := document.(type) {
	case []any:
		if path[0] == "len" {
			n, _ := strconv.Atoi(fmt.Sprint(value))
			return at[:n]
		}
		for i := range at {
			if path[0] == "*" || path[0] == strconv.Itoa(i) {
				at[i] = setValue(at[i], path[1:], value)
			}
		}
		return at
	case map[string]any:
		at[path[0]] = setValue(at[path[0]], path[1:], value)
		return at
	}
	return map[string]any{path[0]: setValue(nil, path[1:], value)}
}

// change returns the facts with the changes of the report.
func (r report) change(t *testing.T, f gpu.Facts) (changed gpu.Facts) {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var document any
	if err := decoder.Decode(&document); err != nil {
		t.Fatal(err)
	}
	for path, value := range r.Set {
		document = setValue(document, strings.FieldsFunc(path, func(c rune) bool { return c == '/' }), value)
	}
	text, err = json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	decoder = json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&changed); err != nil {
		t.Fatal(err)
	}
	return changed
}

// scene returns the facts and the expectation, and, if the facts are another report's, the findings
// of the unchanged ones.
func (r report) scene(t *testing.T) (f gpu.Facts, want Expectation, usual []check.Finding) {
	t.Helper()
	want = Expectation{
		Count: 8, CountSource: "SLURM_GPUS_ON_NODE", Mode: check.ModeAuto, Environ: []string{"HOME=/root"},
	}
	f = load(t, cmp.Or(r.Facts, r.Name))
	if r.Facts != "" {
		usual = EvaluateFacts(f, want)
	}
	if r.Set != nil {
		f = r.change(t, f)
	}
	if r.Job != nil {
		if err := json.Unmarshal(r.Job, &want); err != nil {
			t.Fatal(err)
		}
	}
	return f, want, usual
}

// TestReports evaluates each report. The findings of a changed one are compared without those that
// the unchanged one has, too.
func TestReports(t *testing.T) {
	names := make(map[string]bool)
	for _, r := range reports(t) {
		t.Run(r.Name, func(t *testing.T) {
			if names[r.Name] {
				t.Fatal("a second report of this name")
			}
			names[r.Name] = true
			f, want, usual := r.scene(t)
			findings := EvaluateFacts(f, want)
			wantComplete(t, findings)
			golden(t, r.Name, slices.DeleteFunc(findings, func(f check.Finding) bool {
				return slices.ContainsFunc(usual, func(u check.Finding) bool { return gocmp.Equal(u, f) })
			}))
		})
	}
}

// TestRetiredPages verifies the vendor's limits of retired pages: reaching a limit is too many.
func TestRetiredPages(t *testing.T) {
	for _, tc := range []struct {
		single, double int
		says           string
	}{
		{14, 0, ""},
		{60, 2, ""},
		{60, 3, "FAIL"},
		{0, 64, "FAIL"},
	} {
		var says string
		pages := gpu.RetiredPages{SingleBit: tc.single, DoubleBit: tc.double}
		e := gpuCheck{gpu: gpu.GPU{Health: gpu.Health{Retired: read(pages)}}}
		checkRetired(&e)
		for _, f := range e.Findings {
			says += fmt.Sprint(f.Verdict)
		}
		if says != tc.says {
			t.Errorf("%d and %d pages: %q, want %q", tc.single, tc.double, says, tc.says)
		}
	}
}

// summary names the findings that are neither Pass nor Skip.
func summary(findings []check.Finding) string {
	var parts []string
	for _, f := range findings {
		switch {
		case f.Verdict == check.Pass || f.Verdict == check.Skip:
		case f.Device == nil:
			parts = append(parts, fmt.Sprintf("%s %s", f.ID, f.Verdict))
		case f.Device.Index < 0:
			parts = append(parts, fmt.Sprintf("%s %s %s", f.ID, f.Device.Bus, f.Verdict))
		default:
			parts = append(parts, fmt.Sprintf("%s %d %s", f.ID, f.Device.Index, f.Verdict))
		}
	}
	return strings.Join(parts, ", ")
}

var verdicts = []check.Verdict{check.Pass, check.Skip, check.Warn, check.Unknown, check.Wait, check.Fail}

// wantComplete checks that findings have all required texts.
func wantComplete(t *testing.T, findings []check.Finding) {
	t.Helper()
	passed := make(map[string]int)
	for _, f := range findings {
		wrong := f.Verdict != check.Pass && f.Verdict != check.Skip
		if !wrong {
			passed[f.ID]++
		}
		if f.ID == "" || f.Observed == "" || f.Source == "" || !slices.Contains(verdicts, f.Verdict) ||
			wrong != (f.Hint != "") || wrong != (f.Class != "") || f.Strict &&
			f.Verdict != check.Warn || f.MaxWait != 0 && f.Verdict != check.Wait {
			t.Errorf("not complete: %+v", f)
		}
	}
	for id, n := range passed {
		if n > 1 {
			t.Errorf("%s passes or is skipped %d times", id, n)
		}
	}
}

// golden compares findings with those of testdata/findings, one per line.
func golden(t *testing.T, name string, findings []check.Finding) {
	t.Helper()
	var text bytes.Buffer
	for _, f := range findings {
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join("testdata", "findings", name+".jsonl")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("findings differ (-update writes them anew):\n%s", diff)
	}
}
