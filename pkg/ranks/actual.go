package ranks

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// ActualBindingVersion is the version of the JSON format of [ActualBinding]. New fields do not change
// it; removed fields and changed meanings do.
const ActualBindingVersion = 1

// ActualBinding compares the actual binding of a rank (CPUs, devices) with its planned binding.
type ActualBinding struct {
	Version     int               `json:"version"`
	Host        string            `json:"host"`
	Rank        int               `json:"rank"`
	LocalRank   int               `json:"local_rank"`
	LocalRanks  int               `json:"local_ranks"`
	Place       affinity.Affinity `json:"place"`
	Differences []string          `json:"differences"`
	ReadError   string            `json:"not_read_back,omitempty"` // why it is unknown
}

// ReadActualBinding compares the actual binding of a process with the planned one, which lookup
// reads from the environment of the process. It returns an error if the environment contains no
// rank or no binding. If the actual binding cannot be read, it sets ReadError instead.
func ReadActualBinding(pid int, lookup func(name string) (value string, set bool)) (ActualBinding, error) {
	b, err := bindingFromEnv(lookup)
	if err != nil {
		return b, err
	}
	difference, err := b.Place.CompareProcess(pid)
	if err != nil {
		b.ReadError = err.Error()
	}
	if difference != "" {
		b.Differences = append(b.Differences, difference)
	}
	b.Differences = append(b.Differences, b.Place.DescribeConflicts(lookup)...)
	return b, nil
}

func bindingFromEnv(lookup func(string) (string, bool)) (b ActualBinding, err error) {
	b = ActualBinding{Version: ActualBindingVersion, Differences: []string{}}
	for _, one := range []struct {
		name string
		to   *int
	}{{"BRINGUPD_RANK", &b.Rank}, {"BRINGUPD_LOCAL_RANK", &b.LocalRank}, {"BRINGUPD_LOCAL_RANKS", &b.LocalRanks}} {
		value, _ := lookup(one.name)
		if value == "" {
			return b, missingVariableError(one.name)
		}
		if *one.to, err = strconv.Atoi(value); err != nil {
			return b, fmt.Errorf("cannot read %s=%s: it should be a number", one.name, value)
		}
	}
	place, _ := lookup(affinity.EnvVariable)
	if place == "" {
		return b, missingVariableError(affinity.EnvVariable)
	}
	b.Place, err = affinity.ParseAffinity(place)
	return b, err
}

func missingVariableError(variable string) error {
	return fmt.Errorf("cannot check the binding of this process: %s is not set; "+
		"run it inside a rank, for example: srun bringupd --ranks-per-node=gpu -- bringupd check --bind", variable)
}

// FormatText returns the result as text for users: a line with PASS, FAIL or UNKNOWN, then one line
// per difference and note.
func (b ActualBinding) FormatText() string {
	word := "PASS"
	switch {
	case len(b.Differences) > 0:
		word = "FAIL"
	case b.ReadError != "":
		word = "UNKNOWN"
	}
	lines := append([]string{fmt.Sprintf("%s rank %d (%d of %d on %s): %v", word, b.Rank, b.LocalRank,
		b.LocalRanks, b.Host, b.Place)}, b.Differences...)
	if b.ReadError != "" {
		lines = append(lines, b.ReadError)
	}
	if b.Place.Note != "" {
		lines = append(lines, "note: "+b.Place.Note)
	}
	return strings.Join(lines, "\n  ") + "\n"
}
