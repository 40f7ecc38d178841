package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Selector is one entry of CUDA_VISIBLE_DEVICES.
type Selector struct {
	Index int    // -1 where it's named by its UUID
	UUID  string // GPU-… or MIG-…; the beginning of one is enough
}

// String returns the entry as CUDA reads it.
func (s Selector) String() string {
	if s.UUID != "" {
		return s.UUID
	}
	return strconv.Itoa(s.Index)
}

// VisibleVariable lists the GPUs that CUDA shows.
const VisibleVariable = "CUDA_VISIBLE_DEVICES"

// noDevices is what Slurm sets where a task has no GPU.
const noDevices = "NoDevFiles"

// ParseVisible reads CUDA_VISIBLE_DEVICES, where it is set. It returns nil with an error only: an empty list is that
// there is to be no GPU. CUDA itself is silent about
// what it can't read, and leaves out that GPU and all after it; so is a -1 meant, which ends the list.
func ParseVisible(value string) ([]Selector, error) {
	visible := []Selector{}
	value = strings.TrimSpace(value)
	if value == "" || value == noDevices {
		return visible, nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		s, err := parseSelector(strings.TrimSpace(entry))
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot read %s=%s: %v", VisibleVariable, prose.Cut(value, shown), err)
		case s.UUID == "" && s.Index < 0:
			return visible, nil
		case slices.Contains(visible, s):
			return nil, fmt.Errorf("cannot read %s=%s: it has %s twice, and CUDA would show no GPU at all", VisibleVariable, prose.Cut(value, shown), s)
		}
		visible = append(visible, s)
	}
	return visible, nil
}

func parseSelector(entry string) (Selector, error) {
	if id := strings.ToUpper(entry); strings.HasPrefix(id, "GPU-") || strings.HasPrefix(id, "MIG-") {
		if len(id) == len("GPU-") {
			return Selector{}, fmt.Errorf("%q should go on with a UUID", entry)
		}
		return Selector{Index: -1, UUID: entry}, nil
	}
	index, err := strconv.Atoi(entry)
	switch {
	case entry == "":
		return Selector{}, fmt.Errorf("there is an empty entry between two commas")
	case err == nil && index >= -1:
		return Selector{Index: index}, nil
	case strings.Trim(entry, "0123456789-") == "":
		return Selector{}, fmt.Errorf("%q is no index, and CUDA knows no ranges: list each one, as in 0,1,2,3", entry)
	default:
		return Selector{}, fmt.Errorf("%q should be an index, or GPU-… or MIG-… with a UUID", prose.Cut(entry, shown))
	}
}

// shown is how many characters are shown of what somebody else has written.
const shown = 80

// Begins tells whether a UUID begins with what the entry has of one, in whatever case.
func (s Selector) Begins(uuid string) bool {
	return len(uuid) >= len(s.UUID) && strings.EqualFold(uuid[:len(s.UUID)], s.UUID)
}
