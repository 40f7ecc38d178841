package worlds

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// job is a running world. Its directory is the rendezvous directory of the ranks.
type job struct{ *jobtest.Job }

// begin starts a world with the given nodes and ranks per node, which run a program.
func begin(t *testing.T, nodes, perNode int, program ...string) *job {
	t.Helper()
	dir := t.TempDir()
	args := []string{"local", "--nodes=" + strconv.Itoa(nodes),
		"--ranks-per-node=" + strconv.Itoa(perNode), "--oversubscribe",
		"--job-id=world", "--log-dir=" + filepath.Join(dir, "logs"), "--"}
	return run(t, dir, nil, append(args, program...)...)
}

// run starts bringupd with variables and arguments. dir is the job's directory.
func run(t *testing.T, dir string, env []string, args ...string) *job {
	t.Helper()
	j := &job{&jobtest.Job{T: t, Dir: dir, Logs: filepath.Join(dir, "logs"), Name: "world",
		Size: nodes, Mark: jobtest.Mark(ringVariable + "=" + dir)}}
	env = append(env, "BRINGUPD_TEST_PROGRAM="+jobtest.Bringupd)
	j.Start(env, append([]string{jobtest.Bringupd}, args...)...)
	return j
}

// beginRing starts a world whose ranks are connected.
func beginRing(t *testing.T) *job {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return begin(t, nodes, perNode, self)
}

// pid waits until a rank reports that it has reached a state, and returns its pid.
func (j *job) pid(what string, rank int) int {
	j.T.Helper()
	path := fileOf(j.Dir, what, rank)
	j.NeedFile(path)
	text, err := os.ReadFile(path)
	pid, bad := strconv.Atoi(string(text))
	if err != nil || bad != nil {
		j.T.Fatalf("%s has no pid: %q, %v", path, text, err)
	}
	return pid
}

// await waits for the end of the job, and returns its outcome.
func (j *job) await() seen {
	j.T.Helper()
	got := seen{code: j.AwaitEnd(jobtest.Ceiling), left: j.Left()}
	if result := new(record.Result); j.Read(result, signal.NameResult) {
		got.result = result
	}
	return got
}

// strike injects the scheduled fault, and returns the time.
func (j *job) strike(s schedule, cgroup string) time.Time {
	j.T.Helper()
	victim := j.pid("begun", s.rank)
	if !s.early {
		for rank := range size {
			j.pid("up", rank)
		}
	}
	time.Sleep(s.after)
	var pids []int
	switch s.kind {
	case killRank:
		pids = []int{victim}
	case killDaemon:
		pids = []int{j.Daemon(s.node())}
	case killNode:
		pids = jobtest.Family(j.Daemon(s.node()))
	case crashRank, exitRank, abortRank:
		j.Write(orderName, fmt.Sprintf("%s %d",
			map[kind]string{crashRank: orderCrash, exitRank: orderExit,
				abortRank: orderAbort}[s.kind], s.code))
		return j.signal(syscall.SIGUSR1, victim)
	case outOfMemory:
		j.Write(orderName, orderGrow+" "+cgroup)
		return j.signal(syscall.SIGUSR1, victim)
	}
	return j.signal(syscall.SIGKILL, pids...)
}

// signal sends a signal to processes of the job, and returns the time.
func (j *job) signal(sig syscall.Signal, pids ...int) time.Time {
	j.T.Helper()
	now := time.Now()
	for i, pid := range pids {
		// The others may have ended together with the first.
		if err := syscall.Kill(pid, sig); err != nil && i == 0 {
			j.T.Fatalf("cannot send %v to %d: %v", sig, pid, err)
		}
	}
	return now
}
