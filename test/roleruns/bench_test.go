package roleruns

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/jobtest"
)

var killsFlag = flag.Int("kills", 20, "how many processes each benchmark kills")

// benchNodes is the number of nodes of the runs of the benchmarks.
const benchNodes = 4

// benchBackoff is the back-off of instances in BenchmarkRestart, which is not part of its times.
const benchBackoff = 50 * time.Millisecond

// BenchmarkRestart kills instances of a run one after the other, and reports the time until the
// program of their replacement runs, besides the back-off: p50-ms and p99-ms by the nearest-rank
// method. "probed" instances are ready when their port listens; "spanning" ones have a process on
// each of two nodes, which the head restarts together.
func BenchmarkRestart(b *testing.B) {
	for _, tc := range []struct {
		name, keys string
		processes  int
	}{
		{"plain", "nodes: all, per-node: 4", 16},
		{"probed", "nodes: all, per-node: 4, ready: \"exec:true\"", 16},
		{"spanning", "nodes: all, nodes-per-instance: 2", 4},
	} {
		b.Run(tc.name, func(b *testing.B) {
			file := fmt.Sprintf("roles:\n- {name: server, %s, restarts: {max: 100000, backoff: "+
				"%s..%s, window: 48h}, command: %q}\n", tc.keys, benchBackoff, benchBackoff, announce)
			j, starts := beginBench(b, file, nil, fmt.Sprintf("--nodes=%d", benchNodes))
			processes := collect(b, starts, tc.processes)
			j.awaitGate()
			var took []float64
			for b.Loop() {
				for range *killsFlag {
					victim := processes[len(took)%len(processes)]
					took = append(took, j.restart(victim, processes, starts))
				}
			}
			report(b, took)
		})
	}
}

// BenchmarkRoleDeath reports the time from the death of a process to the end of all daemons: of a
// required instance of a role, and, for comparison, of the service of a worker.
func BenchmarkRoleDeath(b *testing.B) {
	file := fmt.Sprintf("roles:\n- {name: server, nodes: all, command: %q}\n- {name: driver, "+
		"nodes: head, primary: true, command: sleep 1003}\n", announce)
	for _, tc := range []struct {
		name, file string
		processes  int
		flags      []string
	}{
		{"instance", file, benchNodes, nil},
		{"worker-service", "{}\n", benchNodes + 1,
			[]string{"--head-cmd=" + announce, "--worker-cmd=" + announce, "--worker-ready=", "--", "sleep", "1003"}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var took []float64
			for b.Loop() {
				for i := range *killsFlag {
					took = append(took, death(b, tc.file, tc.flags, tc.processes, 1+i%(benchNodes-1)))
				}
			}
			report(b, took)
		})
	}
}

// BenchmarkWithdrawal kills servers of a run, and reports the time until their endpoints are in no
// file any more: of their own node ("own") and of the others ("others"). "two" kills a second one
// 300 ms later, and "term" ends one with TERM, as a rolling restart does.
func BenchmarkWithdrawal(b *testing.B) {
	for _, tc := range []struct {
		name   string
		deaths int
		signal syscall.Signal
	}{{"kill", 1, syscall.SIGKILL}, {"two", 2, syscall.SIGKILL}, {"term", 1, syscall.SIGTERM}} {
		b.Run(tc.name, func(b *testing.B) {
			file := fmt.Sprintf("roles:\n- {name: server, nodes: all, ready: \"exec:true\", restarts: {max: 100000, "+
				"backoff: 2s..2s, window: 96h}, command: %q}\n", "echo $BRINGUPD_ENDPOINTS_FILE_SERVER "+
				"$BRINGUPD_PORT $BRINGUPD_NODE_RANK $$ >$ROLERUNS_FIFO; exec sleep 1002")
			j, starts := beginBench(b, file, nil, fmt.Sprintf("--nodes=%d", benchNodes))
			servers := collect(b, starts, benchNodes)
			j.awaitGate()
			j.awaitListed(servers, benchNodes)
			var own, others []float64
			for b.Loop() {
				for range *killsFlag {
					var gone sync.WaitGroup
					var mu sync.Mutex
					for i, victim := range servers[1 : 1+tc.deaths] {
						time.Sleep(time.Duration(min(i, 1)) * 300 * time.Millisecond)
						at, port := time.Now(), ":"+victim.generation+"\n"
						if err := syscall.Kill(victim.pid, tc.signal); err != nil {
							b.Fatal(err)
						}
						for _, reader := range servers {
							gone.Go(func() {
								isGone := func(text string) bool { return !strings.Contains(text, port) }
								took := awaitFile(reader.name, isGone).Sub(at)
								mu.Lock()
								defer mu.Unlock()
								if ms := float64(took.Microseconds()) / 1000; reader == victim {
									own = append(own, ms)
								} else {
									others = append(others, ms)
								}
							})
						}
					}
					gone.Wait()
					for range tc.deaths {
						one := next(b, starts)
						servers[slices.IndexFunc(servers, func(s *announced) bool { return s.node == one.node })] = one
					}
					j.awaitListed(servers, benchNodes)
				}
			}
			b.ReportMetric(0, "ns/op")
			reportAs(b, "own-", own)
			reportAs(b, "others-", others)
		})
	}
}

// awaitListed waits until the files of all servers list as many endpoints.
func (j *job) awaitListed(servers []*announced, count int) {
	for _, one := range servers {
		awaitFile(one.name, func(text string) bool { return strings.Count(text, "\n") == count })
	}
	// Give the daemons time to publish the rest.
	ctxutil.SleepContext(context.Background(), 2*time.Second)
}

// awaitFile waits until the content of a file of endpoints matches, and returns when. It gives up after
// the ceiling.
func awaitFile(path string, match func(text string) bool) time.Time {
	for begin := time.Now(); time.Since(begin) < jobtest.Ceiling; time.Sleep(time.Millisecond) {
		if text, err := os.ReadFile(path); err == nil && match(string(text)) {
			break
		}
	}
	return time.Now()
}

// announce is the program of all instances: it announces its start.
const announce = "echo $BRINGUPD_ROLE_INDEX.$BRINGUPD_INSTANCE_RANK g$BRINGUPD_GENERATION " +
	"$BRINGUPD_NODE_RANK $$ >$ROLERUNS_FIFO; exec sleep 1002"

// announced is the start of a program.
type announced struct {
	name       string
	generation string
	node, pid  int
	at         time.Time
}

// beginBench starts a run whose programs announce their starts.
func beginBench(b *testing.B, file string, last []string, flags ...string) (*job, <-chan announced) {
	b.Helper()
	j := newJob(b, schedule{}, "bench")
	path := filepath.Join(j.Dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		b.Fatal(err)
	}
	fifo, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		b.Fatal(err)
	}
	starts := make(chan announced, 64)
	ended := make(chan struct{})
	b.Cleanup(func() {
		_ = fifo.Close()
		<-ended
	})
	go func() {
		defer close(ended)
		defer close(starts)
		for lines := bufio.NewScanner(fifo); lines.Scan(); {
			at := time.Now()
			fields := strings.Split(lines.Text(), " ")
			if len(fields) != 4 {
				continue
			}
			node, _ := strconv.Atoi(fields[2])
			pid, _ := strconv.Atoi(fields[3])
			starts <- announced{fields[0], fields[1], node, pid, at}
		}
	}()
	j.start(file, []string{"ROLERUNS_FIFO=" + path}, append(flags, last...)...)
	return j, starts
}

// collect returns the first starts.
func collect(b *testing.B, starts <-chan announced, count int) (all []*announced) {
	b.Helper()
	for len(all) < count {
		all = append(all, next(b, starts))
	}
	return all
}

// next returns the next start.
func next(b *testing.B, starts <-chan announced) *announced {
	b.Helper()
	select {
	case one := <-starts:
		return &one
	case <-time.After(jobtest.Ceiling):
		b.Fatal("a program has not started")
		return nil
	}
}

// restart kills a process, and waits for its replacement and those of its instance. It returns the
// time to its own, besides the back-off, in milliseconds.
func (j *job) restart(victim *announced, processes []*announced, starts <-chan announced) float64 {
	b := j.T.(*testing.B)
	b.Helper()
	index, _, _ := strings.Cut(victim.name, ".")
	left := 0
	for _, other := range processes {
		if strings.HasPrefix(other.name, index+".") {
			left++
		}
	}
	at, own := time.Now(), victim.name
	if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	var took time.Duration
	for ; left > 0; left-- {
		one := next(b, starts)
		if one.name == own {
			took = one.at.Sub(at) - benchBackoff
		}
		for _, other := range processes {
			if other.name == one.name {
				*other = *one
			}
		}
	}
	// Give the daemons time to publish that it is ready.
	ctxutil.SleepContext(context.Background(), 2*benchBackoff)
	return float64(took.Microseconds()) / 1000
}

// awaitGate waits until the gate is open.
func (j *job) awaitGate() {
	j.T.Helper()
	open := filepath.Join(j.Logs, j.Name, signal.ControlDir, signal.NameGateOpen)
	if !j.Until(func() bool { _, err := os.Stat(open); return err == nil }) {
		j.T.Fatalf("the gate did not open:\n%s", &j.Said)
	}
}

// death starts a run, kills the process of a node, and returns the time to the end of the run.
func death(b *testing.B, file string, last []string, count, node int) float64 {
	b.Helper()
	j, starts := beginBench(b, file, last, fmt.Sprintf("--nodes=%d", benchNodes))
	processes := collect(b, starts, count)
	j.awaitGate()
	victim := processes[slices.IndexFunc(processes, func(one *announced) bool { return one.node == node })]
	began := time.Now()
	if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	code := j.AwaitEnd(jobtest.Ceiling)
	took := time.Since(began)
	if code != 77 {
		b.Fatalf("the run has ended with %d:\n%s", code, &j.Said)
	}
	return float64(took.Microseconds()) / 1000
}

// report reports percentiles of times, by the nearest-rank method.
func report(b *testing.B, took []float64) {
	b.ReportMetric(0, "ns/op")
	reportAs(b, "", took)
}

// reportAs reports the same, with a word before the names.
func reportAs(b *testing.B, name string, took []float64) {
	slices.Sort(took)
	at := func(percent int) float64 { return took[(len(took)*percent+99)/100-1] }
	b.ReportMetric(at(50), name+"p50-ms")
	b.ReportMetric(at(99), name+"p99-ms")
	b.ReportMetric(at(100), name+"worst-ms")
}
