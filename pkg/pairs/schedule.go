package pairs

// Rounds returns how many rounds n nodes have, where each is to meet so many partners. It is one more where n is odd, for
// one node rests in each round then; and no more than a tournament has, in which everybody meets everybody once.
func Rounds(n, partners int) int {
	if n < 2 {
		return 0
	}
	return min(partners+n%2, seats(n)-1)
}

// Partner returns whom a node of n, numbered from 0, meets in a round, from 0 on: another one in each round, and each
// meets who meets it. It is the node itself where that rests.
//
// It is the circle method of round-robin tournaments: one node keeps its seat, and the others move around the table, by
// one a round. Here they move by a long step, for nodes with numbers that are near are often on one switch: two partners
// that are slow by one cause would put the blame on who met both.
func Partner(n, round, node int) int {
	around := seats(n) - 1 // who moves; their sums modulo this tell who meets
	if around < 1 {
		return node
	}
	sum := round * step(around) % around
	last, partner := around, (sum-node+around)%around
	switch {
	case node == last: // meets whom nobody else meets: it would meet itself
		partner = halved(sum, around)
	case partner == node:
		partner = last
	}
	if partner >= n {
		return node
	}
	return partner
}

// seats is n, with an empty seat where n is odd: who meets that rests.
func seats(n int) int { return n + n%2 }

// halved is half of a number modulo an odd one.
func halved(number, modulo int) int {
	if number%2 != 0 {
		number += modulo
	}
	return number / 2
}

// step is one that comes by all of so many before it comes back: it has no divisor in common with them. It is near the
// golden section, by which few steps are spread well.
func step(around int) int {
	step := max(1, around*382/1000)
	for divisor(step, around) != 1 {
		step++
	}
	return step
}

func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
