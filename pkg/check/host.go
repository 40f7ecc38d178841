package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

const (
	// answerTimeout is how long one round of checks waits for the kernel. A dead disk or the firmware
	// of a dead network card can block a system call for minutes or for ever.
	answerTimeout = 2 * time.Second
	// slowAnswerTimeout is how long the checks wait for a missing answer before they fail. Load alone
	// can delay an answer by that much: the fsync of a single byte waits for everything that other
	// processes write to the same disk.
	slowAnswerTimeout = 30 * time.Second
)

// Host checks what every node has: memory, disks, limits and network cards. The zero Host checks
// the local machine. It keeps state between calls of [Host.Inspect], which must not run
// concurrently.
type Host struct {
	Root        string // directory that contains /proc and /sys; empty: /
	TempDir     string // directory for the services' temporary files; empty: the system's
	ObjectStore int64  // bytes that the service keeps in /dev/shm; 0: none or unknown
	Tasks       uint64 // processes and threads that the services need; 0: none or unknown
	GPUs        bool   // the job uses the node's GPUs, if it has any
	IgnoresGPUs bool   // the user has turned the checks of GPUs off

	// Environ is the driver's environment, which defines the interfaces that the job uses to reach
	// other nodes; nil: unknown.
	Environ []string
	Nodes   int      // number of nodes of the job; 0: unknown
	Network *Network // nil if programs of the job do not communicate between machines

	system   hostSystem               // nil: the local machine
	lastNICs []Attribute              // attributes of the network cards from the last inspection
	pending  map[string]*pendingCheck // checks that still wait for the kernel, by check id
}

// hostSystem answers the questions that reading files cannot answer.
type hostSystem interface {
	// FreeSpace returns the free space of the file system that contains path.
	FreeSpace(path string) (files.Space, error)
	// TestWrite writes one byte to a temporary file in a directory and syncs it to the disk. It leaves
	// no file behind.
	TestWrite(dir string) error
	// ResourceLimit returns a resource limit of this process.
	ResourceLimit(resource int) (unix.Rlimit, error)
}

// hostCheck is one check of the machine. Its function reads the state and adds findings.
type hostCheck struct {
	id      string
	source  string
	inspect func(*FindingBuilder)
}

const (
	idLimits     = "host.limits"
	limitsSource = "getrlimit"
	idStep       = "host.step"
	stepSource   = "SLURM_*" // variables of the environment
)

// listChecks returns the checks in the order of the report.
func (h *Host) listChecks() []hostCheck {
	return []hostCheck{
		{idIB, h.hostPath(ibClass), h.checkIB},
		{idShm, h.hostPath(shmDir), h.checkShm},
		{idDisk, h.tempDir(), h.checkDisk},
		{idLimits, limitsSource, h.checkLimits},
		{idStep, stepSource, h.checkStep},
		{idName, nameSource, h.checkName},
		{IDNetEnv, netEnvSource, h.checkNetEnv},
	}
}

// isUnneeded reports whether the node has nothing for a check of the network to examine.
func (h *Host) isUnneeded(c hostCheck) bool {
	return c.id == IDNetEnv && h.Network == nil || c.id == idName && (h.Network == nil || h.Network.NameProblem == nil)
}

// pendingCheck is a check that runs, or has run, in its own goroutine.
type pendingCheck struct {
	FindingBuilder
	startedAt time.Time
	done      chan struct{} // closed by the goroutine when the findings are complete
}

// Inspect runs all checks of the host once, concurrently. It returns after at most 2 s or when ctx
// ends. A check that has not finished by then yields a finding that says so. There is one finding
// per check if all is well. The second parameter is unused.
func (h *Host) Inspect(ctx context.Context, _ func([]Finding)) (findings []Finding) {
	if h.system == nil {
		h.system = localSystem{}
	}
	if h.pending == nil {
		h.pending = make(map[string]*pendingCheck)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	checks := slices.DeleteFunc(h.listChecks(), h.isUnneeded)
	for _, p := range checks {
		// A check that hangs keeps its goroutine and thread. Do not start another one each time.
		if h.pending[p.id] != nil {
			continue
		}
		q := &pendingCheck{startedAt: time.Now(), done: make(chan struct{})}
		q.Template = Finding{ID: p.id, Source: p.source}
		h.pending[p.id] = q
		go func() {
			defer close(q.done)
			p.inspect(&q.FindingBuilder)
		}()
	}
	for _, p := range checks {
		findings = append(findings, h.awaitFindings(ctx, p)...)
	}
	return findings
}

// awaitFindings waits until the check has finished or ctx ends, and returns its findings. If the
// check hangs in the kernel, its goroutine stays behind, and the finding is a Wait.
func (h *Host) awaitFindings(ctx context.Context, p hostCheck) []Finding {
	q := h.pending[p.id]
	if ctxutil.AwaitDone(ctx, q.done) || ctxutil.AwaitDoneFor(q.done, 0) {
		delete(h.pending, p.id)
		if p.id == idIB {
			h.lastNICs = q.attributes
		}
		return q.Findings
	}
	silent := FindingBuilder{Template: Finding{ID: p.id, Source: p.source}}
	by := ClassNode
	if p.id == idDisk { // the job chooses the directory, which may be on a shared file system
		by = ClassEnvironment
	}
	waited := time.Since(q.startedAt).Round(time.Second / 10)
	silent.AddFinding(Wait, by, fmt.Sprintf("the kernel has not responded for %s", waited),
		fmt.Sprintf("a response within %s", answerTimeout), "drain the node and see the kernel log "+
			"(dmesg): the disk, the mount or the device hangs").MaxWait = slowAnswerTimeout
	return silent.Findings
}

// ListIDs returns the ids of all checks in this package: the site's active commands, the host, the
// shared file system and the comparison of nodes.
func ListIDs(active []string) []string {
	ids := append(activeIDs(active), idShare, idClock)
	for _, p := range new(Host).listChecks() {
		ids = append(ids, p.id)
	}
	for _, k := range attributeRules {
		ids = append(ids, k.id)
	}
	return ids
}

func (h *Host) hostPath(absolute string) string { return filepath.Join("/", h.Root, absolute) }

func (h *Host) pathExists(path string) bool {
	_, err := os.Lstat(h.hostPath(path))
	return err == nil
}

// readTrimmed returns the contents of a kernel file without surrounding white space.
func readTrimmed(path ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(path...))
	return strings.TrimSpace(string(text)), err
}

// localSystem reads the state of the local machine. It implements [hostSystem].
type localSystem struct{}

func (localSystem) FreeSpace(path string) (files.Space, error) { return files.SpaceOf(path) }

// TestWrite removes the file before it writes, so that nothing stays behind if the write never
// returns.
func (localSystem) TestWrite(dir string) error {
	file, err := os.CreateTemp(dir, ".bringupd-check-*")
	if err != nil {
		return err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = file.Write([]byte{'.'})
	}
	if err == nil {
		err = file.Sync()
	}
	// Some file systems do not support fsync and return one of these errors.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (localSystem) ResourceLimit(resource int) (limit unix.Rlimit, err error) {
	return limit, unix.Getrlimit(resource, &limit)
}

// minOpenFiles is the number of open files that the services of a job of some hundred nodes need: a
// head holds several connections to each worker. A limit of 20000, which some machines have, must
// not cause a warning before each small job.
const minOpenFiles = 8192

// checkLimits checks three limits. For open files it checks the hard limit, because the soft limit
// is raised to it; for locked memory the soft limit, which child processes inherit unchanged. Too
// few processes and threads are a failure: services retry for minutes, because the error looks
// temporary.
func (h *Host) checkLimits(s *FindingBuilder) {
	files, filesErr := h.system.ResourceLimit(unix.RLIMIT_NOFILE)
	locked, lockedErr := h.system.ResourceLimit(unix.RLIMIT_MEMLOCK)
	cards, _ := h.rdmaDevices()
	s.Template.Source = "RLIMIT_NOFILE"
	switch {
	case filesErr != nil:
		s.addUnreadable(filesErr)
	case files.Max < minOpenFiles:
		s.AddWarning(ClassEnvironment, fmt.Sprintf("at most %d open files", files.Max),
			strconv.Itoa(minOpenFiles), "raise LimitNOFILE in slurmd's unit, or the limit of the "+
				"submitting shell, which Slurm propagates (PropagateResourceLimits)")
	}
	s.Template.Source = "RLIMIT_MEMLOCK"
	switch {
	case lockedErr != nil:
		s.addUnreadable(lockedErr)
	case locked.Cur != unix.RLIM_INFINITY && len(cards) > 0:
		s.AddWarning(ClassEnvironment, formatLimit(locked.Cur, textutil.FormatSize)+" of locked memory",
			"unlimited, for RDMA", "set LimitMEMLOCK=infinity in slurmd's unit and "+
				"PropagateResourceLimitsExcept=MEMLOCK in slurm.conf; in a container, ulimit -l unlimited")
	}
	s.Template.Source = "pids.max, RLIMIT_NPROC"
	need := process.ResourceNeeds{Tasks: h.Tasks, Purpose: "the services need"}
	if problem, hint := need.FindShortage(h.hostPath("")); problem != "" {
		s.AddFailure(ClassEnvironment, problem, "", hint)
	}
	s.Template.Source = limitsSource
	if len(s.Findings) == 0 {
		number := func(n uint64) string { return strconv.FormatUint(n, 10) }
		s.AddPass(fmt.Sprintf("%s open files, %s locked memory",
			formatLimit(files.Max, number), formatLimit(locked.Cur, textutil.FormatSize)))
	}
}

func formatLimit(n uint64, format func(uint64) string) string {
	if n == unix.RLIM_INFINITY {
		return "unlimited"
	}
	return format(n)
}

func (h *Host) checkStep(s *FindingBuilder) {
	env := launcher.EnvironmentOf(h.Environ)
	cpus, nodeCPUs := h.allowedCPUs(), h.nodeCPUs()
	lacking := []*launcher.Shortfall{launcher.FindCPUShortfall(env, cpus, nodeCPUs)}
	if !h.IgnoresGPUs {
		lacking = append(lacking, launcher.FindGPUShortfall(env))
	}
	for _, lack := range lacking {
		if lack != nil {
			s.AddWarning(ClassUser, lack.Problem, "", lack.Fix)
		}
	}
	switch {
	case len(s.Findings) > 0:
	case !launcher.IsSlurmJob(env):
		s.AddSkip("not a Slurm job")
	case cpus == 0 || nodeCPUs == 0:
		s.AddPass("the CPUs of this step cannot be counted")
	default:
		s.AddPass(fmt.Sprintf("this task may use %d of the node's %d CPUs", cpus, nodeCPUs))
	}
}

// allowedCPUs returns how many CPUs this process may use, or 0 if that cannot be read.
func (h *Host) allowedCPUs() int {
	status, _ := readTrimmed(h.hostPath("/proc/self/status")) // on error the text lacks the line
	_, rest, _ := strings.Cut(status, "\nCpus_allowed_list:")
	list, _, _ := strings.Cut(rest, "\n")
	return countCPUs(list)
}

// nodeCPUs returns how many CPUs the node has, or 0 if that cannot be read.
func (h *Host) nodeCPUs() int {
	online, _ := readTrimmed(h.hostPath("/sys/devices/system/cpu/online")) // on error it is empty
	return countCPUs(online)
}

// maxCPU is the highest CPU number that is accepted: Linux supports at most 8192 CPUs (NR_CPUS).
const maxCPU = 1<<13 - 1

// countCPUs returns the number of CPUs in a list in the kernel's format, such as 0-3,8. It returns
// 0 if the list is malformed.
func countCPUs(list string) int {
	numbers, _ := textutil.ParseRanges(list, maxCPU)
	return len(numbers)
}

// Attributes returns the attributes by which the hosts of a job are compared, as of the last call
// of [Host.Inspect]. Equal nodes have exactly the same values, so the values must not contain
// anything specific to one node, such as names, addresses or event counts.
func (h *Host) Attributes() []Attribute {
	all := slices.Clone(h.lastNICs)
	if release, err := readTrimmed(h.hostPath("/proc/sys/kernel/osrelease")); err == nil {
		all = append(all, Attribute{AttrKernel, release})
	}
	if n := h.nodeCPUs(); n > 0 {
		all = append(all, Attribute{AttrCPU, strings.TrimSpace(fmt.Sprintf("%d %s", n, h.cpuModelName()))})
	}
	if h.GPUs && h.pathExists("/sys/module/nvidia") {
		all = append(all, h.imexAttributes()...)
	}
	return all
}

// imexAttributes returns the state of IMEX, with which GPUs of one NVLink domain access each
// other's memory across nodes. It reports whether a channel exists, which after a reboot must be
// created again, and whether the service runs, which is seen by its cgroup (NVIDIA's IMEX guide,
// "IMEX Channels" and "Getting Started"). The numbers of the channels are left out because some may
// belong to other jobs; the node list of the service's domain is left out because each rack of a
// job has its own.
func (h *Host) imexAttributes() []Attribute {
	channels, err := os.ReadDir(h.hostPath("/dev/nvidia-caps-imex-channels"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var has []string
	if len(channels) > 0 {
		has = append(has, "channels")
	}
	const unit = "system.slice/nvidia-imex.service"
	// cgroup v2 and v1
	if h.pathExists("/sys/fs/cgroup/"+unit) || h.pathExists("/sys/fs/cgroup/systemd/"+unit) {
		has = append(has, "service")
	}
	return []Attribute{{AttrIMEX, cmp.Or(strings.Join(has, " and "), "none")}}
}

// cpuinfoReadLimit is the number of bytes of /proc/cpuinfo that are read. They contain the first
// processor. Reading more is slow, because the kernel queries each processor's frequency.
const cpuinfoReadLimit = 4096

// cpuModelName returns the model name of the first processor. It is empty if the kernel reports
// none, as on ARM.
func (h *Host) cpuModelName() string {
	file, err := os.Open(h.hostPath("/proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	text, _ := io.ReadAll(io.LimitReader(file, cpuinfoReadLimit)) // what can be read
	_, rest, _ := strings.Cut(string(text), "\nmodel name")
	line, _, _ := strings.Cut(rest, "\n")
	_, name, _ := strings.Cut(line, ":")
	return strings.TrimSpace(name)
}
