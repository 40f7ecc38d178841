package health

import (
	"cmp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// NewRankExitFailure returns the failure of a rank of the world that has exited on host. lines are
// its last lines of output. The caller adds its node and its log.
func NewRankExitFailure(rank record.WorldRank, host string, exit process.Exit, lines []string) *Failure {
	how := "failed: "
	if exit.Signal != 0 {
		how = "died: "
	}
	f := NewFailure(RankFailed, "%s %s", rankName(rank, host), how+exit.String())
	f.Code, f.ExitText = exit.Code, exit.String()
	if exit.Signal != 0 {
		f.Signal, f.Code = process.SignalName(exit.Signal), 0
	}
	return addRankInfo(f, rank, lines)
}

// NewRankAbortFailure returns the failure of a rank of the world that has requested the end of the
// job, with a code and a message. lines are its last lines of output. A negative rank number means
// another program on the node.
func NewRankAbortFailure(rank record.WorldRank, host string, code int, message string, lines []string) *Failure {
	who := "a program on " + host
	if rank.Number >= 0 {
		who = rankName(rank, host)
	}
	f := NewFailure(RankAborted, "%s has aborted the job with code %d: %s", who, code, message)
	if message == "" {
		f.Message = strings.TrimSuffix(f.Message, ": ")
	}
	f.Code = code
	if rank.Number < 0 {
		return f
	}
	return addRankInfo(f, rank, lines)
}

func addRankInfo(f *Failure, rank record.WorldRank, lines []string) *Failure {
	f.Lines = lines
	rank.Symptom = findSymptom(f.Failure)
	f.WorldRank = &rank
	return f
}

func rankName(rank record.WorldRank, host string) string {
	where := host
	if rank.GPUs != "" {
		where += ", " + rank.GPULabel()
	}
	return rank.String() + " (" + where + ")"
}

// rankExitCode returns the exit code of a job that ends because of a rank: its own, 128+n if signal
// n ended it, or that of its abort. A job that has failed never ends with 0, which the lowest byte
// of 256 would be.
func rankExitCode(f record.Failure) int {
	code := f.Code
	if sig := process.SignalNumber(f.Signal); sig != 0 {
		code = 128 + int(sig)
	}
	if code&0xff == 0 {
		return 1
	}
	return code & 0xff
}

type worldRankID struct {
	world  string
	number int
}

func (r worldRankID) compare(other worldRankID) int {
	return cmp.Or(cmp.Compare(r.world, other.world), cmp.Compare(r.number, other.number))
}

// worldRankOf returns the rank that a failure is about. Its number is -1 if it is about none.
func worldRankOf(f record.Failure) worldRankID {
	if f.WorldRank == nil {
		return worldRankID{number: -1}
	}
	return worldRankID{f.WorldRank.World, f.WorldRank.Number}
}

// hasSymptom reports whether the failure of a rank looks like the consequence of another one.
func hasSymptom(f record.Failure) bool { return f.WorldRank != nil && f.WorldRank.Symptom != "" }

// maxTeardown is the maximum time from a failure in a process to its exit. Its peers lose their
// connections to it before that, fail, and may end first. An interpreter that ends waits for its
// threads, and writing a core file takes time.
const maxTeardown = 5 * time.Second

// withRankFacts returns t with the facts about all failures that are needed to classify failures of
// ranks.
func (t failureEvidence) withRankFacts(all []ObservedFailure) failureEvidence {
	for _, o := range all {
		if t.isExplained(o) {
			continue
		}
		if IsPeerLoss(o.Kind) {
			t.unexplainedLosses = append(t.unexplainedLosses, o)
		}
		if at := o.happenedAt(); canFailRanks(o.Failure) && (t.firstTrouble.IsZero() || at.Before(t.firstTrouble)) {
			t.firstTrouble = at
		}
	}
	return t
}

func canFailRanks(f record.Failure) bool {
	switch kind := f.Kind; kind {
	case DeadlinePassed, Aborted:
		return false
	default:
		return !isRankKind(kind) || !hasSymptom(f)
	}
}

// isProvoked reports whether the failure of a rank is the consequence of another failure. This
// holds for a failure with a symptom if there is a possible cause: a failure, or the loss of a
// node, that happened at any time before it or up to [maxTeardown] after it. It also holds for a
// rank that was killed together with its node, and for one that ended after it had aborted the job.
func (t failureEvidence) isProvoked(o ObservedFailure) bool {
	switch kind := o.Kind; {
	case !isRankKind(kind):
		return false
	case kind == RankFailed && t.abortedRanks[worldRankOf(o.Failure)]:
		return true
	case rankExitCode(o.Failure) == 128+int(syscall.SIGKILL):
		return slices.ContainsFunc(t.unexplainedLosses, func(loss ObservedFailure) bool {
			return slices.Contains(loss.LostNodes, o.NodeIndex) &&
				loss.happenedAt().Sub(o.happenedAt()).Abs() <= maxTeardown
		})
	default:
		return hasSymptom(o.Failure) && !t.firstTrouble.IsZero() && t.firstTrouble.Sub(o.happenedAt()) <= maxTeardown
	}
}

// localSymptomDelay is how long a failure of a rank that looks like a consequence is not published.
// A node publishes one cause, which may be another rank that has not ended yet. As soon as the head
// knows a cause, it ends this node's ranks.
const localSymptomDelay = time.Second

// CauseGracePeriod returns how long a node must delay publishing the failure of a rank. If the
// cause becomes known in this time, it is published instead, or has ended the run already.
func CauseGracePeriod(f *Failure) time.Duration {
	if hasSymptom(f.Failure) {
		return localSymptomDelay
	}
	return 0
}

// symptomDelay is how long the verdict waits for other records if all known failures look like
// consequences. The node that detected such a failure has already waited; this time covers the
// different delays of records.
const symptomDelay = 300 * time.Millisecond

// UndecidedUntil returns until when, on the observer's clock, the verdict on these failures must
// wait for others, because the present cause is a rank whose failure looks like a consequence. It
// returns the zero time if there is no need to wait. The caller must call it again when more
// failures are known.
//
// If the present cause is a failed check, the verdict waits for those of the size nodes that have
// neither passed their checks nor failed.
func UndecidedUntil(failures []ObservedFailure, passed []int, size int) time.Time {
	ordered := sortByPrecedence(failures)
	if len(ordered) > 0 && (ordered[0].Kind == CheckEnvironment || ordered[0].Kind == CheckFailed) {
		return evidenceDeadline(ordered[0].Kind, failures, passed, size)
	}
	if len(ordered) == 0 || !hasSymptom(ordered[0].Failure) {
		return time.Time{}
	}
	first := slices.MinFunc(failures, func(a, b ObservedFailure) int { return a.ObservedAt.Compare(b.ObservedAt) })
	return first.ObservedAt.Add(symptomDelay)
}
