package health

import (
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// RankDied is the failure that a rank of the world, on host, has ended in this way.
// The caller adds what its log says, and which node it was.
func RankDied(rank signal.WorldRank, host string, exit process.Exit) *Failure {
	how := "failed: "
	if exit.Signal != 0 {
		how = "died: "
	}
	f := Failed(RankFailed, "%s %s", nameOfRank(rank, host), how+exit.String())
	f.WorldRank, f.Code, f.Exit = &rank, exit.Code, exit.String()
	if exit.Signal != 0 {
		f.Signal, f.Code = process.SignalName(exit.Signal), 0
	}
	return f
}

// RankAsked is the failure that a rank of the world has asked for the end of the
// job, with a code and a message.
func RankAsked(rank signal.WorldRank, host string, code int, message string) *Failure {
	f := Failed(RankAborted, "%s has aborted the job with code %d: %s", nameOfRank(rank, host), code, message)
	if message == "" {
		f.What = strings.TrimSuffix(f.What, ": ")
	}
	f.WorldRank, f.Code = &rank, code
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
