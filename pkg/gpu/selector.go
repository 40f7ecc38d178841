package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Selector is one entry of CUDA_VISIBLE_DEVICES.
type Selector struct {
	Index int    // -1 if the entry is a UUID
	UUID  string // GPU-… or MIG-…; a prefix is sufficient
}

// String returns the entry in CUDA's format.
func (s Selector) String() string {
	if s.UUID != "" {
		return s.UUID
	}
	return strconv.Itoa(s.Index)
}

// VisibleDevicesVariable is the environment variable that lists the GPUs that CUDA shows.
const VisibleDevicesVariable = "CUDA_VISIBLE_DEVICES"

// noDevices is the value that Slurm sets for a task without GPUs.
const noDevices = "NoDevFiles"

// ParseVisibleDevices parses the value of CUDA_VISIBLE_DEVICES. It must not be called if the
// variable is not set. The result is nil only if there is an error; an empty list means that the
// process must not use any GPU. An entry -1 ends the list. CUDA itself does not report an invalid
// entry, but ignores it and all entries after it.
func ParseVisibleDevices(value string) ([]Selector, error) {
	visible := []Selector{}
	value = strings.TrimSpace(value)
	if value == "" || value == noDevices {
		return visible, nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		s, err := parseSelector(strings.TrimSpace(entry))
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot use %s=%s: %v", VisibleDevicesVariable,
				textutil.TruncateText(value, maxShownText), err)
		case s.UUID == "" && s.Index < 0:
			return visible, nil
		case slices.Contains(visible, s):
			return nil, fmt.Errorf("cannot use %s=%s: it lists %s twice, so CUDA would "+
				"show no GPU at all", VisibleDevicesVariable, textutil.TruncateText(value, maxShownText), s)
		}
		visible = append(visible, s)
	}
	return visible, nil
}

func parseSelector(entry string) (Selector, error) {
	if id := strings.ToUpper(entry); strings.HasPrefix(id, "GPU-") || strings.HasPrefix(id, "MIG-") {
		if len(id) == len("GPU-") {
			return Selector{}, fmt.Errorf("the UUID after %q is missing", entry)
		}
		return Selector{Index: -1, UUID: entry}, nil
	}
	index, err := strconv.Atoi(entry)
	switch {
	case entry == "":
		return Selector{}, fmt.Errorf("it has an empty entry between two commas")
	case err == nil && index >= -1:
		return Selector{Index: index}, nil
	case strings.Trim(entry, "0123456789-") == "":
		return Selector{}, fmt.Errorf("%q is not an index; CUDA does not accept ranges: list them as 0,1,2,3", entry)
	default:
		return Selector{}, fmt.Errorf("%q is not an index or a UUID (GPU-… or MIG-…)",
			textutil.TruncateText(entry, maxShownText))
	}
}

// maxShownText is the maximum number of characters of a text from another program in a message.
const maxShownText = 80

// MatchesPrefix reports whether a UUID begins with the UUID of the entry, which may be a prefix,
// ignoring case.
func (s Selector) MatchesPrefix(uuid string) bool {
	return len(uuid) >= len(s.UUID) && strings.EqualFold(uuid[:len(s.UUID)], s.UUID)
}
