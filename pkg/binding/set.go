package binding

import (
	"slices"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Set is a set of CPUs or memory nodes: their numbers in ascending order, without duplicates.
type Set []int

// mostNumber is the maximum number in a list. The kernel supports at most 8,192 CPUs
// (CONFIG_NR_CPUS) and 1,024 memory nodes.
const mostNumber = 8191

// ParseSet parses a list in the kernel's format, such as 0-3,8. The empty string is the empty set.
func ParseSet(list string) (Set, error) {
	return prose.ParseRanges(list, mostNumber)
}

// newSet returns the set of these numbers, which need not be sorted or distinct.
func newSet(numbers []int) Set { return slices.Compact(slices.Sorted(slices.Values(numbers))) }

// String returns the set in the kernel's format, such as 0-3,8.
func (s Set) String() string { return prose.Ranges(s) }

// MarshalText returns the set in the kernel's format, also for JSON.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (s *Set) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSet(string(text))
	return err
}

// has reports whether the set contains a number.
func (s Set) has(number int) bool {
	_, found := slices.BinarySearch(s, number)
	return found
}

// and returns the intersection of the sets.
func (s Set) and(other Set) Set {
	return slices.DeleteFunc(slices.Clone(s), func(n int) bool { return !other.has(n) })
}

// without returns the elements of s that are not in other.
func (s Set) without(other Set) Set {
	return slices.DeleteFunc(slices.Clone(s), other.has)
}

// or returns the union of the sets.
func (s Set) or(other Set) Set { return newSet(slices.Concat(s, other)) }
