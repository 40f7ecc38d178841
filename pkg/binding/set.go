package binding

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Set is a set of CPUs, or of memory nodes: their numbers, each once and in order.
type Set []int

// mostNumber bounds what a list may name: the kernel knows of 8,192 CPUs at most (CONFIG_NR_CPUS), and of 1,024 memory
// nodes.
const mostNumber = 8191

// ParseSet reads a list as the kernel writes it: 0-3,8; the empty string is the empty set.
func ParseSet(list string) (Set, error) {
	return prose.ParseRanges(list, mostNumber)
}

// newSet is the set of these numbers.
func newSet(numbers []int) Set { return slices.Compact(slices.Sorted(slices.Values(numbers))) }

// String returns the set as the kernel writes it: 0-3,8.
func (s Set) String() string { return prose.Ranges(s) }

// MarshalText writes it so into JSON.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (s *Set) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSet(string(text))
	return err
}

func (s Set) has(number int) bool {
	_, found := slices.BinarySearch(s, number)
	return found
}

// and is what both have.
func (s Set) and(other Set) Set {
	return slices.DeleteFunc(slices.Clone(s), func(n int) bool { return !other.has(n) })
}

// without is what the other lacks.
func (s Set) without(other Set) Set {
	return slices.DeleteFunc(slices.Clone(s), other.has)
}

// or is what either has.
func (s Set) or(other Set) Set { return newSet(slices.Concat(s, other)) }
