//go:build testbed

// Package bench measures complete bring-ups on a real Slurm. Each is paired with the cheapest
// possible job, because machines are shared and timings are noisy.
package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/testbed"
)

const (
	nodes = 8
	pairs = 21
)

var (
	bringUpTurns = flag.Int("bringup-turns", pairs, "turns of BenchmarkBringUp")
	bringUpOther = flag.String("bringup-other", "", "another bringupd that BenchmarkBringUp runs in turn with this one")
)

// floorOf returns the srun command line of the cheapest possible job.
func floorOf(size int) []string {
	return []string{"-N", strconv.Itoa(size), "--ntasks-per-node=1", "true"}
}

// BenchmarkBringUp measures `srun true`, `srun bringupd -- true` and, with -bringup-other, the same
// with another bringupd, in turn, on 2 nodes (about a core each, as on real nodes) and on 8. It
// reports medians in milliseconds: floor-ms, bringupd-ms, other-ms, and over-ms and other-over-ms of
// the differences to the floor per turn. The ratios are those of the medians, to the floor and to
// the other. It also reports rss-MiB, the largest peak of resident memory of any daemon.
func BenchmarkBringUp(b *testing.B) {
	for _, share := range testbed.Shares {
		if share == testbed.Hostile {
			continue // only for tests with injected faults
		}
		b.Run(string(share), func(b *testing.B) {
			bed, program := raise(b, share)
			programs := []string{program}
			if *bringUpOther != "" {
				programs = append(programs, filepath.Join(bed.Bin(), "other"))
				copyProgram(b, *bringUpOther, programs[1])
			}
			for _, size := range []int{2, nodes} {
				b.Run(strconv.Itoa(size), func(b *testing.B) { bringUp(b, bed, size, programs) })
			}
		})
	}
}

// bringUp measures jobs of size nodes.
func bringUp(b *testing.B, bed *testbed.Bed, size int, programs []string) {
	jobs := [][]string{floorOf(size)}
	for _, program := range programs {
		jobs = append(jobs, []string{"-N", strconv.Itoa(size), "--ntasks-per-node=1",
			"--kill-on-bad-exit=1", "--wait=0",
			program, "--log-dir=" + filepath.Join(bed.Share(), "logs"), "--", "true"})
	}
	for _, job := range jobs { // the first run of each fills caches
		timed(b, bed, job)
	}
	times, overs := make([][]float64, len(jobs)), make([][]float64, len(jobs))
	for b.Loop() {
		for range *bringUpTurns {
			var base float64
			for i, job := range jobs {
				took := timed(b, bed, job)
				if i == 0 {
					base = took
				}
				times[i], overs[i] = append(times[i], took), append(overs[i], took-base)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(times[0]), "floor-ms")
	b.ReportMetric(median(times[1]), "bringupd-ms")
	b.ReportMetric(median(overs[1]), "over-ms")
	b.ReportMetric(median(times[1])/median(times[0]), "ratio")
	if len(programs) > 1 {
		b.ReportMetric(median(times[2]), "other-ms")
		b.ReportMetric(median(overs[2]), "other-over-ms")
		b.ReportMetric(median(times[1])/median(times[2]), "to-other")
	}
	b.ReportMetric(resident(b, bed, jobs[1][:len(jobs[1])-1], size), "rss-MiB")
}

// copyProgram copies a program to a path that all nodes see.
func copyProgram(b *testing.B, from, to string) {
	b.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// raise starts a testbed with this kind of shared file system and builds a bringupd that all of its
// nodes see. The testbed is closed at the end of the benchmark.
func raise(b *testing.B, share testbed.Share) (bed *testbed.Bed, program string) {
	b.Helper()
	bed, err := testbed.Start(context.Background(), testbed.Config{Nodes: nodes, Share: share})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := bed.Close(); err != nil {
			b.Error(err)
		}
	})
	program = filepath.Join(bed.Bin(), "bringupd")
	build(b, program)
	return bed, program
}

func build(b *testing.B, program string) {
	b.Helper()
	cmd := exec.Command("go", "build", "-tags", "urfave_cli_no_docs,netgo,osusergo", "-o", program,
		"github.com/bringupd/bringupd/cmd/bringupd")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("cannot build bringupd: %v: %s", err, out)
	}
}

// timed runs srun and returns its duration in milliseconds.
func timed(b *testing.B, bed *testbed.Bed, args []string) float64 {
	b.Helper()
	cmd := bed.Command(context.Background(), "srun", args...)
	begin := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("srun %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return float64(time.Since(begin).Microseconds()) / 1000
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// resident returns the largest peak of resident memory among the daemons of a job whose driver
// runs, in MiB.
func resident(b *testing.B, bed *testbed.Bed, whole []string, size int) float64 {
	b.Helper()
	job := bed.Command(context.Background(), "srun", append(whole, "sleep", "2")...)
	if err := job.Start(); err != nil {
		b.Fatal(err)
	}
	// When the driver runs, all nodes have joined. After that there are only heartbeats.
	for deadline := time.Now().Add(time.Minute); !runs(b, bed, 0,
		"sleep"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("no driver runs on n0 after a minute: %v", jobs(b, bed, 0))
		}
	}
	largest := 0.0
	for node := range size {
		for _, p := range jobs(b, bed, node) {
			if strings.HasSuffix(p.Args[0], "/bringupd") {
				largest = max(largest, peak(b, p.PID))
			}
		}
	}
	if err := job.Wait(); err != nil {
		b.Fatal(err)
	}
	return largest
}

// jobs returns the processes of jobs on a node.
func jobs(b *testing.B, bed *testbed.Bed, node int) []testbed.Process {
	b.Helper()
	processes, err := bed.Processes(node)
	if err != nil {
		b.Fatal(err)
	}
	return slices.DeleteFunc(processes, func(p testbed.Process) bool {
		return p.Infra || len(p.Args) == 0
	})
}

func runs(b *testing.B, bed *testbed.Bed, node int, name string) bool {
	b.Helper()
	return slices.ContainsFunc(jobs(b, bed, node), func(p testbed.Process) bool {
		return p.Args[0] == name
	})
}

func peak(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.Atoi(fields[1])
			if err != nil {
				b.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	b.Fatalf("no VmHWM in /proc/%d/status", pid)
	return 0
}
