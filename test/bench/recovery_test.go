//go:build testbed

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/testbed"
)

var (
	recoveriesFlag   = flag.Int("recoveries", 3, "how many deaths BenchmarkRecovery measures the recovery from")
	recoveriesOnFlag = flag.String("recoveries-on", string(testbed.StaleSSHFS),
		"kinds of shares that it measures them on")
)

// BenchmarkRecovery repeatedly kills the daemon of a worker of a job of eight nodes that continues
// with seven, and reports how long it took until every rank of the next attempt had printed its
// first line, in milliseconds: p50-ms, p99-ms and worst-ms, by the clock of the ranks. shown-p50-ms
// is the median of the time until srun had shown all these lines. It also reports floor-ms and
// p99-floor-ms of one `srun true` before each job, which shows how much is due to the machine.
func BenchmarkRecovery(b *testing.B) {
	grid := []string{
		fmt.Sprintf("%d nodes, --nnodes=%d:%d, %d kills of a worker's daemon, ms until the "+
			"first line of each new rank:\n",
			nodes, nodes-1, nodes, *recoveriesFlag),
		"| file system | srun true: p50 | p99 | p50 | p99 | worst | shown by srun: p50 | p99 |",
		"|---|---|---|---|---|---|---|---|",
	}
	for share := range strings.SplitSeq(*recoveriesOnFlag, ",") {
		b.Run(share, func(b *testing.B) {
			bed, program := raise(b, testbed.Share(share))
			var printed, shown, floors []float64
			h := hospital{bed: bed, program: program}
			for b.Loop() {
				for i := range *recoveriesFlag {
					floors = append(floors, timed(b, bed, floorOf(nodes)))
					byRank, bySrun := h.recovery(b, 1+i%(nodes-1))
					printed, shown = append(printed, byRank), append(shown, bySrun)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(floors), "floor-ms")
			b.ReportMetric(nearest(floors, 99), "p99-floor-ms")
			b.ReportMetric(nearest(printed, 50), "p50-ms")
			b.ReportMetric(nearest(printed, 99), "p99-ms")
			b.ReportMetric(nearest(printed, 100), "worst-ms")
			b.ReportMetric(nearest(shown, 50), "shown-p50-ms")
			grid = append(grid, fmt.Sprintf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |", share,
				median(floors), nearest(floors, 99), nearest(printed, 50), nearest(printed, 99), nearest(printed, 100),
				nearest(shown, 50), nearest(shown, 99)))
		})
	}
	fmt.Println(strings.Join(grid, "\n")) // b.Log would not be shown
}

// recovering is the program of each rank. Those of the first attempt wait to be ended.
const recovering = `echo "began $BRINGUPD_ATTEMPT $RANK $EPOCHREALTIME."; [ $BRINGUPD_ATTEMPT = 1 ] || exec sleep 300`

// recovery starts a job, kills the daemon of a worker, and returns how many milliseconds later all
// ranks of the next attempt had printed their first lines, and srun had shown them.
func (h *hospital) recovery(b *testing.B, worker int) (printed, shown float64) {
	b.Helper()
	h.jobs++
	logs := filepath.Join(h.bed.Share(), "recoveries-"+strconv.Itoa(h.jobs))
	said := firstLines{shown: make(map[string]time.Time), printed: make(map[string]time.Time)}
	srun := h.bed.Command(context.Background(), "srun",
		"-N", strconv.Itoa(nodes), "-w", "n[0-"+strconv.Itoa(nodes-1)+"]", "--ntasks-per-node=1",
		"--kill-on-bad-exit=0", "--wait=0", h.program, "--log-dir="+logs,
		fmt.Sprintf("--nnodes=%d:%d", nodes-1, nodes), "--restarts=1", "--ranks-per-node=1",
		"--", "bash", "-c", recovering)
	srun.Stdout, srun.Stderr = &said, &said
	if err := srun.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- srun.Wait() }()
	await := func(attempt, ranks int) {
		b.Helper()
		for deadline := time.Now().Add(patience); said.count(attempt) < ranks; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				_ = srun.Process.Signal(syscall.SIGTERM)
				<-ended
				b.Fatalf("after %s, %d of %d ranks have begun in attempt %d:\n%s", patience,
					said.count(attempt), ranks, attempt, said.String())
			}
		}
	}

	await(0, nodes)
	pid := h.daemons(b, logs)[worker]
	// Kill at a random time relative to heartbeats and polls.
	time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	await(1, nodes-1)
	printed, shown = said.since(began, 1)

	// srun ends with the code of the killed daemon. The head says how the job has ended.
	late := time.AfterFunc(patience, func() { _ = srun.Process.Kill() })
	defer late.Stop()
	<-ended
	if want := fmt.Sprintf("all %d ranks have ended", nodes-1); !strings.Contains(said.String(), want) {
		b.Errorf("the job does not say %q:\n%s", want, said.String())
	}
	return printed, shown
}

// firstLines is the output of a job. It has the times at which each rank printed its first line,
// and at which that was shown, by attempt and rank.
type firstLines struct {
	mu             sync.Mutex
	all            bytes.Buffer
	read           int // bytes of complete lines
	printed, shown map[string]time.Time
}

// firstLine matches the line of a rank: the attempt, the rank, seconds and microseconds.
var firstLine = regexp.MustCompile(`began (\d+) (\d+) (\d+)[.,](\d{6})\.`)

// Write appends output, and notes the lines of ranks.
func (f *firstLines) Write(data []byte) (int, error) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all.Write(data)
	for {
		line, _, whole := bytes.Cut(f.all.Bytes()[f.read:], []byte("\n"))
		if !whole {
			return len(data), nil
		}
		f.read += len(line) + 1
		if found := firstLine.FindSubmatch(line); found != nil {
			rank := string(found[1]) + "." + string(found[2])
			sec, _ := strconv.ParseInt(string(found[3]), 10, 64)
			usec, _ := strconv.ParseInt(string(found[4]), 10, 64)
			f.printed[rank], f.shown[rank] = time.Unix(sec, usec*1000), now
		}
	}
}

// count returns how many ranks of an attempt have begun.
func (f *firstLines) count(attempt int) (ranks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for rank := range f.shown {
		if strings.HasPrefix(rank, strconv.Itoa(attempt)+".") {
			ranks++
		}
	}
	return ranks
}

// since returns the milliseconds from a time to the last rank's line of an attempt.
func (f *firstLines) since(began time.Time, attempt int) (printed, shown float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for rank, at := range f.shown {
		if strings.HasPrefix(rank, strconv.Itoa(attempt)+".") {
			shown = max(shown, float64(at.Sub(began).Microseconds())/1000)
			printed = max(printed, float64(f.printed[rank].Sub(began).Microseconds())/1000)
		}
	}
	return printed, shown
}

// String returns all output so far.
func (f *firstLines) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all.String()
}
