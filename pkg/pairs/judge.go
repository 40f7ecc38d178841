package pairs

import (
	"cmp"
	"maps"
	"slices"
)

// Way is what is transferred over.
type Way string

// The ways.
const (
	TCP   Way = "tcp"
	Verbs Way = "verbs" // perftest's ib_write_bw
)

// Transfer is what came from one node to another in one round, as the receiver tells.
type Transfer struct {
	Way   Way     `json:"way"`
	Round int     `json:"round"`
	From  int     `json:"from"`                // a rank
	To    int     `json:"to"`                  // likewise
	Rate  float64 `json:"gb_per_s"`            // GB/s, of 10^9 bytes; 0: nothing came
	Err   string  `json:"error,omitempty"`     // why not
	Lost  bool    `json:"unreached,omitempty"` // From could not even be reached
}

// Pair is two nodes that have met, with what came the slower way between them.
type Pair struct {
	A, B int     // ranks, the lower one first
	Rate float64 // GB/s; 0: nothing came
	Err  string  // why not
	Lost bool    // one could not reach the other
}

// Other is the partner of one of the two.
func (p Pair) Other(rank int) int { return p.A + p.B - rank }

// Node is one that is slow, with those that it was slow with, in the order of the rounds.
type Node struct {
	Rank int
	With []Pair
}

// Lost tells whether it met none of them.
func (n Node) Lost() bool {
	return !slices.ContainsFunc(n.With, func(p Pair) bool { return !p.Lost })
}

// Judgement is what the transfers of one way have shown.
type Judgement struct {
	Pairs []Pair // all that have met
	Nodes []int  // their ranks
	// Usual is the median of what each node has reached with its best partner, in GB/s. Unlike that of all transfers, it
	// is not moved by one slow node of three, who is in two of three pairs. DLRover takes a node's best time, too.
	Usual float64
	Slow  []Node
	Odd   []Pair // slow, or without a transfer, and nobody is to be blamed
}

// SlowPart is the part of the usual rate below which a pair is slow. DLRover takes half (see the package): twice the
// median time. Transfers of a second that share their switches with others vary less than half, and a node at 60 % is
// worth a look: it is a little more, ours, and not proven on a large network.
const SlowPart = 0.6

// blamed is how many partners a node must be slow with, at least: with one, it may as well be the partner.
const blamed = 2

// Judge tells who is slow on one way: who is slow, or not to be met, with two partners at least, and with more than half
// of all that it met. A pair that is slow without such a node in it is told as a pair.
func Judge(way Way, transfers []Transfer) (j Judgement) {
	j.Pairs = pairsOf(way, transfers)
	met, best := make(map[int]int), make(map[int]float64)
	for _, p := range j.Pairs {
		for _, rank := range []int{p.A, p.B} {
			met[rank]++
			best[rank] = max(best[rank], p.Rate)
		}
	}
	j.Nodes = slices.Sorted(maps.Keys(met))
	j.Usual = median(slices.Collect(maps.Values(best)))
	with := make(map[int][]Pair)
	for _, p := range j.Pairs {
		if p.Rate < SlowPart*j.Usual || p.Err != "" {
			with[p.A], with[p.B] = append(with[p.A], p), append(with[p.B], p)
		}
	}
	isSlow := func(rank int) bool { return len(with[rank]) >= blamed && 2*len(with[rank]) > met[rank] }
	for _, rank := range j.Nodes {
		if isSlow(rank) {
			j.Slow = append(j.Slow, Node{rank, with[rank]})
			continue
		}
		for _, p := range with[rank] {
			if p.A == rank && !isSlow(p.B) {
				j.Odd = append(j.Odd, p)
			}
		}
	}
	return j
}

// pairsOf brings both ways between two nodes together, in the order of the rounds.
func pairsOf(way Way, transfers []Transfer) (all []Pair) {
	at := make(map[[2]int]int)
	inRounds := slices.SortedStableFunc(slices.Values(transfers), func(a, b Transfer) int { return cmp.Compare(a.Round, b.Round) })
	for _, t := range inRounds {
		if t.Way != way {
			continue
		}
		two := [2]int{min(t.From, t.To), max(t.From, t.To)}
		i, known := at[two]
		if !known {
			i = len(all)
			at[two] = i
			all = append(all, Pair{A: two[0], B: two[1], Rate: t.Rate})
		}
		p := &all[i]
		p.Rate = min(p.Rate, t.Rate)
		if p.Err == "" || t.Lost && !p.Lost { // who could not reach the other knows why the other saw nothing
			p.Err = cmp.Or(t.Err, p.Err)
		}
		p.Lost = p.Lost || t.Lost
	}
	return all
}

// median is 0 of none.
func median(all []float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
