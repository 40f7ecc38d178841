package health

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// onNode returns a failure of a rank in a world of four ranks per node, observed at ms.
func onNode(rank, ms int, f *Failure) ObservedFailure {
	o := ObservedFailure{Failure: f.Failure, ObservedAt: at(ms)}
	o.NodeIndex, o.Host, o.SeenAt = rank/4, hostOf(rank/4), time.Time{}
	return o
}

func rankExit(rank int, exit process.Exit, lines []string) *Failure {
	return NewRankExitFailure(record.WorldRank{Number: rank}, hostOf(rank/4), exit, lines)
}

func exited(rank, ms, code int, lines ...string) ObservedFailure {
	return onNode(rank, ms, rankExit(rank, process.Exit{Code: code}, lines))
}

func died(rank, ms int, sig syscall.Signal, lines ...string) ObservedFailure {
	return onNode(rank, ms, rankExit(rank, process.Exit{Code: -1, Signal: sig}, lines))
}

func aborted(rank, ms, code int, message string) ObservedFailure {
	return onNode(rank, ms, NewRankAbortFailure(record.WorldRank{Number: rank}, hostOf(rank/4), code, message, nil))
}

const (
	gloo  = "RuntimeError: [../gloo/transport/tcp/pair.cc:598] Connection closed by peer [172.28.0.12]:14004"
	reset = "ConnectionResetError: [Errno 104] Connection reset by peer"
	nan   = "ValueError: the loss is not a number"
)

var decisionsOnRanks = []decision{
	{"a rank ended with 3", facts{exited(12, 5, 3)}, 3, nil},
	{"a rank was killed", facts{died(12, 5, syscall.SIGKILL)}, 137, nil},
	{"the first of three codes, not the last", facts{exited(9, 5, 3), exited(2, 7, 4), exited(14, 9, 5)}, 3, nil},
	{"the first, whose record came last", facts{aged(90, exited(9, 95, 3)), exited(2, 7, 4), exited(14, 9, 5)}, 3, nil},
	{"the lower rank of one moment", facts{exited(3, 5, 5), exited(13, 5, 3)}, 5, nil},
	{"a rank was killed, peers told first", facts{
		died(12, 40, syscall.SIGKILL), exited(1, 5, 1, gloo), exited(2, 6, 1, reset),
		died(5, 7, syscall.SIGABRT, "  what():  [PG 0 Rank 5] "+gloo[14:]),
	}, 137, nil},
	{"peers lost a rank while it ended", facts{exited(12, 3000, 1, "Traceback", nan), exited(1, 5, 1, gloo)}, 1, nil},
	{"long after a peer, another rank", facts{exited(1, 5, 7, reset), died(2, 9000, syscall.SIGSEGV)}, 7, nil},
	{"a peer as early as possible", facts{died(2, 5005, syscall.SIGSEGV), exited(1, 5, 7, reset)}, 139, nil},
	{"a peer that waited for minutes", facts{died(2, 5, syscall.SIGSEGV),
		exited(1, 1_800_000, 1, "Watchdog caught collective operation timeout")}, 139, nil},
	{"nothing but consequences", facts{exited(9, 5, 1, reset), exited(2, 9, 4, gloo)}, 1, nil},
	{"a rank aborted, others lost it", facts{aborted(7, 9, 42, "the loss is not a number"),
		exited(1, 5, 1, reset), died(2, 11, syscall.SIGTERM)}, 42, nil},
	{"a rank aborted, and ended of it", facts{aborted(7, 9, 42, ""), died(7, 5, syscall.SIGABRT)}, 42, nil},
	{"a rank died before another aborted", facts{died(12, 5, syscall.SIGSEGV), aborted(1, 7, 1, "")}, 139, nil},
	{"peers of Open MPI 5 abort before", facts{died(12, 90, syscall.SIGSEGV), aborted(1, 5, 14, ""),
		aborted(2, 6, 14, "")}, 139, nil},
	{"a rank aborts with 14 of its own", facts{aborted(1, 5, 14, "")}, 14, nil},
	{"a peer aborts for a connection", facts{died(12, 90, syscall.SIGKILL),
		aborted(1, 5, 1, "Fatal error in PMPI_Send: Communication error with rank 12")}, 137, nil},
	{"a daemon killed, ranks lost theirs", facts{misses(DaemonDied, 0, 40, 3),
		exited(1, 5, 1, gloo), exited(5, 6, 1, reset)}, 76, []string{"n3"}},
	{"a node went, and its rank before", facts{misses(DaemonDied, 0, 40, 3),
		died(12, 5, syscall.SIGKILL)}, 76, []string{"n3"}},
	{"a silent node, ranks lost theirs", facts{lost(0, 400, 3), exited(1, 5, 1, gloo)}, 76, []string{"n3"}},
	{"a node went as late as possible", facts{misses(DaemonDied, 0, 5005, 3),
		died(12, 5, syscall.SIGKILL)}, 76, []string{"n3"}},
	{"a rank killed long before its node", facts{died(12, 5, syscall.SIGKILL),
		misses(DaemonDied, 0, 5006, 3)}, 137, nil},
	{"a rank killed, another node died", facts{died(4, 5, syscall.SIGKILL), misses(DaemonDied, 0, 40, 3)}, 137, nil},
	{"a rank failed, its daemon was killed", facts{exited(12, 5, 3, nan), misses(DaemonDied, 0, 40, 3)}, 3, nil},
	{"a rank lost a connection to a host", facts{misses(HostLost, 0, 900, 3),
		exited(12, 5, 1, reset)}, 76, []string{"n3"}},
	{"the job was cancelled by Slurm", facts{saw(Terminated, 0, 40),
		died(1, 5, syscall.SIGTERM), exited(2, 6, 143)}, 143, nil},
	{"a rank was ended by TERM", facts{died(1, 5, syscall.SIGTERM), exited(2, 6, 1, reset)}, 143, nil},
	{"a service died, and ranks lost it", facts{saw(ServiceDied, 2, 40),
		exited(1, 5, 1, "ConnectionRefusedError: [Errno 111] Connection refused")}, 77, nil},
	{"a rank hung until the deadline", facts{exited(1, 50, 1, reset), saw(DeadlinePassed, 0, 40)}, 1, nil},
}

// drawRank replaces the failure of a kind that concerns a rank by a random one.
func drawRank(random *rand.Rand, o ObservedFailure) ObservedFailure {
	switch random.IntN(4) {
	case 0:
		o.Signal = "SIGKILL"
	case 1:
		o.Signal, o.Lines = "SIGABRT", []string{gloo}
	case 2:
		o.Code, o.Lines = 1, []string{reset}
	default:
		o.Code = 14
	}
	rank := record.WorldRank{Number: random.IntN(8)}
	o.Failure = addRankInfo(&Failure{o.Failure}, rank, o.Lines).Failure
	return o
}

// TestDecideKeepsTheRank verifies that no consequence of a rank's death hides it, whenever its
// record arrives.
func TestDecideKeepsTheRank(t *testing.T) {
	for _, cause := range []ObservedFailure{
		died(12, 50, syscall.SIGSEGV), died(12, 50, syscall.SIGKILL),
		died(12, 50, syscall.SIGABRT, "free(): invalid pointer"),
		exited(12, 50, 3), exited(12, 50, 1, nan), aborted(12, 50, 42, "no data"),
	} {
		for seed := range uint64(300) {
			random := rand.New(rand.NewPCG(seed, 5))
			failures := facts{cause}
			for range 1 + random.IntN(12) {
				ms, peer := random.IntN(1000), random.IntN(12)
				failures = append(failures, facts{
					exited(peer, ms, 1, gloo), exited(peer, ms, 1, reset),
					died(peer, ms, syscall.SIGABRT, "terminate called", "what(): "+gloo),
					died(peer, ms, syscall.SIGTERM), aborted(peer, ms, 14, ""), died(peer, 51+ms, syscall.SIGSEGV),
				}[random.IntN(6)])
			}
			if v := DecideVerdict(shuffled(random, failures), hostOf); v.Cause.Message != cause.Message {
				t.Fatalf("seed %d: %s hides %s", seed, v.Cause.Message, cause.Message)
			}
		}
	}
}

func TestUndecided(t *testing.T) {
	for _, tc := range []struct {
		name     string
		failures []ObservedFailure
		until    time.Time
	}{
		{"nothing has failed", nil, time.Time{}},
		{"a rank was killed", facts{died(12, 5, syscall.SIGKILL)}, time.Time{}},
		{"a rank has failed with its own words", facts{exited(12, 5, 1, nan)}, time.Time{}},
		{"a rank has aborted", facts{aborted(12, 5, 42, "no data")}, time.Time{}},
		{"a service has died", facts{saw(ServiceDied, 2, 5)}, time.Time{}},
		{"a rank has lost another", facts{exited(12, 5, 1, gloo)}, at(305)},
		{"since the first of them", facts{exited(12, 600, 1, gloo), exited(1, 5, 1, reset)}, at(305)},
		{"since the first that was seen", facts{aged(900, exited(12, 600, 1, gloo)), exited(1, 5, 1, reset)}, at(305)},
		{"since it is known, however old it is", facts{aged(900, exited(12, 950, 1, gloo))}, at(1250)},
		{"Open MPI's peers have aborted", facts{aborted(12, 5, 14, "")}, at(305)},
		{"until the cause is known", facts{exited(12, 5, 1, gloo), died(3, 30, syscall.SIGKILL)}, time.Time{}},
		{"or a loss", facts{exited(12, 5, 1, gloo), misses(DaemonDied, 0, 40, 3)}, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := UndecidedUntil(tc.failures, nil, 8); !got.Equal(tc.until) {
				t.Errorf("got %v after the first, want %v", got.Sub(began), tc.until.Sub(began))
			}
		})
	}
}
