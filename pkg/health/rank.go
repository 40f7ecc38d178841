package health

import (
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// RankDied is the failure that a rank of the world, on host, has ended in this way
// after these last lines. The caller adds which node it was, and where its log is.
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

// RankAsked is the failure that a rank of the world has asked for the end of the
// job, with a code and a message, after these last lines. A negative number is that of
// another program of the node.
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

func ofWorld(f *Failure, rank signal.WorldRank, lines []string) *Failure {
	f.Lines = lines
	rank.Symptom = symptomOf(f.FailedRecord)
	f.WorldRank = &rank
	return f
}

// nameOfRank is one rank of the world for people, with where it runs.
func nameOfRank(rank signal.WorldRank, host string) string {
	where := host
	if rank.GPUs != "" {
		where += ", " + rank.Cards()
	}
	return rank.String() + " (" + where + ")"
}

// rankCode is the exit code of a job that ends by a rank: its own, 128+n where
// signal n ended it, or the one with which it aborted. A job that has failed never
// ends with 0, as it would by the lowest byte of 256.
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

// worldRank is the rank of the world that a failure is about; -1 where it is about
// none.
func worldRank(f signal.FailedRecord) int {
	if f.WorldRank == nil {
		return -1
	}
	return f.WorldRank.Number
}

// symptomatic tells whether a rank looks as if it had failed because of another.
func symptomatic(f signal.FailedRecord) bool { return f.WorldRank != nil && f.WorldRank.Symptom != "" }

// teardown is how long a process may take from what has failed in it to its exit:
// its peers lose their connections to it before, fail of that, and may be gone
// first. An interpreter that ends waits for its threads, and writing a core file
// takes its time.
const teardown = 5 * time.Second

// ofRanks adds what is to be known of all failures to judge those of ranks.
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

// troubles tells whether ranks can fail because of a failure.
func troubles(f signal.FailedRecord) bool {
	switch kind := Kind(f.Kind); kind {
	case Deadline, Aborted:
		return false
	default:
		return !ofRank(kind) || !symptomatic(f)
	}
}

// provoked tells whether the failure of a rank has come of another failure. One that
// looks like a consequence has, if there is anything of which it can be one: a
// cause, or the loss of a node, that happened at any time before or a teardown
// later. What was killed with its node, or has ended after its own abort, has.
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

// afterSymptomHere is for how long a rank's failure that looks like a consequence is
// not told: a node has one cause to tell, which may be another rank of it that still
// ends, and as soon as the head knows of one, it ends its own ranks.
const afterSymptomHere = time.Second

// Yield returns for how long the failure of a rank is to wait for the cause, which is
// told instead of it, or ends the run before.
func Yield(f *Failure) time.Duration {
	if symptomatic(f.FailedRecord) {
		return afterSymptomHere
	}
	return 0
}

// afterSymptom is for how long the verdict waits for other records where all that
// is known looks like a consequence. Each of those has waited where it was seen; what
// is left is that records travel at different speeds.
const afterSymptom = 300 * time.Millisecond

// Undecided returns until when, on the observer's clock, the verdict on these
// failures is to wait for others: what is to blame so far is a rank that looks as
// if it had failed because of another. The zero time: there is nothing to wait for.
// The caller asks again when more is known.
//
// A failed check waits for the nodes of size that have neither passed their
// checks nor failed.
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
