package process

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/envlist"
)

// MarkVariable is the environment variable that holds the marks of a child. It is a list, because a
// daemon may be a child of another daemon, and both must recognise their processes. A process that
// is no child must not have it.
const MarkVariable = "BRINGUPD_GUARD"

// withMark returns env with the mark added, for the start of a child. If a name occurs twice, the
// last entry counts, as in os/exec. The mark is bound to the job that env names by one of the
// variables in jobs.
func withMark(env []string, mark string, jobs []string) []string {
	if outer, found := envlist.Lookup(env, MarkVariable); found {
		mark = outer + "," + mark
	}
	return append(slices.Clip(env), MarkVariable+"="+mark+jobSuffix(env, jobs))
}

// jobSuffix returns the suffix that binds a mark to the job named in env, such as
// "@SLURM_JOB_ID=17"; empty if none.
func jobSuffix(env, jobs []string) string {
	for _, name := range jobs {
		value, found := envlist.Lookup(env, name)
		if found && value != "" && !strings.ContainsAny(value, ",@") {
			return "@" + name + "=" + value
		}
	}
	return ""
}

// markLimit is the resource limit that holds the mark of a child, too. Linux has ignored it since
// 2.4.25, but all descendants inherit it, also those without environment, parent and session.
const markLimit = unix.RLIMIT_LOCKS

// markNumberBits is the number of bits of such a limit that hold the number of the child. The others,
// except the highest one, hold the random prefix.
const markNumberBits = 24

// newMarkPrefix returns a random prefix of marks, including the final dot.
func newMarkPrefix() string { return formatMarkPrefix(rand.Uint64() >> (markNumberBits + 1)) }

func formatMarkPrefix(random uint64) string { return fmt.Sprintf("%010x.", random) }

// markedForks is locked while this process forks, so that no other process inherits the limit of a
// child: for writing by a fork of a child, and for reading by all others. A fork that hangs in its
// exec blocks others without this lock, too.
var markedForks sync.RWMutex

// forkMarked calls fork, which starts a child, with the limit that holds the mark. It calls it without
// that limit if the kernel refuses it, because the hard limit is lower.
func forkMarked(mark string, fork func() error) error {
	markedForks.Lock()
	defer markedForks.Unlock()
	var random, number uint64
	var own unix.Rlimit
	n, _ := fmt.Sscanf(mark, "%x.%d", &random, &number)
	if n == 2 && number>>markNumberBits == 0 && unix.Prlimit(0, markLimit, nil, &own) == nil {
		limit := unix.Rlimit{Cur: random<<markNumberBits | number, Max: own.Max}
		if unix.Prlimit(0, markLimit, &limit, nil) == nil {
			defer func() { _ = unix.Prlimit(0, markLimit, &own, nil) }() // always permitted
		}
	}
	return fork()
}

// forkUnmarked calls fork, which starts a process that is no child.
func forkUnmarked(fork func() error) error {
	markedForks.RLock()
	defer markedForks.RUnlock()
	return fork()
}

// readMarkLimit returns the mark in the limit of a process; empty if it has none or cannot be read.
func readMarkLimit(pid int) string {
	var limit unix.Rlimit
	if unix.Prlimit(pid, markLimit, nil, &limit) != nil || limit.Cur > unix.RLIM_INFINITY>>1 {
		return ""
	}
	return formatMarkPrefix(limit.Cur>>markNumberBits) + fmt.Sprint(limit.Cur&(1<<markNumberBits-1))
}

// marksOf returns the marks of a process with an environment, as far as it could be read, and with
// the mark in its limit. That does not count if the environment binds it to another job.
func marksOf(environ []byte, limit string) []string {
	marks, ofOtherJobs := parseMarks(environ)
	if limit != "" && !slices.Contains(marks, limit) && !slices.Contains(ofOtherJobs, limit) {
		marks = append(marks, limit)
	}
	return marks
}

// parseMarks returns the marks in the content of /proc/PID/environ, and separately those that are
// bound to another job than the one that the environment names.
func parseMarks(environ []byte) (marks, ofOtherJobs []string) {
	env := strings.Split(string(environ), "\x00")
	list, _ := envlist.Lookup(env, MarkVariable)
	for entry := range strings.SplitSeq(list, ",") {
		mark, job, isBound := strings.Cut(entry, "@")
		name, id, _ := strings.Cut(job, "=")
		now, isKnown := envlist.Lookup(env, name)
		switch {
		case mark == "":
		case isBound && isKnown && now != id:
			ofOtherJobs = append(ofOtherJobs, mark)
		default:
			marks = append(marks, mark)
		}
	}
	return marks, ofOtherJobs
}
