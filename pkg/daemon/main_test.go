package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/restart"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/fakechild"
	"github.com/bringupd/bringupd/test/memory"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "why" { // as a head starts its own program
		fmt.Printf("{\"run\": %q}\n", "asked of "+os.Args[len(os.Args)-1])
		os.Exit(0)
	}
	// A daemon's guard is this binary again, and with the race detector it sleeps for a second before
	// it exits.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	// With Go 1.26, goroutines of one bubble that receive from timers at the same time corrupt the
	// race detector's memory: they share the bubble's race context. One processor avoids this.
	runtime.GOMAXPROCS(1)
	// Jobs of processes spend most of their time waiting, which needs no processor.
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	// Tests of another package lock the memory of a process, whose environment the kernel then hands
	// out late; the goroutine that reads it is given up by design and ends with the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/bringupd/bringupd/pkg/process.(*procScanner).readEnviron.func1"))
}

// takesSeconds excludes a test that waits for seconds from "make quick".
func takesSeconds(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
}

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

var errCeiling = errors.New("the ceiling of the test")

// job is a job whose daemons all run in the test's own process.
type job struct {
	t       *testing.T
	share   *memory.Share // nil: the log directory is on the machine's disk
	net     *memory.Net
	supers  []*fakechild.Supervisor // one per daemon, if children are goroutines
	logDir  string
	tempDir string
	size    int
	configs []deps.Config
	signals []chan os.Signal
	roles   []roles.DaemonRole
	out     *os.File // the driver's standard output
	errs    *os.File // the standard error of all daemons

	running sync.WaitGroup
	mu      sync.Mutex
	codes   map[int]int // by index, of the daemons that have ended; guarded by mu
}

// inBubble runs a test in parallel with others, in a bubble of testing/synctest, where all waits
// take simulated time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// rowInBubble runs a row of a table in a bubble.
func rowInBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

// mountPoint is the path of the shared file system of jobs in bubbles.
const mountPoint = "/share"

// newJob returns a job of size nodes in a bubble: its shared file system and its network are in
// memory, and its children are goroutines. The driver is line, run by the test's shell; if line is
// empty, the job has no driver.
func newJob(t *testing.T, size int, line string) *job {
	t.Helper()
	j := &job{t: t, size: size, logDir: mountPoint + "/logs", share: memory.NewShare(mountPoint), net: new(memory.Net)}
	j.share.Clock, j.share.Latency = time.Now, 100*time.Microsecond
	j.furnish(line)
	// A wait for a socket, in the kernel, would stop the bubble's time.
	return j.all(func(c *deps.Config) { c.Simulation.NoSockets = true })
}

// newRealJob returns a job whose daemons use a directory as their shared file system, TCP and
// processes.
func newRealJob(t *testing.T, size int, line string) *job {
	t.Helper()
	j := &job{t: t, size: size, logDir: filepath.Join(t.TempDir(), "logs")}
	// A disk that is busy with links of other tests may not answer for seconds.
	return j.furnish(line).all(func(c *deps.Config) { c.Times.Peer = 20 * time.Second })
}

func (j *job) furnish(line string) *job {
	j.t.Helper()
	j.tempDir, j.codes, j.out, j.errs = j.t.TempDir(), make(map[int]int), tempFile(j.t), tempFile(j.t)
	for nodeIndex := range j.size {
		j.add(nodeIndex, roles.RoleWorker, line)
	}
	j.roles[0] = roles.RoleHead
	j.t.Cleanup(j.tidy)
	return j
}

// add adds a daemon.
func (j *job) add(nodeIndex int, role roles.DaemonRole, line string) {
	signals := make(chan os.Signal, 4)
	cfg := deps.Config{Config: config.Config{
		Identity: testIdentity(nodeIndex, j.size),
		LogDir:   j.logDir, Program: "test", Framework: framework.None{},
		Times: config.Timeouts{
			Join: 30 * time.Second, Start: 30 * time.Second,
			Peer: 3 * time.Second, DriverGrace: 2 * time.Second, StopGrace: time.Second,
		},
		Output:  config.Output{Streams: config.Streams{Out: j.out, Err: j.errs}},
		Process: config.Process{TempDir: j.tempDir, Environ: os.Environ()},
	}, Set: deps.Set{
		Signals: signals,
		Address: func() (launcher.NodeAddress, error) { return launcher.NodeAddress{Address: "127.0.0.1"}, nil },
	}}
	if line != "" {
		cfg.Driver = service.ShellCommand(line)
	}
	if j.net != nil {
		cfg.Network = j.net.Host(cfg.Identity.Host)
	}
	j.configs = append(j.configs, cfg)
	j.signals = append(j.signals, signals)
	j.roles = append(j.roles, role)
}

// through directs an access to the job's shared file system.
func (j *job) through(access signal.Access) signal.Access {
	if _, is := access.FS.(*memory.Client); is || j.share == nil {
		return access
	}
	if access.Meter == nil {
		access.Meter = new(signal.CallMeter)
	}
	var interceptor signal.Interceptor = access.Meter
	if asked, is := access.FS.(asked); is {
		interceptor = asked.way
	}
	access.FS, access.NoHints = j.share.Access(interceptor), true
	return access
}

// programs returns the programs that children run if they are goroutines.
func (j *job) programs() map[string]fakechild.Program {
	shell := fakechild.Shell{Stat: func(path string) (fs.FileInfo, error) {
		if strings.HasPrefix(path, mountPoint+"/") {
			return j.share.Stat(path)
		}
		if pid, err := strconv.Atoi(strings.TrimPrefix(path, "/proc/")); err == nil && fakechild.Lives(pid) {
			return os.Stat("/proc/self")
		}
		return nil, errors.ErrUnsupported
	}}
	return map[string]fakechild.Program{"sh": shell.Run}
}

func testIdentity(nodeIndex, size int) launcher.Identity {
	id := launcher.Identity{
		Launcher: launcher.LauncherLocal, NodeIndex: nodeIndex, Size: size, Host: fmt.Sprintf("n%d", nodeIndex),
		Job: "17", Step: "0", LaunchKey: "facts", LocalSize: size, GPUs: -1,
	}
	for nodeIndex := range size {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%d", nodeIndex))
	}
	return id
}

func tempFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "stream-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// all changes the configuration of every daemon.
func (j *job) all(change func(*deps.Config)) *job {
	for i := range j.configs {
		change(&j.configs[i])
	}
	return j
}

// way is a daemon's access to the shared file system. It calls ask before each call; if ask returns
// an error, the call is neither made nor counted.
type way struct {
	meter *signal.CallMeter
	ask   func(op signal.Op, path string) error
}

func (w way) BeginCall(op signal.Op, path string) (time.Time, error) {
	if err := w.ask(op, path); err != nil {
		return time.Time{}, err
	}
	return w.meter.BeginCall(op, path)
}

func (w way) EndCall(op signal.Op, path string, entered time.Time) {
	w.meter.EndCall(op, path, entered)
}

// asking returns the file system with such an access; for a job in a bubble it is the job's own.
func asking(ask func(op signal.Op, path string) error) signal.Access {
	meter := new(signal.CallMeter)
	way := way{meter, ask}
	return signal.Access{Meter: meter, FS: asked{signal.NewDiskFS(way), way}}
}

// asked is a file system whose access can be directed elsewhere.
type asked struct {
	signal.SharedFS
	way way
}

// ready returns the configuration of a daemon that is about to start.
func (j *job) ready(i int) deps.Config {
	j.t.Helper()
	j.configs[i].Access = j.through(j.configs[i].Access)
	cfg := j.configs[i]
	if j.share != nil {
		super := fakechild.New(j.programs())
		j.supers, cfg.ChildrenStarter = append(j.supers, super), super
	}
	if err := cfg.Validate(); err != nil {
		j.t.Fatal(err)
	}
	return cfg
}

// start starts all daemons but those in except.
func (j *job) start(except ...int) *job {
	j.t.Helper()
	for i := range j.configs {
		if slices.Contains(except, i) {
			continue
		}
		cfg := j.ready(i)
		j.running.Go(func() {
			code := 0
			if cfg.Roles.Step == "" {
				code = Run(context.Background(), cfg, j.roles[i]).Code
			} else {
				code = restart.Run(context.Background(), cfg, j.roles[i], Run) // it finds the run first
			}
			j.mu.Lock()
			defer j.mu.Unlock()
			j.codes[i] = code
		})
	}
	return j
}

// wait waits until all daemons have ended and returns their codes, -1 for those that were not
// started.
func (j *job) wait() []int {
	j.t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.running.Wait()
	}()
	select {
	case <-ended:
	case <-time.After(ceiling):
		j.t.Fatalf("of %d daemons, only these have ended: %v\n%s", j.size, j.ended(), j.said())
	}
	codes := slices.Repeat([]int{-1}, len(j.configs))
	for i, code := range j.ended() {
		codes[i] = code
	}
	return codes
}

func (j *job) ended() map[int]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	ended := make(map[int]int)
	maps.Copy(ended, j.codes)
	return ended
}

// expect waits for the end and checks the code of each daemon.
func (j *job) expect(want ...int) {
	j.t.Helper()
	if got := j.wait(); !slices.Equal(got, want) {
		j.t.Errorf("the daemons returned %v, not %v", got, want)
	}
}

// everyone returns the same code for each of n daemons.
func everyone(code, n int) []int { return slices.Repeat([]int{code}, n) }

// run returns the job's run directory.
func (j *job) run() string { return filepath.Join(j.logDir, j.configs[0].Identity.RunName()) }

// read returns the contents of a file in the log directory.
func (j *job) read(path string) ([]byte, error) {
	if j.share != nil {
		return j.share.ReadFile(path)
	}
	return os.ReadFile(path)
}

// exists reports whether a path exists in the log directory.
func (j *job) exists(path string) bool {
	if j.share != nil {
		return j.share.Has(path)
	}
	_, err := os.Lstat(path)
	return err == nil
}

// daemonEvents returns the event log of a daemon.
func (j *job) daemonEvents(nodeIndex int) string {
	events, _ := j.read(filepath.Join(j.run(), signal.EventsDir, signal.EventsName("daemon", nodeIndex, j.size)))
	return string(events)
}

// names returns the names in a part of the run directory.
func (j *job) names(sub string) []string {
	if j.share != nil {
		return j.share.ReadDir(filepath.Join(j.run(), sub))
	}
	entries, _ := os.ReadDir(filepath.Join(j.run(), sub))
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// has reports whether a name is in the run directory.
func (j *job) has(sub, name string) bool { return slices.Contains(j.names(sub), name) }

// until waits for a condition.
func (j *job) until(what string, reached func() bool) {
	j.t.Helper()
	for deadline := time.Now().Add(ceiling); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			j.t.Fatalf("cannot see %s after %s: control %v, nodes %v\n%s", what, ceiling,
				j.names(signal.ControlDir), j.names(signal.NodesDir), j.said())
		}
	}
}

// untilNamed waits for a name in the run directory.
func (j *job) untilNamed(sub, name string) {
	j.t.Helper()
	j.until(sub+"/"+name, func() bool { return j.has(sub, name) })
}

// untilFile waits for a file that a child creates.
func (j *job) untilFile(path string) {
	j.t.Helper()
	j.until(path, func() bool { _, err := os.Stat(path); return err == nil })
}

// untilGone waits until a child has written its process ID to a file and has ended.
func (j *job) untilGone(path string) {
	j.t.Helper()
	j.untilFile(path)
	pid := j.pidIn(path)
	j.until(fmt.Sprintf("the end of process %d", pid), func() bool { return !fakechild.Lives(pid) })
}

// readRecordOf reads a record.
func readRecordOf[T any](j *job, sub, name string) (rec T) {
	j.t.Helper()
	data, err := j.read(filepath.Join(j.run(), sub, name))
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err != nil {
		j.t.Errorf("cannot read the record %s/%s: %v", sub, name, err)
	}
	return rec
}

func (j *job) result() record.Result {
	j.t.Helper()
	return readRecordOf[record.Result](j, "", signal.NameResult)
}

// blames checks the first cause in the result.
func (j *job) blames(nodeIndex int, kind health.Kind, code int) record.Failure {
	j.t.Helper()
	result := j.result()
	if result.Cause == nil {
		j.t.Fatalf("the result has no cause: %+v", result)
	}
	if got := *result.Cause; got.NodeIndex != nodeIndex || got.Kind != kind || result.Code != code {
		j.t.Errorf("the result blames node %d for %q with code %d (%s), not node %d for %q with %d",
			got.NodeIndex, got.Kind, result.Code, got.Message, nodeIndex, kind, code)
	}
	return *result.Cause
}

// contents returns the contents of a file of the test.
func (j *job) contents(file *os.File) string {
	j.t.Helper()
	data, err := os.ReadFile(file.Name())
	if err != nil {
		j.t.Fatal(err)
	}
	return string(data)
}

func (j *job) said() string { return j.contents(j.errs) }

// lingering is the time within which activities that a daemon does not wait for must end after its
// return.
const lingering = 10 * time.Second

// tidy checks, after the test, that the job has left nothing behind.
func (j *job) tidy() {
	for _, signals := range j.signals {
		// For a test that has failed before the end of its job.
		signals <- os.Interrupt
		signals <- os.Interrupt
	}
	j.wait()
	if left, _ := filepath.Glob(filepath.Join(j.tempDir, "*")); len(left) > 0 {
		j.t.Errorf("this is left in the temporary directory: %v", left)
	}
	for _, super := range j.supers {
		if late := super.Unguarded(); len(late) > 0 {
			j.t.Errorf("nobody would have removed these, had the daemon been killed: %v", late)
		}
	}
	if j.share != nil {
		j.share.Walk(j.logDir, func(p string, _ *memory.File) {
			if filepath.Base(p)[0] == '.' {
				j.t.Errorf("this is left in the log directory: %s", p)
			}
		})
		time.Sleep(lingering)
	}
	_ = filepath.WalkDir(j.logDir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Name()[0] == '.' {
			j.t.Errorf("this is left in the log directory: %s", path)
		}
		return nil
	})
	if left := j.processes(); len(left) > 0 {
		j.t.Errorf("these still run: %v", left)
	}
	if j.t.Failed() {
		j.t.Logf("control %v, nodes %v\n%s", j.names(signal.ControlDir), j.names(signal.NodesDir), j.said())
	}
}

// processes returns the running children of this job and the guards of its daemons, which have its
// directory in their environment.
func (j *job) processes() (left []string) {
	for _, super := range j.supers {
		left = append(left, super.Left()...)
	}
	if j.share != nil {
		return left
	}
	mark := "BRINGUPD_RUN_DIR=" + j.run()
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err == nil && slices.Contains(strings.Split(string(environ), "\x00"), mark) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return left
}
