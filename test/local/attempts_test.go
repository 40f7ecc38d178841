package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// pods are the daemons of one launch. Each is restarted whenever it was killed, as by Kubernetes or
// by a loop in a batch script.
type pods struct {
	t      *testing.T
	dir    string
	size   int
	again  bool // restart daemons that were killed
	flags  []string
	driver string

	mu      sync.Mutex
	daemons map[int]*exec.Cmd
	codes   map[int]int
	said    map[int]*bytes.Buffer
	all     sync.WaitGroup
}

func newPods(t *testing.T, size int, driver string, flags ...string) *pods {
	t.Helper()
	p := &pods{
		t: t, dir: t.TempDir(), size: size, again: true, driver: driver, flags: flags,
		daemons: make(map[int]*exec.Cmd), codes: make(map[int]int),
		said: make(map[int]*bytes.Buffer),
	}
	t.Cleanup(func() {
		p.mu.Lock()
		p.again = false
		for _, cmd := range p.daemons {
			_ = cmd.Process.Kill()
		}
		p.mu.Unlock()
		p.all.Wait()
		if t.Failed() {
			for rank, said := range p.said {
				t.Logf("node %d says:\n%s", rank, said)
			}
		}
	})
	return p
}

func (p *pods) mark() jobtest.Mark { return jobtest.Mark("PODS=" + p.dir) }

// start starts a node's daemon, and restarts it until it ends by itself.
func (p *pods) start(rank int) {
	said := new(bytes.Buffer)
	p.mu.Lock()
	p.said[rank] = said
	p.mu.Unlock()
	p.all.Go(func() {
		for {
			args := append([]string{"run", "--rank=" + strconv.Itoa(rank),
				"--nnodes=" + p.bounds(), "--job-id=j",
				"--log-dir=" + filepath.Join(p.dir, "logs"), "--peer-timeout=3s"}, p.flags...)
			cmd := exec.Command(jobtest.Bringupd,
				append(args, "--", "sh", "-c", p.driver)...)
			cmd.Env = append(append(os.Environ(), string(p.mark()), "D="+p.dir), jobtest.Environ()...)
			cmd.Stdout, cmd.Stderr = said, said
			p.mu.Lock()
			err := cmd.Start()
			p.daemons[rank] = cmd
			p.mu.Unlock()
			if err != nil {
				p.t.Error(err)
				return
			}
			err = cmd.Wait()
			exit, _ := errors.AsType[*exec.ExitError](err)
			p.mu.Lock()
			killed := exit != nil && exit.Sys().(syscall.WaitStatus).Signaled()
			if !killed || !p.again {
				p.codes[rank] = cmd.ProcessState.ExitCode()
				delete(p.daemons, rank)
			}
			again := killed && p.again
			p.mu.Unlock()
			if !again {
				return
			}
		}
	})
}

func (p *pods) bounds() string { return strconv.Itoa(p.size) }

func (p *pods) startAll() *pods {
	for rank := range p.size {
		p.start(rank)
	}
	return p
}

// kill sends a signal to one daemon.
func (p *pods) kill(rank int, sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cmd := p.daemons[rank]; cmd != nil {
		_ = cmd.Process.Signal(sig)
	}
}

// await waits until a condition holds.
func (p *pods) await(what string, is func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(ceiling); !is(); time.Sleep(step) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s has not come", what)
		}
	}
}

func (p *pods) runDir(attempt int) string {
	name := "j"
	if attempt > 0 {
		name += fmt.Sprint("-a", attempt)
	}
	return filepath.Join(p.dir, "logs", name)
}

// there returns a function that reports whether a file of an attempt exists.
func (p *pods) there(attempt int, name string) func() bool {
	return func() bool {
		_, err := os.Stat(filepath.Join(p.runDir(attempt), name))
		return err == nil
	}
}

// starts returns the attempts in which the driver was started, as the driver saw them.
func (p *pods) starts() []string {
	data, _ := os.ReadFile(filepath.Join(p.dir, "starts"))
	return strings.Fields(string(data))
}

// driving waits until the driver runs in an attempt.
func (p *pods) driving(attempt int) {
	p.t.Helper()
	p.await(fmt.Sprint("the driver of attempt ", attempt), func() bool {
		return slices.Contains(p.starts(), strconv.Itoa(attempt))
	})
}

// expect waits for the end, and checks the exit codes and that nothing is left behind.
func (p *pods) expect(codes ...int) {
	p.t.Helper()
	p.await("the end", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.codes) == len(codes)
	})
	for rank, code := range codes {
		if p.codes[rank] != code {
			p.t.Errorf("node %d has ended with %d, not %d", rank, p.codes[rank], code)
		}
	}
	if left := p.mark().Left(ceiling / 2); len(left) > 0 {
		p.t.Errorf("still running: %v", left)
	}
}

// result reads the result record of an attempt and checks it.
func (p *pods) result(attempt, code, next int) (r record.Result) {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.runDir(attempt), signal.NameResult))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil || r.Code != code || r.NextAttempt != next {
		p.t.Errorf("attempt %d has ended with %d, and attempt %d follows (%v); want %d and %d",
			attempt, r.Code, r.NextAttempt, err, code, next)
	}
	return r
}

// until returns a driver that does not end in attempts before the given one.
func until(attempt int) string {
	return fmt.Sprintf(`echo $BRINGUPD_ATTEMPT >>$D/starts; [ $BRINGUPD_ATTEMPT -ge %d ] || exec sleep 300`, attempt)
}

// TestWorkerStartedAgainWhileOthersAreWaitedFor checks that a worker which is killed and restarted
// while the others have yet to join joins the next attempt.
func TestWorkerStartedAgainWhileOthersAreWaitedFor(t *testing.T) {
	t.Parallel()
	p := newPods(t, 3, until(1), "--restarts=3")
	p.start(0)
	p.start(2)
	p.await("node 2", p.there(0, "nodes/0002.joined"))
	p.kill(2, syscall.SIGKILL)
	p.await("the end of attempt 0", p.there(0, signal.NameResult))
	p.start(1)
	p.expect(0, 0, 0)
	p.result(0, 76, 1)
	p.result(1, 0, 0)
	if starts := p.starts(); !slices.Equal(starts, []string{"1"}) {
		t.Errorf("the driver was told the attempts %q", starts)
	}
}

// TestDaemonStartedAgainWhileTheDriverRuns checks that a daemon which is killed and restarted while
// the driver runs joins the next attempt.
func TestDaemonStartedAgainWhileTheDriverRuns(t *testing.T) {
	for _, tc := range []struct {
		name   string
		killed []int // nodes to kill, one per attempt
	}{{"a worker", []int{2}}, {"the head", []int{0}}, {"one after the other", []int{1, 0, 2}}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPods(t, 3, until(len(tc.killed)), "--restarts=3").startAll()
			var starts []string
			for attempt, rank := range tc.killed {
				p.driving(attempt)
				p.kill(rank, syscall.SIGKILL)
				starts = append(starts, strconv.Itoa(attempt))
			}
			p.expect(0, 0, 0)
			for attempt := range tc.killed {
				p.result(attempt, 76, attempt+1)
			}
			p.result(len(tc.killed), 0, 0)
			if got, want := p.starts(),
				append(starts, strconv.Itoa(len(tc.killed))); !slices.Equal(got, want) {
				t.Errorf("the driver was told the attempts %q, not %q", got, want)
			}
			if latest, err := os.Readlink(
				filepath.Join(p.dir, "logs", signal.LatestLink)); err != nil ||
				latest != filepath.Base(p.runDir(len(tc.killed))) {
				t.Errorf("the newest run is %s (%v)", latest, err)
			}
		})
	}
}

// TestNoRestart checks that failures of the driver or of a service start no further attempt.
func TestNoRestart(t *testing.T) {
	for _, tc := range []struct {
		name, driver string
		flags        []string
		code, worker int
	}{
		{"a driver that fails", "exit 42", nil, 42, 0},
		{"a service that dies", until(1), []string{"--worker-cmd=sleep 0.5; exit 3"}, 77, 77},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := newPods(t, 2, tc.driver, append(tc.flags, "--restarts=3")...).startAll()
			p.expect(tc.code, tc.worker)
			p.result(0, tc.code, 0)
		})
	}
}

// TestRestartsAreUsedUp checks that the job ends when --restarts is exceeded.
func TestRestartsAreUsedUp(t *testing.T) {
	t.Parallel()
	p := newPods(t, 2, until(9), "--restarts=1").startAll()
	for attempt := range 2 {
		p.driving(attempt)
		p.kill(1, syscall.SIGKILL)
	}
	p.expect(76, 76)
	p.result(0, 76, 1)
	p.result(1, 76, 0)
}

// TestLostForGood checks that a node which its launcher does not restart is soon reported as
// missing.
func TestLostForGood(t *testing.T) {
	for rank, says := range []string{"node 0 has not been restarted",
		"cannot continue without node 1"} {
		t.Run(strconv.Itoa(rank), func(t *testing.T) {
			t.Parallel()
			p := newPods(t, 2, until(9), "--restarts=3")
			p.again = false
			p.startAll().driving(0)
			p.kill(rank, syscall.SIGKILL)
			codes := []int{76, 76}
			codes[rank] = -1
			p.expect(codes...)
			if said := p.said[1-rank].String(); !strings.Contains(said, says) {
				t.Errorf("it said %s", said)
			}
		})
	}
}

// TestAllStartedAgain checks that the new head ends the attempt if all daemons have died at once.
func TestAllStartedAgain(t *testing.T) {
	t.Parallel()
	p := newPods(t, 3, until(1), "--restarts=3").startAll()
	p.driving(0)
	for rank := range 3 {
		p.kill(rank, syscall.SIGKILL)
	}
	p.expect(0, 0, 0)
	if first := p.result(0, 76, 1); !strings.Contains(first.Reason, "of attempt 1 have ended") &&
		!strings.Contains(first.Reason, "has died") {
		t.Errorf("attempt 0 has ended because %s", first.Reason)
	}
}

// TestTermBetweenAttempts checks that TERM ends the job while the head leaves an attempt, and while
// it waits for the next one.
func TestTermBetweenAttempts(t *testing.T) {
	for _, after := range []time.Duration{0, 5, 20, 50, 300} {
		after *= time.Millisecond
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			p := newPods(t, 2, until(9), "--restarts=3").startAll()
			p.driving(0)
			p.kill(1, syscall.SIGKILL)
			p.driving(1) // the first restart has no pause
			p.kill(1, syscall.SIGKILL)
			p.await("over", p.there(1, "control/finished"))
			time.Sleep(after)
			p.kill(0, syscall.SIGTERM)
			p.kill(1, syscall.SIGTERM)
			p.expect(143, 143)
			p.result(2, 143, 0)
		})
	}
}

// TestManyRestarts kills or stops daemons of one launch several times. It checks that each attempt
// is counted, that no process of an earlier attempt runs in a later one, and that each run
// directory contains only records of its own attempt.
func TestManyRestarts(t *testing.T) {
	const restarts, size = 6, 3 // with pauses of 31s in all
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	seed := uint64(time.Now().UnixNano())
	draw := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	p := newPods(t, size, until(restarts), fmt.Sprint("--restarts=", restarts),
		"--worker-cmd=exec sleep 300").startAll()
	var files []int
	for attempt := range restarts {
		p.driving(attempt)
		p.aliveOf(attempt)
		p.mu.Lock()
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.daemons[1].Process.Pid))
		p.mu.Unlock()
		files = append(files, len(fds))
		p.strike(draw)
	}
	p.expect(0, 0, 0)
	nonces := make(map[string]bool)
	for attempt := range restarts {
		p.result(attempt, 76, attempt+1)
		nonces[p.records(attempt)] = true
	}
	p.result(restarts, 0, 0)
	nonces[p.records(restarts)] = true
	if len(nonces) != restarts+1 {
		t.Errorf("%d attempts have %d nonces", restarts+1, len(nonces))
	}
	if _, err := os.Stat(p.runDir(restarts + 1)); err == nil {
		t.Error("there is one attempt too many")
	}
	t.Logf("open files of node 1, attempt by attempt: %v", files)
}

// strike kills one or two daemons, or stops one for long enough to be lost.
func (p *pods) strike(draw *rand.Rand) {
	time.Sleep(time.Duration(draw.IntN(100)) * time.Millisecond)
	rank := draw.IntN(p.size)
	switch draw.IntN(10) {
	case 0:
		p.kill(rank, syscall.SIGSTOP)
		time.Sleep(4 * time.Second)
		p.kill(rank, syscall.SIGCONT)
	case 1:
		p.kill(rank, syscall.SIGKILL)
		p.kill((rank+1)%p.size, syscall.SIGKILL)
	default:
		p.kill(rank, syscall.SIGKILL)
	}
}

// aliveOf checks that no process of an earlier attempt is running.
func (p *pods) aliveOf(attempt int) {
	p.t.Helper()
	for _, process := range p.mark().Processes() {
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", process.PID))
		for entry := range strings.SplitSeq(string(environ), "\x00") {
			told, is := strings.CutPrefix(entry, "BRINGUPD_ATTEMPT=")
			if is && told != strconv.Itoa(attempt) {
				p.t.Errorf("in attempt %d a process of attempt %s is alive: %s", attempt, told, process)
			}
		}
	}
}

// records checks that all records of an attempt have its nonce, which it returns.
func (p *pods) records(attempt int) string {
	p.t.Helper()
	var nonce string
	for _, sub := range []string{"control", "nodes", ""} {
		entries, err := os.ReadDir(filepath.Join(p.runDir(attempt), sub))
		if err != nil {
			p.t.Error(err)
		}
		for _, entry := range entries {
			path := filepath.Join(p.runDir(attempt), sub, entry.Name())
			data, err := os.ReadFile(path)
			if entry.IsDir() || err == nil && len(data) == 0 || entry.Name()[0] == '.' {
				continue
			}
			var rec struct {
				record.Header
				Run string `json:"run"`
			}
			if err == nil {
				err = json.Unmarshal(data, &rec)
			}
			if nonce == "" {
				nonce = rec.Nonce
			}
			if err != nil || rec.Nonce != nonce ||
				rec.Run != "" && rec.Run != filepath.Base(p.runDir(attempt)) {
				p.t.Errorf("%s is of another attempt: %s, run %s (%v)", path,
					rec.Nonce, rec.Run, err)
			}
		}
	}
	return nonce
}
