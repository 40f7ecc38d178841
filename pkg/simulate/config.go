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
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous/client"
)

// MostNodes bounds a simulation.
const MostNodes = 16384

// Config says what is simulated.
type Config struct {
	Nodes int // 1 to MostNodes

	// Latency is added to every call into the share, and Jitter at random on
	// top: as much on average, seldom five times as much.
	Latency time.Duration
	Jitter  time.Duration
	// Rate is how many calls a second the server answers, all nodes together;
	// the others wait their turn. 0: as many as come.
	Rate int
	// Skew is the time over which the daemons' starts are spread, at random.
	Skew time.Duration
	// Steady is for how long the job stays up after the gate; 0: not at all. In the
	// first half the nodes' looks become as rare as they will be, and the second is
	// measured.
	Steady time.Duration
	// Death says whose daemon dies then, as by kill -9: DeathOfWorker or
	// DeathOfHead; empty: nobody's, and the job ends in order.
	Death string
	// Ranks is how many ranks each node has, which meet in Fences fences, with a value put by each
	// before; 0: there is a driver, and no ranks.
	Ranks, Fences int
	// Bytes is how many bytes each rank brings to each fence, as MPI's do; 0: it puts a value before.
	Bytes int
	// Lifeline says whether workers hold a connection to the head; empty: auto.
	Lifeline config.LinkMode

	Join    time.Duration // as --join-timeout
	Peer    time.Duration // as --peer-timeout
	Program string        // version of this bringupd
	// Told, where it is not nil, is told in a few words how far it is.
	Told func(what string)
}

// Validate returns an error for the first rule that the configuration breaks.
func (c Config) Validate() error {
	if c.Nodes < 1 || c.Nodes > MostNodes {
		return fmt.Errorf("cannot simulate %d nodes: give a number of 1 to %d", c.Nodes, MostNodes)
	}
	if err := c.judgeDeath(); err != nil {
		return err
	}
	if c.Ranks < 0 || c.Ranks > mostRanks || c.Fences < 0 || c.Fences > mostFences || c.Ranks > 0 && c.Fences == 0 {
		return fmt.Errorf("cannot simulate %d ranks a node in %d fences: give 1 to %d ranks, and 1 to %d fences", c.Ranks, c.Fences, mostRanks, mostFences)
	}
	if c.Ranks > 0 && c.Nodes > 1 && c.Lifeline == config.LinkOff {
		return errors.New("cannot simulate ranks without lifelines: leave out --lifeline=off or --ranks")
	}
	if values := c.Nodes * c.Ranks * c.Fences; values > client.MaxKeys {
		return fmt.Errorf("cannot simulate %d nodes of %d ranks in %d fences: they put %s values, and a world keeps at most %s; give fewer --fences",
			c.Nodes, c.Ranks, c.Fences, textutil.GroupThousands(values), textutil.GroupThousands(client.MaxKeys))
	}
	if c.Rate < 0 {
		return fmt.Errorf("cannot use --server-rate=%d: give a number of calls a second, or 0 for no bound", c.Rate)
	}
	for _, row := range []struct {
		flag  string
		value time.Duration
		most  time.Duration
	}{
		{"op-latency", c.Latency, mostLatency},
		{"latency-jitter", c.Jitter, mostLatency},
		{"start-skew", c.Skew, c.Join / 2},
		{"steady", c.Steady, time.Hour},
	} {
		if row.value < 0 || row.value > row.most {
			return fmt.Errorf("cannot use --%s=%s: give a time of 0s to %s", row.flag, row.value, row.most)
		}
	}
	times := c.times()
	return (&config.Config{LogDir: "/", Times: times}).Validate()
}

// Bounds of a simulated world.
const (
	mostRanks  = 1024
	mostFences = 10_000
)

// mostLatency is more than any share takes on which a job could run.
const mostLatency = time.Second

func (c Config) times() config.Timeouts {
	times := config.DefaultTimeouts()
	times.Join, times.Peer = c.Join, c.Peer
	return times
}

// delay returns what a call is to take longer, for all daemons; nil: nothing.
func (c Config) delay() func() time.Duration {
	if c.Latency == 0 && c.Jitter == 0 && c.Rate == 0 {
		return nil
	}
	turns := &queue{rate: c.Rate}
	return func() time.Duration {
		return c.Latency + time.Duration(rand.ExpFloat64()*float64(c.Jitter)) + turns.wait(time.Now())
	}
}

// queue is a server that answers so many calls a second, in the order in which
// they come.
type queue struct {
	rate int // 0: as many as come

	mu   sync.Mutex
	free time.Time // when it has answered all that have come, guarded by mu
}

// wait takes a turn, and returns how long after now the call is answered.
func (q *queue) wait(now time.Time) time.Duration {
	if q.rate == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free.Before(now) {
		q.free = now
	}
	q.free = q.free.Add(time.Second / time.Duration(q.rate))
	return q.free.Sub(now)
}

const (
	// filesANode is how many files a daemon holds open at most: its two logs,
	// a look, and a record that it writes.
	filesANode = 4
	// filesBeside are for all the rest of the process.
	filesBeside = 64
)

// Fits returns an error where this process may not open as many files as the
// daemons of so many nodes do.
func Fits(nodes int) error { return fits(nodes, mostFiles()) }

// mostFiles is how many files this process may open; where that can't be told it
// is found out.
func mostFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

func fits(nodes int, files uint64) error {
	if need := uint64(filesANode*nodes + filesBeside); need > files {
		return fmt.Errorf("cannot simulate %d nodes in one process: they open up to %d files, and this shell allows %d: "+
			"give at most %d nodes, or raise what it allows (ulimit -n)",
			nodes, need, files, max(0, int(files)-filesBeside)/filesANode)
	}
	return nil
}
