package check

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with that of a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is\n%s\nnot what was said:\n%s", path, want, got)
	}
}

func gpu(i int) *Device { return &Device{Index: i, Bus: "0000:3b:00.0"} }

// sick returns the report of a node with one finding of each kind.
func sick() Report {
	findings := []Finding{
		{ID: "gpu.count", Verdict: Pass, Observed: "8 GPUs"},
		{ID: "gpu.retired", Verdict: Skip, Observed: "for GPUs before Ampere"},
		{ID: "gpu.remap", Device: gpu(1), Verdict: Pass, Observed: "no row is remapped",
			Expected: "no failure", Hint: "never shown"},
		{ID: "node.shm", Device: &Device{Index: -1, Name: "/dev/shm"}, Verdict: Warn,
			Observed: "64 MiB", Expected: "at least 1 GiB",
			Hint: "start the container with --shm-size=1g", Class: ClassUser},
		{ID: "gpu.remap", Device: gpu(2), Verdict: Fail, Observed: "a row could not be remapped",
			Expected: "no failure", Source: "nvmlDeviceGetRemappedRows",
			Hint: "drain the node: this GPU is to be replaced", Class: ClassNode},
		{ID: "gpu.fabric", Device: gpu(3), Verdict: Wait, Observed: "in progress",
			Expected: "completed", Hint: "see the fabric manager's log", Class: ClassNode},
		{ID: "gpu.pcie", Device: gpu(4), Verdict: Unknown, Observed: "nvmlDeviceGetCurrPcieLinkWidth: UNKNOWN"},
		{ID: "gpu.busy", Device: gpu(5), Verdict: Warn, Observed: "process 4711 (python) uses it",
			Class: ClassNode, ChangedBy: "gpu.busy=warn"},
		{ID: "active.nccl.sh", Verdict: Fail, Observed: "12 GB/s", Expected: "exit code 0",
			Class: ClassNode, Lines: []string{"rank 0: 400 GB/s", "rank 1: 12 GB/s"}},
	}
	return Report{Host: "n7", Took: 412 * time.Millisecond, Verdict: WorstVerdict(findings), Findings: findings}
}

func healthy() Report {
	return Report{Host: "n7", Took: 12 * time.Millisecond, Verdict: Pass, Findings: []Finding{
		{ID: "gpu.count", Verdict: Pass, Observed: "8 GPUs"}, {ID: "node.shm", Verdict: Pass, Observed: "64 GiB"},
		{ID: "gpu.retired", Verdict: Skip, Observed: "for GPUs before Ampere"},
	}}
}

// hostile returns a report all of whose texts come from another user.
func hostile() Report {
	const text = "a\nFAIL b\x1b[2J\rc\u202ed\x00\xff\u2028e"
	f := Finding{ID: text, Device: &Device{Name: text}, Verdict: Fail, Observed: text,
		Expected: text, Hint: text, ChangedBy: text, Class: ClassNode, Lines: []string{text}}
	return Report{Host: text, Verdict: Fail, Findings: []Finding{f, {ID: "x", Verdict: text, Observed: text}}}
}

func TestText(t *testing.T) {
	for _, tc := range []struct {
		name   string
		report Report
		isLong bool
	}{
		{"sick", sick(), false},
		{"sick-verbose", sick(), true},
		{"well", healthy(), false},
		{"well-verbose", healthy(), true},
		{"nothing", Report{Verdict: Pass}, false},
		{"hostile", hostile(), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.report.FormatText(tc.isLong)
			golden(t, tc.name+".txt", got)
			if first, _, _ := strings.Cut(got, "\n"); first != tc.report.SummaryLine() {
				t.Errorf("the first line is %q, the summary %q", first, tc.report.SummaryLine())
			}
		})
	}
}

func TestLongTextIsCut(t *testing.T) {
	got := Finding{ID: "x", Observed: strings.Repeat("ü", 10_000)}.OneLine()
	if n := len([]rune(got)); n > maxTextLength+len("x: ") || !strings.HasSuffix(got, "ü…") {
		t.Errorf("%d characters: %s", n, got)
	}
}

func TestNagios(t *testing.T) {
	for verdict, want := range map[Verdict]int{Pass: 0, Skip: 0, Warn: 1, Fail: 2, Wait: 2,
		Unknown: 3, "": 3, "PERHAPS": 3} {
		if got := NagiosExitCode(verdict); got != want {
			t.Errorf("%q is %d, want %d", verdict, got, want)
		}
	}
}
