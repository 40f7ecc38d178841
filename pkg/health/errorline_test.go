package health_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

// TestFindErrorLine finds the errors in the outputs of real programs that have failed, some of them
// for another reason than the one that their output shows. testdata/errors/README.md describes the
// files.
func TestFindErrorLine(t *testing.T) {
	checkErrors(t, nil, func(code int, lines []string) string {
		return health.FindErrorLine(code, lines)
	})
}

// TestFindLastError finds the same errors if the programs had not ended. handled are programs that
// print an error last that they have handled, which only their exit codes show.
func TestFindLastError(t *testing.T) {
	handled := []string{
		"neg-exception-ignored.txt", "neg-make-ignored.txt", "neg-rust-catch-unwind.txt",
	}
	checkErrors(t, handled, func(_ int, lines []string) string {
		return health.FindLastError(lines, lines)
	})

	failed := []string{
		"Traceback (most recent call last):", `  File "t.py", line 3, in f`, "ValueError: x",
	}
	goesOn := []string{"step 8", "step 9", "step 10", "step 11"}
	errorWithoutTraceback := func(line string, isError bool) (c lastErrorCase) {
		c = lastErrorCase{name: line, merged: []string{"step 8", line}, err: []string{"step 8", line}}
		if isError {
			c.want = line
		}
		return c
	}
	serving := []string{"2026/12/01 01:23:45 main.go:12: serving at :8000"}
	for _, tc := range []lastErrorCase{
		{"an error", failed, failed, nil, "ValueError: x"},
		{"an error after other output", slices.Concat(goesOn, failed), failed, goesOn, "ValueError: x"},
		{"other output after an error", slices.Concat(failed, goesOn), failed, goesOn, ""},
		{"a late line after an error", slices.Concat(failed, goesOn[:1]), failed, goesOn[:1],
			"ValueError: x"},
		{"an error and what a program prints at its end", append(slices.Clone(failed), ""), failed,
			[]string{""}, "ValueError: x"},
		{"no error", goesOn, nil, goesOn, ""},
		{"a line of a Go program's log", serving, serving, nil, ""},
		{"nothing", nil, nil, nil, ""},
		errorWithoutTraceback("Error: bad", true),
		errorWithoutTraceback("RuntimeError: bad", true),
		errorWithoutTraceback("torch.cuda.OutOfMemoryError: CUDA out of memory.", true),
		errorWithoutTraceback("java.io.IOException: Broken pipe", true),
		errorWithoutTraceback("FileNotFoundError: [Errno 2] No such file", true),
		errorWithoutTraceback("0 errors", false),
		errorWithoutTraceback("Error rate: 3 %", false),
		errorWithoutTraceback("ValidationError count: 0", false),
		errorWithoutTraceback("ValueError: 3 is not in list", true),
		errorWithoutTraceback("RuntimeError: information is lost", true),
		errorWithoutTraceback("MeanSquaredError: 3.1e-05", false),
		errorWithoutTraceback("ValidationError: nan", false),
		errorWithoutTraceback("val.MeanError: -inf, lr: 0.1", false),
		errorWithoutTraceback("ValidationError: 0.31 (best 0.30)", false),
		errorWithoutTraceback("step 4: RuntimeError: bad", false),
		{"a program that goes on after an error", []string{"RuntimeError: bad", "step 9"},
			[]string{"RuntimeError: bad", "step 9"}, nil, ""},
	} {
		if got := health.FindLastError(tc.merged, tc.err, tc.out); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// lastErrorCase is a case of TestFindLastError.
type lastErrorCase struct {
	name             string
	merged, err, out []string
	want             string
}

// checkErrors verifies that a function finds the errors in the outputs of testdata/errors, and no
// others except in some files.
func checkErrors(t *testing.T, except []string, find func(code int, lines []string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/errors/*.txt")
	if err != nil || len(files) < 120 {
		t.Fatalf("there are %d files: %v", len(files), err)
	}
	found, all := 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, output, _ := strings.Cut(string(data), "\n\n")
		facts := make(map[string]string)
		for line := range strings.Lines(head) {
			name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ": ")
			facts[name] = value
		}
		code, err := strconv.Atoi(facts["exit"])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		want := facts["error"]
		got := find(code, strings.Split(strings.TrimRight(output, "\n"), "\n"))
		switch {
		case want == "none" && got != "" && !slices.Contains(except, filepath.Base(file)):
			t.Errorf("%s: the false line %q", filepath.Base(file), got)
		case want != "none":
			all++
			if isSameError(got, want) {
				found++
			} else if got != "" {
				t.Errorf("%s: %q, want %q", filepath.Base(file), got, want)
			} else {
				t.Logf("%s: nothing, want %q", filepath.Base(file), want)
			}
		}
	}
	if found*10 < all*9 {
		t.Errorf("%d of %d errors are found, want 90 %%", found, all)
	}
}

// isSameError reports whether a line is the expected one, or has its beginning.
func isSameError(got, want string) bool {
	const decisive = 60
	return got != "" && (strings.Contains(want, strings.TrimSuffix(got, "…")) ||
		strings.Contains(got, want[:min(len(want), decisive)]))
}
