package affinity

import (
	"slices"

	"github.com/bringupd/bringupd/internal/textutil"
)

// IDSet is a set of CPUs or NUMA nodes: their numbers in ascending order, without duplicates.
type IDSet []int

// maxID is the maximum number in a list. The kernel supports at most 8,192 CPUs (CONFIG_NR_CPUS)
// and 1,024 NUMA nodes.
const maxID = 8191

// ParseIDSet parses a list in the kernel's format, such as 0-3,8. The empty string is the empty
// set.
func ParseIDSet(list string) (IDSet, error) {
	return textutil.ParseRanges(list, maxID)
}

// newIDSet returns the set of these numbers, which need not be sorted or distinct.
func newIDSet(numbers []int) IDSet { return slices.Compact(slices.Sorted(slices.Values(numbers))) }

// String returns the set in the kernel's format, such as 0-3,8.
func (s IDSet) String() string { return textutil.FormatRanges(s) }

// MarshalText returns the set in the kernel's format, also for JSON.
func (s IDSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (s *IDSet) UnmarshalText(text []byte) (err error) {
	*s, err = ParseIDSet(string(text))
	return err
}

func (s IDSet) contains(number int) bool {
	_, found := slices.BinarySearch(s, number)
	return found
}

func (s IDSet) intersect(other IDSet) IDSet {
	return slices.DeleteFunc(slices.Clone(s), func(n int) bool { return !other.contains(n) })
}

func (s IDSet) subtract(other IDSet) IDSet {
	return slices.DeleteFunc(slices.Clone(s), other.contains)
}

func (s IDSet) union(other IDSet) IDSet { return newIDSet(slices.Concat(s, other)) }
