package fitness

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/test/zoo"
)

// machine is a healthy machine whose facts have been published. Values that the publication does
// not contain are set as on a driver without the function, and numbers that identify a piece of
// hardware are replaced.
type machine struct {
	name   string // display name
	facts  string // of testdata/facts
	source string
	change func(*gpu.Facts)
	count  int // of the job's GPUs; 0: unknown
	// value of CUDA_VISIBLE_DEVICES, if it is set
	visible string
}

const (
	captures = "NVIDIA/k8s-test-infra@3b2b865 tests/e2e/go/assertions/nvidiasmi/testdata/hardware/qx-%s.xml"
	telegraf = "influxdata/telegraf@b272631 plugins/inputs/nvidia_smi/testdata/%s.xml"
	gls      = "thamada/gls@e20f22d gls/%s_smi.py"
)

// machines returns the healthy machines.
func machines() []machine {
	return []machine{
		{name: "DGX A100, 8 GPUs", facts: "dgx-a100", count: 8,
			source: "go-nvml@2f9e261 pkg/nvml/mock/dgxa100; links: NVIDIA/nccl#1505"},
		{name: "HGX H100, 8 GPUs", facts: "hgx-h100", count: 8,
			source: fmt.Sprintf(captures, "h100") + "; links: bottlerocket-os/bottlerocket#4418, NVIDIA/nccl#1264"},
		{name: "HGX B200, 8 GPUs", facts: "hgx-b200", count: 8,
			source: fmt.Sprintf(captures, "b200") +
				"; links: the-dsvolk.github.io/ai-perf/ai-infra/B200-explorer.html"},
		{name: "a tray of GB200 NVL72, 4 GPUs", facts: "gb200-tray", count: 4,
			source: fmt.Sprintf(captures, "gb200") + "; links: NVIDIA/k8s-test-infra#371"},
		{name: "a tray of GB300 NVL72, 4 GPUs", facts: "gb300-tray", count: 4,
			source: fmt.Sprintf(captures, "gb300")},
		{name: "H100 NVL, a pair, 12 of 18 links each", facts: "h100-nvl", count: 2,
			source: fmt.Sprintf(gls, "H100NVLx2") + "; links: Azure/azurehpc-health-checks#162"},
		{name: "GH200", facts: "gh200", count: 1, source: fmt.Sprintf(gls, "GH200")},
		{name: "GH200 whose memory the kernel has filled with files", facts: "gh200",
			count: 1, change: func(f *gpu.Facts) {
				f.GPUs[0].Numa = read(1)
				f.GPUs[0].Memory = read(gpu.Memory{Total: 97871 << 20, Used: 60000 << 20})
			}, source: fmt.Sprintf(gls, "GH200") + "; the memory: nvml.h on nvmlDeviceGetMemoryInfo_v2"},
		{name: "half an HGX-1, 4 V100 with 4, 4, 5 and 5 of 6 links", facts: "v100-four",
			count: 4, source: fmt.Sprintf(gls, "V100_x8") +
				", its first four; links: the matrix of kyumdoctor.tistory.com/74"},
		{name: "two V100 with 2 of 6 links", facts: "v100-two", count: 2,
			source: fmt.Sprintf(gls, "V100_x8") +
				", its first two; links: " +
				"help.itc.rwth-aachen.de/service/rhr4fjjutttf/article/20919ea3f07f4c9da581532def08c35f"},
		{name: "one A100 SXM of a board, in a VM", facts: "a100-vm", count: 1,
			source: fmt.Sprintf(captures, "a100") +
				"; its links are assumed to be down, like those of a single A100 in NVIDIA/NVSentinel#1481"},
		{name: "one H200 of a board, in a VM", facts: "h200-vm", count: 1, source: fmt.Sprintf(gls, "H200")},
		{name: "L40S in a VM, 8 of 16 lanes", facts: "l40s-vm", count: 1, source: fmt.Sprintf(captures, "l40s")},
		{name: "T4 in a VM, 8 of 16 lanes", facts: "t4-vm", count: 1, source: fmt.Sprintf(captures, "t4")},
		{name: "A10G in a VM, with Xorg", facts: "a10g-vm", count: 1, source: fmt.Sprintf(telegraf, "a10g")},
		{name: "L4, idle with 8 of 16 lanes", facts: "l4", count: 1, source: fmt.Sprintf(gls, "L4")},
		{name: "A100 with four MIG instances, two of them in use by another job",
			facts: "a100-tenants", source: fmt.Sprintf(telegraf, "a100-sxm4-v12") +
				"; the others' use: XuehaiPan/nvitop#8",
			visible: "MIG-00000000-0000-5000-8000-000000000002,MIG-00000000-0000-5000-8000-000000000003"},
		{name: zoo.MI250.Name, facts: "mi250", count: zoo.MI250.Count, source: zoo.MI250.Source},
		{name: zoo.MI300X.Name, facts: "mi300x", count: zoo.MI300X.Count, source: zoo.MI300X.Source},
		{name: zoo.Max1550.Name, facts: "max1550", count: zoo.Max1550.Count, source: zoo.Max1550.Source},
		{name: "a desktop, an RTX 3080 with Xorg and browsers", facts: "desktop-rtx3080",
			count: 1, source: fmt.Sprintf(telegraf, "rtx-3080-v12")},
	}
}

// TestZoo verifies that healthy machines pass, and that test/zoo/README.md lists their results and
// those of the faulty ones: the reports that name a fault.
func TestZoo(t *testing.T) {
	var b strings.Builder
	b.WriteString(`<!-- Written by go test ./pkg/gpu/fitness -run Zoo -update: change the program, not this file. -->

# Recorded GPU nodes

This page lists the machines and faults with which the [GPU checks](../../docs/checks.md#gpus) are tested, for
administrators who want to know what the checks report for their GPUs. The tests use recorded facts
and no GPUs. They treat values that a recording lacks as if the NVIDIA driver lacked the function.

## Healthy

They pass with ` + "`--gpu-check=auto` and with `require`" + `.

| machine | passed, skipped | source of the facts |
|---|---|---|
`)
	for _, m := range machines() {
		t.Run(m.facts, func(t *testing.T) { fmt.Fprintf(&b, "| %s | %s | %s |\n", m.name, m.outcome(t), m.source) })
	}
	b.WriteString("\n## Faulty\n\nInjected faults. A WAIT is checked again, and fails after its " +
		"timeout.\n\n| fault | verdict | where | class | finding |\n|---|---|---|---|---|\n")
	planted := 0
	for _, r := range reports(t) {
		if r.Fault == "" {
			continue
		}
		planted++
		f, want, usual := r.scene(t)
		for i, line := range sick(EvaluateFacts(f, want), usual) {
			fault := r.Fault
			if i > 0 {
				fault = ""
			}
			fmt.Fprintf(&b, "| %s | %s |\n", fault, line)
		}
	}
	if planted < 30 {
		t.Errorf("%d faults are planted", planted)
	}
	const path = "../../../test/zoo/README.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if old, err := os.ReadFile(path); err != nil || string(old) != b.String() {
		t.Errorf("%s is not what comes of the machines: run go test ./pkg/gpu/fitness -run Zoo -update (%v)", path, err)
	}
}

// TestClasses compares docs/checks.md with the classes of the findings.
func TestClasses(t *testing.T) {
	text, err := os.ReadFile("../../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports(t) {
		f, want, _ := r.scene(t)
		for _, found := range EvaluateFacts(f, want) {
			_, row, _ := strings.Cut(string(text), "\n| `"+found.ID+"` | ")
			if classes, _, _ := strings.Cut(row, " | "); !strings.Contains(classes, string(found.Class)) {
				t.Errorf("docs/checks.md gives %s the class %q, and that of %q is %s", found.ID,
					classes, found.Observed, found.Class)
			}
		}
	}
}

// outcome evaluates a healthy machine in both modes and returns the numbers of its findings as a cell
// of a table.
func (m machine) outcome(t *testing.T) (cell string) {
	t.Helper()
	for _, mode := range []check.GPUMode{check.ModeAuto, check.ModeRequire} {
		environ := []string{"HOME=/root"}
		if m.visible != "" {
			environ = append(environ, gpu.VisibleDevicesVariable+"="+m.visible)
		}
		want, err := ParseExpectation(cmp.Or(m.count, -1), "--gpus-per-node", environ)
		if err != nil {
			t.Fatal(err)
		}
		want.Mode = mode
		f := load(t, m.facts)
		if m.change != nil {
			m.change(&f)
		}
		findings := EvaluateFacts(f, want)
		wantComplete(t, findings)
		if got := summary(findings); got != "" {
			t.Errorf("%s: %s", mode, got)
		}
		count := func(v check.Verdict) (n int) {
			for _, f := range findings {
				if f.Verdict == v {
					n++
				}
			}
			return n
		}
		cell = fmt.Sprintf("%d, %d", count(check.Pass), count(check.Skip))
	}
	return cell
}

// sick returns a row of a table for each problem that the usual findings do not have. GPUs with the
// same problem share a row; of many rows only two are returned.
func sick(findings, usual []check.Finding) (rows []string) {
	type row struct{ verdict, class, said string }
	where := make(map[row][]string)
	var order []row
	for _, f := range findings {
		same := func(u check.Finding) bool {
			return summary([]check.Finding{u}) == summary([]check.Finding{f}) && u.Observed == f.Observed
		}
		if f.Verdict == check.Pass || f.Verdict == check.Skip || slices.ContainsFunc(usual, same) {
			continue
		}
		verdict := fmt.Sprintf("%s `%s`", f.Verdict, f.ID)
		if f.Strict {
			verdict += ", FAIL in *strict*"
		}
		r := row{verdict, string(f.Class), f.Observed}
		if len(where[r]) == 0 {
			order = append(order, r)
		}
		at := "node"
		if f.Device != nil {
			at = cmp.Or(strings.TrimPrefix(fmt.Sprint(f.Device.Index), "-1"), f.Device.Bus)
		}
		where[r] = append(where[r], at)
	}
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`)
	for _, r := range order {
		rows = append(rows, fmt.Sprintf("%s | %s | %s | %s", r.verdict,
			strings.Join(where[r], ", "), r.class, cell.Replace(r.said)))
	}
	if n := len(rows) - 2; n > 1 {
		rows = append(rows[:2], fmt.Sprintf("… | | | and %d more", n))
	}
	return rows
}
