package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/test/hostile"
	"github.com/bringupd/bringupd/test/jobtest"
)

const (
	size = 4 // number of nodes of a job

	// peerTimeout is short, so that the matrix takes little time. It results in a heartbeat interval
	// of 375 ms and a maximum silence of 1.9 s, which is enough on a machine that runs many other
	// jobs.
	peerTimeout = 3 * time.Second

	// ceiling limits every wait. It is far longer than any wait takes.
	ceiling = 60 * time.Second
	step    = 10 * time.Millisecond
)

// The phases of a job, in the order of the table's columns.
const (
	join    = "join"
	check   = "check"
	sandbox = "sandbox"
	head    = "head"
	workers = "workers"
	driver  = "driver"
	drain   = "drain"
)

var phases = []string{join, check, sandbox, head, workers, driver, drain}

// nodesIn returns the nodes that go through a phase: usually all of them, only the head for its
// service and the driver, and only the workers in the drain.
func nodesIn(phase string) []int {
	switch phase {
	case head, driver:
		return []int{0}
	case drain:
		return []int{1, 2, 3} // the head's own services end last
	default:
		return []int{0, 1, 2, 3}
	}
}

// turns limits how many jobs start at the same time. Many jobs may wait concurrently, but only few
// may use the processors, because otherwise daemons would miss heartbeats.
var turns = make(chan struct{}, 3)

// takeTurn waits for a turn. The turn ends when end is called, or at the latest with the test.
func takeTurn(t *testing.T) (end func()) {
	turns <- struct{}{}
	end = sync.OnceFunc(func() { <-turns })
	t.Cleanup(end)
	return end
}

// job is one run of four daemons, each with its own mount.
type job struct {
	t       *testing.T
	dir     string // a local folder, outside the share
	folder  string // the folder that the mounts show
	mounts  [size]*hostile.Mount
	daemons [size]*daemon

	said *os.File // FIFO to which the commands report their progress
	told sync.WaitGroup

	endTurn func()

	alone  bool     // the daemons run no services
	unread bool     // the daemons' standard error is a full pipe without a reader
	extra  []string // flags of the daemons that override the default ones
	killed []int    // daemons that were killed
	clean  bool     // no process of the job is left

	mu      sync.Mutex
	reached map[string]bool // keys are "phase node"; guarded by mu
	news    chan struct{}   // closed and replaced when reached grows; guarded by mu
}

// daemon is one of a job's daemons.
type daemon struct {
	node  int
	cmd   *exec.Cmd
	ended chan struct{}
}

// newJob creates the mounts of a job with the given faults.
func newJob(t *testing.T, knobs func(node int) hostile.Knobs) *job {
	t.Helper()
	dir := t.TempDir()
	j := &job{
		t: t, dir: dir, folder: filepath.Join(dir, "share"), endTurn: takeTurn(t),
		reached: make(map[string]bool), news: make(chan struct{}),
	}
	j.must(os.Mkdir(j.folder, 0o700))
	j.makeTemp("tmp")
	j.must(unix.Mkfifo(j.path("said"), 0o600))
	j.must(unix.Mkfifo(j.path("never"), 0o600))
	for node := range size {
		for _, hold := range []string{check, driver, drain, "crash"} {
			j.must(unix.Mkfifo(j.hold(hold, node), 0o600))
		}
	}
	// Open the FIFO for reading and writing, so that reading never reports the end of the file.
	said, err := os.OpenFile(j.path("said"), os.O_RDWR, 0)
	j.must(err)
	j.said = said
	t.Cleanup(j.end)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(j.story())
		}
	})
	j.told.Go(j.listen)
	for node := range size {
		at := j.path("n" + strconv.Itoa(node))
		j.must(os.Mkdir(at, 0o700))
		mount, err := server.Mount(t.Context(), j.folder, at, knobs(node))
		j.must(err)
		j.mounts[node] = mount
	}
	return j
}

func (j *job) must(err error) {
	j.t.Helper()
	if err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) path(name string) string { return filepath.Join(j.dir, name) }

// hold returns the path of the FIFO at which a node's command waits in a phase.
func (j *job) hold(phase string, node int) string {
	return j.path(phase + "." + strconv.Itoa(node))
}

// listen records what the commands report.
func (j *job) listen() {
	lines := bufio.NewScanner(j.said)
	for lines.Scan() {
		j.mu.Lock()
		j.reached[lines.Text()] = true
		close(j.news)
		j.news = make(chan struct{})
		j.mu.Unlock()
	}
}

// start starts the daemons. The driver will exit with the given code.
func (j *job) start(code int) {
	j.t.Helper()
	for node := range size {
		j.daemons[node] = j.launch(node, code)
	}
}

func (j *job) launch(node, code int) *daemon {
	j.t.Helper()
	cmd := exec.Command(jobtest.Bringupd, j.flags(node)...)
	cmd.Dir, cmd.Env = j.dir, j.environ(code)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	stdout, err := os.Create(j.path(fmt.Sprintf("out.%d", node)))
	j.must(err)
	defer stdout.Close()
	stderr, err := os.Create(j.path(fmt.Sprintf("err.%d", node)))
	j.must(err)
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if j.unread {
		full := j.fullPipe(node)
		defer full.Close()
		cmd.Stderr = full
	}
	j.must(cmd.Start())
	d := &daemon{node: node, cmd: cmd, ended: make(chan struct{})}
	j.told.Go(func() {
		_ = cmd.Wait()
		close(d.ended)
	})
	return d
}

// fullPipe returns a full pipe without a reader. The file is both of its ends, so that a process
// that inherits it never sees a broken pipe.
func (j *job) fullPipe(node int) *os.File {
	j.t.Helper()
	name := j.path(fmt.Sprintf("unread.%d", node))
	j.must(unix.Mkfifo(name, 0o600))
	pipe, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	j.must(err)
	filler, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	j.must(err)
	for err == nil {
		_, err = unix.Write(filler, make([]byte, 4096))
	}
	if !errors.Is(err, unix.EAGAIN) {
		j.t.Fatalf("cannot fill a pipe: %v", err)
	}
	j.must(unix.Close(filler))
	return os.NewFile(uintptr(pipe), name)
}

func (j *job) flags(node int) []string {
	scripts, err := filepath.Abs("testdata")
	j.must(err)
	flags := []string{
		"--rank=" + strconv.Itoa(node), "--nnodes=" + strconv.Itoa(size), "--job-id=job",
		"--log-dir=" + j.logDir(node), "--temp-dir=" + tempDir(j.path("tmp"), node),
		"--log-format=json",
		// Use heartbeat files only, because the matrix tests the effect of the share on them.
		"--lifeline=off", "--peer-timeout=" + peerTimeout.String(), "--join-timeout=6s",
		"--start-timeout=15s", "--driver-grace=2s",
	}
	if j.unread {
		flags = append(flags, "--verbose") // makes all daemons write at once
	}
	if !j.alone {
		flags = append(flags,
			"--setup-cmd=. "+scripts+"/setup.sh",
			"--sandbox-cmd=set sandbox; . "+scripts+"/service.sh",
			"--sandbox-ready=file:"+j.path("ready.sandbox"),
			"--head-cmd=set head; . "+scripts+"/service.sh",
			"--head-ready=file:"+j.path("ready.head"),
			"--worker-cmd=. "+scripts+"/worker.sh", "--worker-ready=file:"+j.path("ready.workers"))
	}
	flags = append(flags, j.extra...)
	return append(flags, "--", scripts+"/driver.sh")
}

// environ returns the environment of the daemons, whose driver will exit with the given code.
func (j *job) environ(code int) []string {
	return append(jobtest.Environ(),
		"PATH="+os.Getenv("PATH"), "HOME="+j.dir, string(j.mark()), "CODE="+strconv.Itoa(code),
	)
}

// mark returns a variable that identifies all processes of the job.
func (j *job) mark() jobtest.Mark { return jobtest.Mark("FAULTS=" + j.dir) }

// tempDir returns a node's own folder on a disk. Nodes do not share one: a process that creates a
// file in a directory which another process is changing waits for that process, and cannot even be
// killed meanwhile.
func tempDir(disk string, node int) string { return filepath.Join(disk, "n"+strconv.Itoa(node)) }

// makeTemp creates each node's folder on a disk.
func (j *job) makeTemp(disk string) {
	for node := range size {
		j.must(os.MkdirAll(tempDir(j.path(disk), node), 0o700))
	}
}

func (j *job) logDir(node int) string { return filepath.Join(j.mounts[node].At(), "logs") }

// runDir returns the run directory in the folder behind the mounts.
func (j *job) runDir() string { return filepath.Join(j.folder, "logs", "job") }

// free lets all nodes go through a phase, now or later.
func (j *job) free(phase string) {
	j.t.Helper()
	switch phase {
	case sandbox, head, workers:
		j.must(os.WriteFile(j.path("ready."+phase), nil, 0o600))
	case check, driver, drain:
		for node := range size {
			j.say(j.hold(phase, node))
		}
	}
}

// say writes a line into a FIFO, for a reader now or later.
func (j *job) say(fifo string) {
	j.t.Helper()
	file, err := os.OpenFile(fifo, os.O_RDWR, 0)
	j.must(err)
	_, err = file.WriteString("\n")
	j.must(err)
	// Keep the FIFO open: its content is lost when no process has it open.
	j.t.Cleanup(func() { _ = file.Close() })
}

// await waits until the commands of a phase report that they have reached it.
func (j *job) await(phase string) {
	j.t.Helper()
	for _, node := range nodesIn(phase) {
		j.awaitSaid(phase+" "+strconv.Itoa(node), ceiling, node)
	}
}

// awaitSaid waits until a node's command has reported the given line.
func (j *job) awaitSaid(line string, within time.Duration, node int) {
	j.t.Helper()
	deadline := time.After(within)
	for {
		j.mu.Lock()
		reached, news := j.reached[line], j.news
		j.mu.Unlock()
		if reached {
			return
		}
		select {
		case <-news:
		case <-j.daemons[node].ended:
			j.t.Fatalf("node %d ended before the line %q", node, line)
		case <-deadline:
			j.t.Fatalf("the line %[2]q has not come after %[1]s", within, line)
		}
	}
}

// shows waits until the run directory, as it is behind the mounts, contains all these names. A name
// may end with a *.
func (j *job) shows(names ...string) {
	j.t.Helper()
	deadline := time.Now().Add(ceiling)
	for _, name := range names {
		for {
			if found, _ := filepath.Glob(filepath.Join(j.runDir(), name)); len(found) > 0 {
				break
			}
			if time.Now().After(deadline) {
				j.t.Fatalf("%[2]s does not exist after %[1]s", ceiling, name)
			}
			time.Sleep(step)
		}
	}
}

// end ends all remaining processes and unmounts everything.
func (j *job) end() {
	for _, d := range j.daemons {
		if d != nil {
			_ = d.cmd.Process.Kill()
		}
	}
	if !j.clean {
		j.mark().Kill()
	}
	var closing sync.WaitGroup
	for _, m := range j.mounts {
		if m != nil {
			closing.Go(func() {
				if err := m.Close(); err != nil {
					j.t.Error(err)
				}
			})
		}
	}
	closing.Wait()
	_ = j.said.Close()
	j.told.Wait()
}

// gone reports whether a daemon has ended.
func (d *daemon) gone() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// stuck reports whether only calls on a stalled mount keep a daemon from ending: the kernel ends it
// when they are answered, and not before.
func (d *daemon) stuck() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", d.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended meanwhile
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if state, _, _ := strings.Cut(rest, " "); state != "Z" && state != "D" {
			return false
		}
	}
	return true
}

// code returns the exit code of a daemon, in a shell's notation.
func (d *daemon) code() int {
	<-d.ended
	return jobtest.ExitCode(d.cmd.ProcessState)
}

// allGone waits until all daemons have ended, except for stalled calls, and returns the time of the
// end.
func (j *job) allGone() time.Time {
	j.t.Helper()
	deadline := time.After(ceiling)
	for node, d := range j.daemons {
		held := j.mounts[node].Knobs().Held
		for !d.gone() && (!held || !d.stuck()) {
			tick := (<-chan time.Time)(nil)
			if held {
				tick = time.After(10 * step) // this check is expensive
			}
			select {
			case <-d.ended:
			case <-tick:
			case <-deadline:
				j.t.Fatalf("the daemon of node %d has not ended after %s", node, ceiling)
			}
		}
	}
	return time.Now()
}

// nothingLeft checks that no process of the job is left.
func (j *job) nothingLeft() {
	j.t.Helper()
	if left := j.mark().Left(10 * time.Second); len(left) > 0 {
		j.t.Errorf("still running: %v", left)
		return
	}
	j.clean = true
}

// story returns everything that is known about the job, for debugging.
func (j *job) story() string {
	var b strings.Builder
	for node, d := range j.daemons {
		if d == nil {
			continue
		}
		ended := "runs"
		select {
		case <-d.ended:
			ended = fmt.Sprintf("has ended with %d", d.code())
		default:
			if d.stuck() {
				ended = "has ended, but for a call that is held"
			}
		}
		stderr, _ := os.ReadFile(j.path(fmt.Sprintf("err.%d", node)))
		fmt.Fprintf(&b, "--- node %d %s:\n%s", node, ended, stderr)
	}
	b.WriteString("--- the share:\n")
	err := filepath.WalkDir(j.folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			fmt.Fprintf(&b, "%s (%d bytes)\n", strings.TrimPrefix(path, j.folder+"/"), info.Size())
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	return b.String()
}
