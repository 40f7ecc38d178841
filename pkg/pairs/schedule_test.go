package pairs

import (
	"fmt"
	"testing"
)

func TestRounds(t *testing.T) {
	for _, tc := range []struct{ n, partners, want int }{
		{0, 2, 0}, {1, 2, 0}, {2, 2, 1}, {3, 2, 3}, {4, 2, 2}, {4, 6, 3}, {5, 2, 3}, {5, 6, 5}, {100, 2, 2}, {101, 6, 7},
	} {
		if got := Rounds(tc.n, tc.partners); got != tc.want {
			t.Errorf("%d nodes that meet %d have %d rounds, and not %d", tc.n, tc.partners, got, tc.want)
		}
	}
}

// Everybody meets everybody once in a whole tournament, and in each of its rounds who is met meets.
func TestTournament(t *testing.T) {
	for n := range 70 {
		met := make(map[string]int)
		for round := range Rounds(n, n) {
			resting := 0
			for node := range n {
				partner := Partner(n, round, node)
				switch {
				case partner < 0 || partner >= n || Partner(n, round, partner) != node:
					t.Fatalf("of %d in round %d, %d meets %d, who doesn't", n, round, node, partner)
				case partner == node:
					resting++
				default:
					met[fmt.Sprint(min(node, partner), max(node, partner))]++
				}
			}
			if resting != n%2 {
				t.Errorf("of %d in round %d, %d rest", n, round, resting)
			}
		}
		if len(met) != n*(n-1)/2 {
			t.Errorf("%d nodes have met in %d pairs", n, len(met))
		}
		for pair, times := range met {
			if times != 2 { // as seen from both
				t.Errorf("of %d, %s have met %d times", n, pair, times/2)
			}
		}
	}
}

// Where few rounds are played, everybody has two partners, and they are far apart.
func TestFewRounds(t *testing.T) {
	for n := 3; n < 300; n++ {
		near := 0
		for node := range n {
			met := make(map[int]bool)
			var partners []int
			for round := range Rounds(n, 2) {
				if partner := Partner(n, round, node); partner != node {
					met[partner], partners = true, append(partners, partner)
				}
			}
			if len(met) < 2 {
				t.Errorf("node %d of %d meets %v", node, n, met)
			} else if apart := max(partners[0], partners[1]) - min(partners[0], partners[1]); n >= 64 && apart < 16 {
				near++
			}
		}
		if near > 4 {
			t.Errorf("of %d, %d meet two that are near each other", n, near)
		}
	}
}
