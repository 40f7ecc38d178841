package cuda

import (
	"slices"
	"sync"
	"time"
)

// Worked is what the GPUs that CUDA shows have done when they were put to work.
type Worked struct {
	Init   Answer `json:"init"`             // of cuInit; where its code is not 0 there are no GPUs
	Detail string `json:"detail,omitempty"` // where Init or End is one of ours: the loader's words, or what became of the process
	Loaded string `json:"loaded,omitempty"` // as in Facts
	// End is one of ours where the work was not done: Unresponsive, Died. Some GPUs may have done theirs.
	End  Answer        `json:"end,omitzero"`
	GPUs []Effort      `json:"gpus,omitempty"` // by ordinal
	Took time.Duration `json:"took_ns"`        // 0: the work goes on
}

// Effort is what one GPU has done. What it has not done is nil.
type Effort struct {
	Device
	Doing  Step     `json:"doing,omitempty"` // at the time that this was told; empty: nothing
	Failed *Failure `json:"failed,omitempty"`

	To    *float64 `json:"to_gb_s,omitempty"`   // copied to it from pinned memory, in GB (10^9 bytes) a second
	From  *float64 `json:"from_gb_s,omitempty"` // and from it
	Peers []Reach  `json:"peers,omitempty"`

	Products uint64   `json:"products,omitempty"` // of matrices
	Rate     *float64 `json:"tflop_s,omitempty"`  // 10^12 additions and multiplications a second
	// Wrong is how many elements of the products were wrong. Each product has Side x Side.
	Wrong uint64 `json:"wrong,omitempty"`
}

// Step is a part of the work.
type Step string

// The steps, in their order.
const (
	StepBegin   Step = "begin" // a context, and memory
	StepTo      Step = "copies to it"
	StepFrom    Step = "copies from it"
	StepPeers   Step = "copies to other GPUs"
	StepProduct Step = "products"
)

// Failure is what ended the work of a GPU.
type Failure struct {
	Step     Step   `json:"step"`
	Function string `json:"function"`
	Answer   Answer `json:"answer"`
}

// Reach is what one GPU has copied to another.
type Reach struct {
	Peer int     `json:"peer"` // ordinal
	Rate float64 `json:"gb_s"`
	// Why is the answer of cuCtxEnablePeerAccess where the copies had to go through the host's memory.
	Why Answer `json:"why,omitzero"`
}

const (
	// Side is how many rows and columns the matrices have: enough that the product fills any GPU many times over, and a
	// multiple of 64, so that the result is known. Three of them are 48 MiB.
	Side = 2048
	// mostChunk is how many bytes are copied at a time, and leastChunk how many where little memory is free: two matrices.
	// Bandwidth no longer grows from some 16 MiB on. There are two such pieces on a GPU, and one of pinned memory for it.
	mostChunk  = 64 << 20
	leastChunk = 2 * Side * Side * 4
	// spare is which part of the free memory of a GPU is taken at most.
	spare = 4
)

// WorkDeadline is how long all the work may take, with the driver's own beginnings and its assembly of the kernel: far
// longer than it should.
func WorkDeadline(long bool) time.Duration {
	if long {
		return 5 * time.Minute
	}
	return time.Minute
}

// windows are for how long the GPUs do what, all of them side by side.
type windows struct{ to, from, peers, products time.Duration }

// windowsOf: some 6 s, or about a minute. A copy is as fast after a second as it will ever be; a GPU that gets hot, and
// slow, needs longer.
func windowsOf(long bool) windows {
	if long {
		return windows{10 * time.Second, 10 * time.Second, 10 * time.Second, 30 * time.Second}
	}
	return windows{time.Second, time.Second, time.Second, 3 * time.Second}
}

// factors returns the matrices A and B, one behind the other and row by row: A[i][k] = (5 i + k) mod 64 and B[k][j] =
// (11 j + k) mod 64. The sum over k of A[i][k] B[k][j] is that of r ((r + d) mod 64) over r < 64, Side/64 times, with d =
// (11 j - 5 i) mod 64: that is 85344 - 32 d (64 - d), and at most 2.8 million. So all sums are whole numbers that a float
// has, in whatever order they are added.
func factors() []float32 {
	both := make([]float32, 2*Side*Side)
	a, b := both[:Side*Side], both[Side*Side:]
	for row := range Side {
		for column := range Side {
			a[row*Side+column] = float32((5*row + column) % 64)
			b[row*Side+column] = float32((11*column + row) % 64)
		}
	}
	return both
}

// rounds returns who copies to whom, so that each copies to each other once and all are at it in each round: the partner
// of each of n, by round; itself where it has a rest. It is the way in which chess players meet each other: one stays at
// its place, and all others go round.
func rounds(n int) (partners [][]int) {
	seats := n + n%2
	for round := range seats - 1 {
		partner := make([]int, n)
		at := func(seat int) int { // who sits there; the last seat is always the same player's
			if seat == seats-1 {
				return seats - 1
			}
			return (seat + round) % (seats - 1)
		}
		for seat := range seats / 2 {
			a, b := at(seat), at(seats-1-seat)
			if a >= n || b >= n {
				partner[min(a, b)] = min(a, b)
				continue
			}
			partner[a], partner[b] = b, a
		}
		partners = append(partners, partner)
	}
	return partners
}

// ledger is what is known of the work so far; each change is told.
type ledger struct {
	tell func(Worked)

	mu     sync.Mutex
	worked Worked // guarded by mu
}

// note changes what is known of a GPU, and tells.
func (l *ledger) note(ordinal int, change func(*Effort)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.worked.GPUs[ordinal])
	l.tell(l.worked.clone())
}

// clone is one that does not change any more.
func (w Worked) clone() Worked {
	w.GPUs = slices.Clone(w.GPUs)
	for i := range w.GPUs {
		w.GPUs[i].Peers = slices.Clone(w.GPUs[i].Peers)
	}
	return w
}

// Work puts all GPUs that CUDA shows this process to work, side by side, for some 6 s or about a minute, and returns what
// they have done. It tells what is known so far, each time that a GPU begins or ends a step, one call at a time. The
// library is as for Look.
//
// On each GPU it takes the context that the process would have anyway, and at most 128 MiB, less where little memory is
// free; and 64 MiB of pinned memory for each. All is given back at the end.
func Work(library string, long bool, tell func(Worked)) Worked {
	began := time.Now()
	l := &ledger{tell: tell}
	work(library, windowsOf(long), l)
	l.worked.Took = max(time.Since(began), 1) // 0 is for what is not done
	return l.worked
}
