package pairs

import (
	"fmt"
	"testing"
)

// played are the transfers of a tournament of n, at the rate that rate tells of a pair.
func played(n, partners int, rate func(from, to int) float64) (all []Transfer) {
	for round := range Rounds(n, partners) {
		for node := range n {
			if partner := Partner(n, round, node); partner != node {
				all = append(all, Transfer{Way: TCP, Round: round, From: partner, To: node, Rate: rate(partner, node)})
			}
		}
	}
	return all
}

// usual is 10 GB/s but where one of these takes part, who reaches what is told of it.
func usual(slow map[int]float64) func(a, b int) float64 {
	return func(a, b int) float64 {
		rate := 10.
		for _, rank := range []int{a, b} {
			if at, ok := slow[rank]; ok {
				rate = min(rate, at)
			}
		}
		return rate
	}
}

func TestJudge(t *testing.T) {
	lost := func(all []Transfer, ranks ...int) []Transfer {
		for i, t := range all {
			for _, rank := range ranks {
				if t.From == rank {
					all[i].Rate, all[i].Err, all[i].Lost = 0, "refused", true
				} else if t.To == rank {
					all[i].Rate, all[i].Err = 0, "nobody came"
				}
			}
		}
		return all
	}
	for _, tc := range []struct {
		name  string
		all   []Transfer
		usual float64
		slow  string // ranks, and how many they were slow with
		odd   string
	}{
		{"nothing", nil, 0, "", ""},
		{"another way", []Transfer{{Way: Verbs, From: 0, To: 1, Rate: 10}}, 0, "", ""},
		{"two nodes have nobody to be compared with", played(2, 2, usual(map[int]float64{1: 1})), 1, "", ""},
		{"two nodes that can't meet", lost(played(2, 2, usual(nil)), 1), 0, "", "0-1 refused"},
		{"all alike", played(8, 2, usual(nil)), 10, "", ""},
		{"one of three", played(3, 2, usual(map[int]float64{1: 1})), 10, "1:2", ""},
		{"one of four", played(4, 2, usual(map[int]float64{3: 5.5})), 10, "3:2", ""},
		{"one of five", played(5, 2, usual(map[int]float64{0: 1})), 10, "0:2", ""},
		{"just not slow", played(8, 2, usual(map[int]float64{3: 6})), 10, "", ""},
		{"two of many", played(65, 2, usual(map[int]float64{3: 1, 40: 5})), 10, "3:3 40:3", ""},
		{"one of many, in six rounds", played(64, 6, usual(map[int]float64{3: 1})), 10, "3:6", ""},
		{"one way alone", played(8, 2, func(from, to int) float64 {
			if from == 5 {
				return 2
			}
			return 10
		}), 10, "5:2", ""},
		{"a pair", played(4, 3, func(from, to int) float64 {
			if from*to == 2 {
				return 2
			}
			return 10
		}), 10, "", "1-2 2"},
		{"slow with few of many", played(64, 6, func(from, to int) float64 {
			if (from == 9 || to == 9) && from+to < 45 {
				return 2
			}
			return 10
		}), 10, "", "3-9 2 9-16 2 9-28 2"},
		{"one that nobody meets", lost(played(8, 2, usual(nil)), 6), 10, "6:2 lost", ""},
		{"nobody meets anybody", lost(played(4, 2, usual(nil)), 0, 1, 2, 3), 0, "0:2 lost 1:2 lost 2:2 lost 3:2 lost", ""},
		{"one that tells nothing", func() (all []Transfer) {
			for _, one := range lost(played(5, 4, usual(nil)), 2) {
				if one.To != 2 {
					all = append(all, one)
				}
			}
			return all
		}(), 10, "2:4 lost", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := Judge(TCP, tc.all)
			slow, odd := "", ""
			for _, node := range j.Slow {
				slow += fmt.Sprintf(" %d:%d", node.Rank, len(node.With))
				if node.Lost() {
					slow += " lost"
				}
			}
			for _, pair := range j.Odd {
				if odd += fmt.Sprintf(" %d-%d", pair.A, pair.B); pair.Err != "" {
					odd += " " + pair.Err
				} else {
					odd += fmt.Sprintf(" %g", pair.Rate)
				}
			}
			if j.Usual != tc.usual || slow != "" && slow[1:] != tc.slow || slow == "" && tc.slow != "" || odd != "" && odd[1:] != tc.odd || odd == "" && tc.odd != "" {
				t.Errorf("usual %g, slow%s, odd%s", j.Usual, slow, odd)
			}
		})
	}
}
