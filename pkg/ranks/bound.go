package ranks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/binding"
)

// BoundVersion is the version of the JSON format of [Bound], like [LayoutVersion].
const BoundVersion = 1

// A Bound compares the actual binding of a rank (CPUs, memory, devices) with its planned binding.
type Bound struct {
	Version     int           `json:"version"`
	Host        string        `json:"host"`
	Rank        int           `json:"rank"`
	LocalRank   int           `json:"local_rank"`
	LocalRanks  int           `json:"local_ranks"`
	Place       binding.Place `json:"place"`
	Differences []string      `json:"differences"`
	Unread      string        `json:"not_read_back,omitempty"`
	// Unknown is set if the rank's binding could not be read, except if this system does not permit
	// binding at all.
	Unknown bool `json:"-"`
}

// ReadBack compares the actual binding of a process with the planned one, which lookup reads from
// the environment of the process. It returns an error if the environment contains no rank or no
// binding. If the actual binding cannot be read, it sets Unread instead.
func ReadBack(pid int, lookup func(name string) (value string, set bool)) (Bound, error) {
	b, err := boundBy(lookup)
	if err != nil {
		return b, err
	}
	found, err := b.Place.Differences(pid)
	if err != nil {
		b.Unread, b.Unknown = err.Error(), !errors.Is(err, binding.ErrUnavailable)
	}
	b.Differences = append(append(b.Differences, found...), b.Place.Misled(lookup)...)
	return b, nil
}

// boundBy returns a Bound with the rank, its local number and its planned binding, as found in the
// environment of the rank.
func boundBy(lookup func(string) (string, bool)) (b Bound, err error) {
	b = Bound{Version: BoundVersion, Differences: []string{}}
	for _, one := range []struct {
		name string
		to   *int
	}{{"BRINGUPD_RANK", &b.Rank}, {"BRINGUPD_LOCAL_RANK", &b.LocalRank}, {"BRINGUPD_LOCAL_RANKS", &b.LocalRanks}} {
		value, _ := lookup(one.name)
		if value == "" {
			return b, noRank(one.name)
		}
		if *one.to, err = strconv.Atoi(value); err != nil {
			return b, fmt.Errorf("cannot read %s=%s: it should be a number", one.name, value)
		}
	}
	place, _ := lookup(binding.Variable)
	if place == "" {
		return b, noRank(binding.Variable)
	}
	b.Place, err = binding.ParsePlace(place)
	return b, err
}

// noRank returns the error for an environment that lacks a variable.
func noRank(variable string) error {
	return fmt.Errorf("cannot tell where this process should be: %s is not set; "+
		"run it inside a rank, as in: srun bringupd --ranks-per-node=gpu -- bringupd check --bind", variable)
}

// Text returns the result as text for users: a line with PASS, FAIL or UNKNOWN, then one line per
// difference and note.
func (b Bound) Text() string {
	word := "PASS"
	switch {
	case len(b.Differences) > 0:
		word = "FAIL"
	case b.Unknown:
		word = "UNKNOWN"
	}
	lines := append([]string{fmt.Sprintf("%s rank %d (%d of %d on %s): %v", word, b.Rank, b.LocalRank, b.LocalRanks, b.Host, b.Place)}, b.Differences...)
	if b.Unread != "" {
		lines = append(lines, b.Unread)
	}
	if b.Place.Note != "" {
		lines = append(lines, "it has "+b.Place.Note)
	}
	return strings.Join(lines, "\n  ") + "\n"
}
