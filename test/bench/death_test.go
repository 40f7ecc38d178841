//go:build testbed

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/testbed"
)

var (
	deathsFlag   = flag.Int("deaths", 3, "how many deaths BenchmarkDeath measures of each kind")
	deathsOnFlag = flag.String("deaths-on", "local,sshfs,sshfs-stale",
		"kinds of shares that it measures them on")
	deathsOfFlag = flag.String("deaths-of", "worker,head,worker-service,head-service",
		"the processes to kill")
	lifelineFlag = flag.String("deaths-lifeline", "auto",
		"what the jobs are given as --lifeline; empty: nothing")
	keepFlag = flag.String("deaths-keep", "",
		"folder that gets the run directory of each death that took longer than -deaths-slow, to see why")
	slowFlag = flag.Duration("deaths-slow", time.Second,
		"how long a death may take whose run directory is not kept")
)

// BenchmarkDeath repeatedly kills one process of a job of eight nodes without warning, and reports
// how long it took until the last daemon had exited, in milliseconds: p50-ms, p99-ms (by the
// nearest-rank method) and worst-ms. It also reports floor-ms, the median of one `srun true` before
// each death, and p99-floor-ms, which shows how much of a p99 is due to the machine. The daemons
// are observed from outside; Slurm is configured not to end any task.
func BenchmarkDeath(b *testing.B) {
	grid := []string{
		fmt.Sprintf("--lifeline=%s, %d nodes, %d deaths each, ms from the kill to the last "+
			"daemon's exit:\n", *lifelineFlag, nodes, *deathsFlag),
		"| file system | killed process | srun true: p50 | p99 | p50 | p99 | worst |",
		"|---|---|---|---|---|---|---|",
	}
	for share := range strings.SplitSeq(*deathsOnFlag, ",") {
		b.Run(share, func(b *testing.B) {
			grid = append(grid,
				deathsOn(b, testbed.Share(share))...)
		})
	}
	// Do not use b.Log: the log of a benchmark with sub-benchmarks is not shown.
	fmt.Println(strings.Join(grid, "\n"))
}

// deathsOn measures all kinds of deaths on their own testbed, and returns the rows of the table.
func deathsOn(b *testing.B, share testbed.Share) (rows []string) {
	bed, program := raise(b, share)
	hospital := hospital{bed: bed, program: program}
	for who := range strings.SplitSeq(*deathsOfFlag, ",") {
		b.Run(who, func(b *testing.B) {
			took, floors := hospital.deaths(b, who)
			p50, p99, worst := nearest(took, 50), nearest(took, 99), nearest(took, 100)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(floors), "floor-ms")
			b.ReportMetric(nearest(floors, 99), "p99-floor-ms")
			b.ReportMetric(p50, "p50-ms")
			b.ReportMetric(p99, "p99-ms")
			b.ReportMetric(worst, "worst-ms")
			rows = append(rows,
				fmt.Sprintf("| %s | %s | %.0f | %.0f | %.0f | %.0f | %.0f |", share, who,
					median(floors), nearest(floors, 99), p50, p99, worst))
		})
	}
	return rows
}

// nearest returns a percentile by the nearest-rank method.
func nearest(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// hospital measures the duration of deaths on a testbed.
type hospital struct {
	bed     *testbed.Bed
	program string
	jobs    int // number of jobs so far
}

// deaths runs the number of jobs that the flag sets and kills one process in each, selected by the
// argument who. It returns the duration of each death and of an `srun true` before it.
func (h *hospital) deaths(b *testing.B, who string) (took, floors []float64) {
	for b.Loop() {
		for i := range *deathsFlag {
			floors = append(floors, timed(b, h.bed, floorOf(nodes)))
			took = append(took, h.death(b, who, 1+i%(nodes-1)))
		}
	}
	return took, floors
}

// patience is far longer than any death takes, even if heartbeats are files.
const patience = 90 * time.Second

// victim returns the pid of the process to kill: the daemon or the service of the head or of a
// worker.
func (h *hospital) victim(b *testing.B, who string, worker int, daemons []int) int {
	b.Helper()
	switch who {
	case "worker":
		return daemons[worker]
	case "head":
		return daemons[0]
	case "worker-service":
		return h.find(b, worker, "sleep", "1002")
	case "head-service":
		return h.find(b, 0, "sleep", "1001")
	}
	b.Fatalf("unknown process %q: give worker, head, worker-service or head-service", who)
	return 0
}

// death starts a job, kills one of its processes and returns how many milliseconds later its last
// daemon has exited.
func (h *hospital) death(b *testing.B, who string, worker int) float64 {
	b.Helper()
	h.jobs++
	logs := filepath.Join(h.bed.Share(), "deaths-"+strconv.Itoa(h.jobs))
	args := []string{
		"-N", strconv.Itoa(nodes), "-w", "n[0-" + strconv.Itoa(nodes-1) + "]",
		"--ntasks-per-node=1",
		"--kill-on-bad-exit=0", "--wait=0", h.program, "--log-dir=" + logs,
		"--head-cmd=exec sleep 1001", "--worker-cmd=exec sleep 1002", "--worker-ready=",
	}
	if *lifelineFlag != "" {
		args = append(args, "--lifeline="+*lifelineFlag)
	}
	var said bytes.Buffer
	srun := h.bed.Command(context.Background(), "srun", append(args, "--", "sleep", "1003")...)
	srun.Stdout, srun.Stderr = &said, &said
	if err := srun.Start(); err != nil {
		b.Fatal(err)
	}
	defer h.bury(b, srun, &said)

	h.find(b, 0, "sleep", "1003") // wait until its driver runs
	daemons := h.daemons(b, logs)
	pid := h.victim(b, who, worker, daemons)
	var ends []int // pidfds
	for _, daemon := range daemons {
		fd, err := unix.PidfdOpen(daemon, 0)
		if err != nil {
			b.Fatalf("a daemon has ended too early: %v\n%s", err, &said)
		}
		defer func() { _ = unix.Close(fd) }()
		ends = append(ends, fd)
	}
	// Kill at a random time relative to heartbeats and polls.
	time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	ended := awaitEnds(ends, began.Add(patience))
	if slices.ContainsFunc(ended, time.Time.IsZero) {
		b.Fatalf("%s after the death of the %s, daemons still run: by rank they have ended at "+
			"%v\n%s", patience, who, ended, &said)
	}
	last := slices.MaxFunc(ended, time.Time.Compare)
	h.keep(b, logs, fmt.Sprintf("%s-%dms", who, last.Sub(began).Milliseconds()), began, ended)
	return float64(last.Sub(began).Microseconds()) / 1000
}

// keep copies the run directory of a slow death to a place that outlives the testbed, and adds the
// time of the death and of each daemon's end.
func (h *hospital) keep(b *testing.B, logs, name string, began time.Time, ended []time.Time) {
	b.Helper()
	last := slices.MaxFunc(ended, time.Time.Compare)
	if *keepFlag == "" || last.Sub(began) < *slowFlag {
		return
	}
	to := filepath.Join(*keepFlag, filepath.Base(logs)+"-"+name)
	var times strings.Builder
	fmt.Fprintf(&times, "killed %s\n", began.UTC().Format(time.RFC3339Nano))
	for rank, end := range ended {
		fmt.Fprintf(&times, "rank %d ended %s, after %s\n", rank,
			end.UTC().Format(time.RFC3339Nano), end.Sub(began))
	}
	err := os.CopyFS(to, os.DirFS(logs))
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "ends"), []byte(times.String()), 0o644)
	}
	if err != nil {
		b.Errorf("cannot keep the run directory of a death: %v", err)
	}
}

// bury waits for srun, which should end at once because all daemons have exited.
func (h *hospital) bury(b *testing.B, srun *exec.Cmd, said *bytes.Buffer) {
	b.Helper()
	if b.Failed() {
		_ = srun.Process.Signal(syscall.SIGTERM)
	}
	late := time.AfterFunc(patience, func() { _ = srun.Process.Kill() })
	defer late.Stop()
	if err := srun.Wait(); err == nil && !b.Failed() {
		b.Errorf("a job of which a part was killed has ended with 0\n%s", said)
	}
}

// daemons reads the daemons' process ids from the run directory, by node index.
func (h *hospital) daemons(b *testing.B, logs string) (pids []int) {
	b.Helper()
	for rank := range nodes {
		matches, err := filepath.Glob(
			filepath.Join(logs, "[0-9]*", signal.NodesDir,
				signal.NodeName(rank, nodes, record.StateJoined)))
		if err != nil || len(matches) != 1 {
			b.Fatalf("cannot find the answer of rank %d in %s: %v, %v", rank, logs, matches, err)
		}
		data, err := os.ReadFile(matches[0])
		var joined record.Joined
		if err == nil {
			err = json.Unmarshal(data, &joined)
		}
		if err != nil || joined.PID == 0 {
			b.Fatalf("cannot read %s: %v, %q", matches[0], err, data)
		}
		pids = append(pids, joined.PID)
	}
	return pids
}

// find waits for a process of a job on a node and identifies it by its command line.
func (h *hospital) find(b *testing.B, node int, words ...string) int {
	b.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		all := jobs(b, h.bed, node)
		at := slices.IndexFunc(all, func(p testbed.Process) bool {
			return slices.Equal(p.Args, words)
		})
		if at >= 0 {
			return all[at].PID
		}
		if time.Now().After(deadline) {
			b.Fatalf("no %v runs on n%d after %s: %v", words, node, patience, all)
		}
	}
}

// awaitEnds waits until the processes behind the pidfds have ended, and returns when it observed
// the end of each. The time is zero if a process has not ended by the deadline.
func awaitEnds(pidfds []int, deadline time.Time) []time.Time {
	ended := make([]time.Time, len(pidfds))
	for slices.ContainsFunc(ended, time.Time.IsZero) && time.Now().Before(deadline) {
		polled := make([]unix.PollFd, len(pidfds))
		for i, fd := range pidfds {
			polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			if !ended[i].IsZero() {
				polled[i].Fd = -1 // poll ignores negative descriptors
			}
		}
		if _, err := unix.Poll(polled, int(time.Until(deadline).Milliseconds())+1); err != nil {
			continue // interrupted by a signal of the Go runtime
		}
		for i, p := range polled {
			if p.Revents != 0 {
				ended[i] = time.Now()
			}
		}
	}
	return ended
}
