package simulate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous/client"
)

// MaxNodes is the maximum number of nodes of a simulation.
const MaxNodes = 16384

// Config configures the simulation of one job.
type Config struct {
	Nodes int // 1 to MaxNodes

	// Latency is added to every call into the shared file system. Jitter is the mean of a random
	// (exponentially distributed) addition; it rarely exceeds five times the mean.
	Latency time.Duration
	Jitter  time.Duration
	// Rate is the number of calls per second that the server answers for all nodes together; further
	// calls queue. 0 means unlimited.
	Rate int
	// Skew is the time over which the daemons' starts are spread at random.
	Skew time.Duration
	// Steady is how long the job stays up after the gate opens; 0 ends it at once. In the first half,
	// the nodes' polling intervals grow to their maximum. The second half is measured.
	Steady time.Duration
	// Death selects the daemon that dies then, as by kill -9: WorkerDies or HeadDies. If it is
	// empty, no daemon dies and the job ends in an orderly way.
	Death string
	RankLoad
	RoleLoad
	// LinkMode selects whether workers have a peer link to the head; empty means auto.
	LinkMode config.LinkMode
	// Trace selects that the calls which waited for each other are reported.
	Trace bool

	JoinTimeout time.Duration // value of --join-timeout
	Peer        time.Duration // value of --peer-timeout
	Program     string        // version of this bringupd
	// Progress, if it is not nil, receives short progress messages.
	Progress func(what string)
}

// RankLoad configures what the ranks of the job do.
type RankLoad struct {
	// Ranks is the number of ranks per node, and Fences the number of fences that they enter. Each
	// rank puts a value before each fence. If Ranks is 0, there is a driver instead of ranks.
	Ranks, Fences int
	// Bytes is the number of bytes that each rank contributes to each fence, as MPI libraries do. If
	// it is 0, each rank puts a value before the fence instead.
	Bytes int
}

// Validate returns an error for the first rule that the configuration violates.
func (c Config) Validate() error {
	if c.Nodes < 1 || c.Nodes > MaxNodes {
		return fmt.Errorf("cannot simulate %d nodes: give a number of 1 to %d", c.Nodes, MaxNodes)
	}
	switch {
	case c.Death != "" && c.Death != WorkerDies && c.Death != HeadDies:
		return fmt.Errorf("cannot simulate the death of %q: give %s or %s", c.Death, WorkerDies, HeadDies)
	case c.Death != "" && c.Nodes < 2:
		return errors.New("cannot simulate a death with one node: no other node is left to detect it")
	}
	if c.Ranks < 0 || c.Ranks > maxRanks || c.Fences < 0 || c.Fences > maxFences || c.Ranks > 0 && c.Fences == 0 {
		return fmt.Errorf("cannot simulate %d ranks per node with %d fences: give 1 to %d ranks, and 1 to %d fences", c.Ranks, c.Fences, maxRanks, maxFences)
	}
	if c.Ranks > 0 && c.Nodes > 1 && c.LinkMode == config.LinkOff {
		return errors.New("cannot simulate ranks without peer links: leave out --lifeline=off or --ranks")
	}
	if values := c.Nodes * c.Ranks * c.Fences; values > client.MaxKeys {
		return fmt.Errorf("cannot simulate %d nodes of %d ranks with %d fences: they put %s values, and at most %s are possible; give fewer --fences",
			c.Nodes, c.Ranks, c.Fences, textutil.GroupThousands(values), textutil.GroupThousands(client.MaxKeys))
	}
	if c.Rate < 0 {
		return fmt.Errorf("cannot use --server-rate=%d: give a number of calls per second, or 0 for no limit", c.Rate)
	}
	// The durations have limits, too.
	for _, row := range []struct {
		flag  string
		value time.Duration
		most  time.Duration
	}{
		{"op-latency", c.Latency, maxLatency},
		{"latency-jitter", c.Jitter, maxLatency},
		{"start-skew", c.Skew, c.JoinTimeout / 2},
		{"steady", c.Steady, time.Hour},
	} {
		if row.value < 0 || row.value > row.most {
			return fmt.Errorf("cannot use --%s=%s: give a time of 0s to %s", row.flag, row.value, row.most)
		}
	}
	if err := c.validateRoles(); err != nil {
		return err
	}
	// Let package config check the timeouts, and the keys of the roles.
	times := c.daemonTimeouts()
	return (&config.Config{LogDir: "/", Workload: config.Workload{Roles: c.Roles}, Framework: framework.None{}, Times: times}).Validate()
}

// Limits of a simulated world.
const (
	maxRanks  = 1024
	maxFences = 10_000
)

// maxLatency is longer than any latency of a shared file system on which a job could run.
const maxLatency = time.Second

// daemonTimeouts returns the timeouts of the daemons.
func (c Config) daemonTimeouts() config.Timeouts {
	times := config.DefaultTimeouts()
	times.Join, times.Peer = c.JoinTimeout, c.Peer
	return times
}

// newCallDelay returns a function that computes the additional duration of each call, for all
// daemons together. It returns nil if calls are not delayed.
func (c Config) newCallDelay() func() time.Duration {
	if c.Latency == 0 && c.Jitter == 0 && c.Rate == 0 {
		return nil
	}
	turns := &serverQueue{rate: c.Rate}
	return func() time.Duration {
		return c.Latency + time.Duration(rand.ExpFloat64()*float64(c.Jitter)) + turns.takeTurn(time.Now())
	}
}

// serverQueue is a server that answers a limited number of calls per second, in the order in which
// they arrive.
type serverQueue struct {
	rate int // calls per second; 0 means unlimited

	mu     sync.Mutex
	idleAt time.Time // when it will have answered all calls so far, guarded by mu
}

// takeTurn enqueues a call, and returns the time from now until it is answered.
func (q *serverQueue) takeTurn(now time.Time) time.Duration {
	if q.rate == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idleAt.Before(now) {
		q.idleAt = now
	}
	q.idleAt = q.idleAt.Add(time.Second / time.Duration(q.rate))
	return q.idleAt.Sub(now)
}

const (
	// filesPerNode is the maximum number of files that a daemon has open: its two logs, a directory
	// that it lists, and a record that it writes.
	filesPerNode = 4
	// otherFiles is the number of files for the rest of the process.
	otherFiles = 64
)

// CheckFileLimit returns an error if this process may not open as many files as the daemons of that
// many nodes need.
func CheckFileLimit(nodes int) error { return checkFilesNeeded(nodes, openFileLimit()) }

// openFileLimit returns how many files this process may open. If the limit is unknown, it returns
// the maximum, and a failing call will show the limit.
func openFileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

// checkFilesNeeded is like CheckFileLimit, for a given limit of open files.
func checkFilesNeeded(nodes int, files uint64) error {
	if need := uint64(filesPerNode*nodes + otherFiles); need > files {
		return fmt.Errorf("cannot simulate %d nodes in one process: they open up to %d files, and this shell allows %d: "+
			"give at most %d nodes, or raise this limit (ulimit -n)",
			nodes, need, files, max(0, int(files)-otherFiles)/filesPerNode)
	}
	return nil
}
