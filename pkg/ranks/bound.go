package ranks

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/binding"
)

// BoundVersion is the version of the form that a Bound has as JSON, as LayoutVersion.
const BoundVersion = 1

// Bound is whether a rank is where it should be.
type Bound struct {
	Version     int           `json:"version"`
	Host        string        `json:"host"`
	Rank        int           `json:"rank"`
	LocalRank   int           `json:"local_rank"`
	LocalRanks  int           `json:"local_ranks"`
	Place       binding.Place `json:"place"`
	Differences []string      `json:"differences"`
	Unread      string        `json:"not_read_back,omitempty"`
	// Unknown is whether it could not be read back, for another reason than that this
	// system lets nobody bind it.
	Unknown bool `json:"-"`
}

// ReadBack reads back where a process is that was told what lookup finds. The error is that
// this tells of no rank, or of no place.
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

// boundBy reads what a rank is told of itself.
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

func noRank(variable string) error {
	return fmt.Errorf("cannot tell where this process should be: %s is not set; "+
		"run it inside a rank, as in: srun bringupd --ranks-per-node=gpu -- bringupd check --bind", variable)
}

// Text is it for people.
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
