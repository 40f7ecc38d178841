package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
)

// boundVersion is the version of the form that a bound has as JSON.
const boundVersion = 1

// bound is whether a rank is where it should be.
type bound struct {
	Version     int           `json:"version"`
	Host        string        `json:"host"`
	Rank        int           `json:"rank"`
	LocalRank   int           `json:"local_rank"`
	LocalRanks  int           `json:"local_ranks"`
	Place       binding.Place `json:"place"`
	Differences []string      `json:"differences"`
	Unread      string        `json:"not_read_back,omitempty"`
	unknown     bool          // for another reason than that this system lets nobody bind it
}

// checkBinding reads back where this process is, which its rank has started.
func (c *checking) checkBinding() error {
	b, err := boundBy(os.LookupEnv)
	if err != nil {
		return usage("%v", err)
	}
	if b.Host = roles.NodeName(os.LookupEnv); b.Host == "" {
		if b.Host, err = os.Hostname(); err != nil {
			return err
		}
	}
	found, err := b.Place.Differences(os.Getpid())
	if err != nil {
		b.Unread, b.unknown = err.Error(), !errors.Is(err, binding.ErrUnavailable)
	}
	b.Differences = append(append(b.Differences, found...), b.Place.Misled(os.LookupEnv)...)
	switch {
	case len(b.Differences) > 0:
		c.code = health.OutcomeOf(health.Check).Code
	case b.unknown:
		c.code = check.Nagios(check.Unknown)
	}
	return c.tell(b, b.text())
}

// boundBy reads what a rank is told of itself.
func boundBy(lookup func(string) (string, bool)) (b bound, err error) {
	b = bound{Version: boundVersion, Differences: []string{}}
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

// text is the bound for people.
func (b bound) text() string {
	word := "PASS"
	switch {
	case len(b.Differences) > 0:
		word = "FAIL"
	case b.unknown:
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
