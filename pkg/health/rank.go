package health

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// RankDied returns the failure of a rank of the world that has exited on host. lines are its last
// lines of output. The caller adds its node and its log.
func RankDied(rank signal.WorldRank, host string, exit process.Exit, lines []string) *Failure {
	how := "failed: "
	if exit.Signal != 0 {
		how = "died: "
	}
	f := Failed(RankFailed, "%s %s", nameOfRank(rank, host), how+exit.String())
	f.Code, f.Exit = exit.Code, exit.String()
	if exit.Signal != 0 {
		f.Signal, f.Code = process.SignalName(exit.Signal), 0
	}
	return ofWorld(f, rank, lines)
}

// RankAsked returns the failure of a rank of the world that has requested the end of the job, with
// a code and a message. lines are its last lines of output. A negative rank number means another
// program on the node.
func RankAsked(rank signal.WorldRank, host string, code int, message string, lines []string) *Failure {
	who := "a program on " + host
	if rank.Number >= 0 {
		who = nameOfRank(rank, host)
	}
	f := Failed(RankAborted, "%s has aborted the job with code %d: %s", who, code, message)
	if message == "" {
		f.What = strings.TrimSuffix(f.What, ": ")
	}
	f.Code = code
	if rank.Number < 0 {
		return f
	}
	return ofWorld(f, rank, lines)
}

// ofWorld adds a rank, its last lines of output and its symptom to a failure, and returns it.
func ofWorld(f *Failure, rank signal.WorldRank, lines []string) *Failure {
	f.Lines = lines
	rank.Symptom = symptomOf(f.FailedRecord)
	f.WorldRank = &rank
	return f
}

// nameOfRank returns the name of a rank for messages, with its host.
func nameOfRank(rank signal.WorldRank, host string) string {
	where := host
	if rank.GPUs != "" {
		where += ", " + rank.Cards()
	}
	return rank.String() + " (" + where + ")"
}

// rankCode returns the exit code of a job that ends because of a rank: its own, 128+n if signal n
// ended it, or that of its abort. A job that has failed never ends with 0, which the lowest byte of
// 256 would be.
func rankCode(f signal.FailedRecord) int {
	code := f.Code
	if sig := process.SignalNumber(f.Signal); sig != 0 {
		code = 128 + int(sig)
	}
	if code&0xff == 0 {
		return 1
	}
	return code & 0xff
}

// worldRank returns the rank of the world that a failure is about, or -1 if it is about none.
func worldRank(f signal.FailedRecord) int {
	if f.WorldRank == nil {
		return -1
	}
	return f.WorldRank.Number
}

// symptomatic reports whether the failure of a rank looks like the consequence of another one.
func symptomatic(f signal.FailedRecord) bool { return f.WorldRank != nil && f.WorldRank.Symptom != "" }

// teardown is the maximum time from a failure in a process to its exit. Its peers lose their
// connections to it before that, fail, and may end first. An interpreter that ends waits for its
// threads, and writing a core file takes time.
const teardown = 5 * time.Second

// ofRanks returns t with the facts about all failures that are needed to classify failures of
// ranks.
func (t testimony) ofRanks(all []Observed) testimony {
	for _, o := range all {
		if t.explains(o) {
			continue
		}
		if Loss(Kind(o.Kind)) {
			t.losses = append(t.losses, o)
		}
		if at := o.happened(); troubles(o.FailedRecord) && (t.trouble.IsZero() || at.Before(t.trouble)) {
			t.trouble = at
		}
	}
	return t
}

// troubles reports whether a failure can make ranks fail.
func troubles(f signal.FailedRecord) bool {
	switch kind := Kind(f.Kind); kind {
	case Deadline, Aborted:
		return false
	default:
		return !ofRank(kind) || !symptomatic(f)
	}
}

// provoked reports whether the failure of a rank is the consequence of another failure. This holds
// for a failure with a symptom if there is a possible cause: a failure, or the loss of a node, that
// happened at any time before it or up to [teardown] after it. It also holds for a rank that was
// killed together with its node, and for one that ended after it had aborted the job.
func (t testimony) provoked(o Observed) bool {
	switch kind := Kind(o.Kind); {
	case !ofRank(kind):
		return false
	case kind == RankFailed && t.aborted[worldRank(o.FailedRecord)]:
		return true
	case rankCode(o.FailedRecord) == 128+int(syscall.SIGKILL):
		return slices.ContainsFunc(t.losses, func(loss Observed) bool {
			return slices.Contains(loss.Lost, o.Rank) && loss.happened().Sub(o.happened()).Abs() <= teardown
		})
	default:
		return symptomatic(o.FailedRecord) && !t.trouble.IsZero() && t.trouble.Sub(o.happened()) <= teardown
	}
}

// afterSymptomHere is how long a failure of a rank that looks like a consequence is not published.
// A node publishes one cause, which may be another rank that has not ended yet. As soon as the head
// knows a cause, it ends this node's ranks.
const afterSymptomHere = time.Second

// Yield returns how long a node must delay publishing the failure of a rank. If the cause becomes
// known in this time, it is published instead, or has ended the run already.
func Yield(f *Failure) time.Duration {
	if symptomatic(f.FailedRecord) {
		return afterSymptomHere
	}
	return 0
}

// afterSymptom is how long the verdict waits for other records if all known failures look like
// consequences. The node that detected such a failure has already waited; this time covers the
// different delays of records.
const afterSymptom = 300 * time.Millisecond

// Undecided returns until when, on the observer's clock, the verdict on these failures must wait
// for others, because the present cause is a rank whose failure looks like a consequence. It
// returns the zero time if there is no need to wait. The caller must call it again when more
// failures are known.
//
// If the present cause is a failed check, the verdict waits for those of the size nodes that have
// neither passed their checks nor failed.
func Undecided(failures []Observed, passed []int, size int) time.Time {
	ordered := byBlame(failures)
	if len(ordered) > 0 && (Kind(ordered[0].Kind) == CheckEnvironment || Kind(ordered[0].Kind) == Check) {
		return unspoken(Kind(ordered[0].Kind), failures, passed, size)
	}
	if len(ordered) == 0 || !symptomatic(ordered[0].FailedRecord) {
		return time.Time{}
	}
	first := slices.MinFunc(failures, func(a, b Observed) int { return a.At.Compare(b.At) })
	return first.At.Add(afterSymptom)
}
