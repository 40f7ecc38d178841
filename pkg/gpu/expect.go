package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Expect is what there should be on a node.
type Expect struct {
	// Count is how many GPUs the job should have here; -1 where nobody says. An instance of a GPU that is cut up (MIG)
	// counts as one, as it does for Slurm.
	Count     int
	CountFrom string // the flag or the variable that says so

	Visible  []Selector // by CUDA_VISIBLE_DEVICES; nil: all of them, empty: none
	PCIOrder bool       // CUDA_DEVICE_ORDER=PCI_BUS_ID: the indices are NVML's

	WholeGPUs bool // the job can do nothing with a part of a GPU
	Mode      check.Mode
	Environ   []string // that the driver is to have; nil: not known
	// Signs are those that Present finds on this node.
	Signs []string
}

// ParseExpected returns what there should be by the number of GPUs that are granted to this node (-1: not told; from
// names the flag or the variable), and by the environment. The mode, the signs and whether a part of a GPU would do are
// the caller's to add.
func ParseExpected(granted int, from string, environ []string) (Expect, error) {
	e := Expect{Count: granted, CountFrom: from, Environ: environ}
	order, _ := process.LookupEnv(environ, "CUDA_DEVICE_ORDER")
	e.PCIOrder = order == "PCI_BUS_ID"
	value, set := process.LookupEnv(environ, visibleVariable)
	if !set {
		return e, nil
	}
	var err error
	if e.Visible, err = parseVisible(value); err != nil {
		return Expect{}, err
	}
	if granted < 0 {
		e.Count, e.CountFrom = len(e.Visible), visibleVariable
	}
	return e, nil
}

// Needed tells whether the job can't do without GPUs, as far as anybody says.
func (e Expect) Needed() bool {
	return e.Count > 0 || len(e.Visible) > 0 || e.Mode == check.ModeRequire || e.Mode == check.ModeStrict
}

// forgone tells whether somebody says that the job has no GPU.
func (e Expect) forgone() bool { return e.Count == 0 && !e.Needed() }

// from names who says how many GPUs there should be.
func (e Expect) from() string { return cmp.Or(e.CountFrom, "expected") }

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

const visibleVariable = "CUDA_VISIBLE_DEVICES"

// noDevices is what Slurm sets where a task has no GPU.
const noDevices = "NoDevFiles"

// parseVisible reads CUDA_VISIBLE_DEVICES, where it is set: never nil without an error. CUDA itself is silent about
// what it can't read, and leaves out that GPU and all after it; so is a -1 meant, which ends the list.
func parseVisible(value string) ([]Selector, error) {
	visible := []Selector{}
	value = strings.TrimSpace(value)
	if value == "" || value == noDevices {
		return visible, nil
	}
	for entry := range strings.SplitSeq(value, ",") {
		s, err := parseSelector(strings.TrimSpace(entry))
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot read %s=%s: %v", visibleVariable, prose.Cut(value, shown), err)
		case s.UUID == "" && s.Index < 0:
			return visible, nil
		case slices.Contains(visible, s):
			return nil, fmt.Errorf("cannot read %s=%s: it has %s twice, and CUDA would show no GPU at all", visibleVariable, prose.Cut(value, shown), s)
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
