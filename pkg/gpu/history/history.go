// Package history evaluates the history of a node's GPUs and network cards in earlier jobs: changes
// since the last job, repeated problems of a device, and counters worth a report at the end of a
// job. It only works on data. pkg/signal stores the records.
package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// CheckID is the ID of the check that reports changes.
const CheckID = "host.history"

// Version is the version of the JSON format of a Record.
const Version = 1

const (
	// MaxRecords is the number of records of a host that are read. Each record contains the ones
	// before it. The second and third are needed for runs that ended at the same time and have not
	// read each other's records.
	MaxRecords = 3
	// suspicionWindow is the number of runs on the node for which a suspicion is kept.
	suspicionWindow = 10
	// maxDevices limits the devices in a record. A node has about 16 GPUs and as many network cards
	// at most. The devices seen last are kept.
	maxDevices = 64
	// maxEntries limits the entries of one device in a record, and maxTextLength their length in
	// characters.
	maxEntries    = 16
	maxTextLength = 300
)

// Device is a GPU or a network card, in the state in which it was last seen.
type Device struct {
	ID    string `json:"id"`   // a GPU's UUID or a card's node GUID; it does not depend on the slot
	Name  string `json:"name"` // only for a card: mlx5_0
	Index int    `json:"index"`
	Bus   string `json:"bus"` // PCI address as in sysfs: 0000:3b:00.0
	Model string `json:"model,omitempty"`
	Run   string `json:"run,omitempty"` // the last run that has seen the device
	// RemappedRows is the number of rows of a GPU's memory that were replaced so far.
	RemappedRows gpu.Reading[int] `json:"remapped_rows"`
	Counters     *Counters        `json:"course,omitempty"` // nil if there are no counters
	Findings     []Finding        `json:"findings,omitempty"`
	Events       []EventCount     `json:"events,omitempty"`
}

// Finding is a problem of the device that a check has found.
type Finding struct {
	ID       string        `json:"id"`
	Verdict  check.Verdict `json:"verdict"`
	Class    check.Class   `json:"class"`
	Observed string        `json:"observed"`
}

// EventCount counts the events of one kind of a GPU during a job.
type EventCount struct {
	Kind   string             `json:"kind"` // for example "xid 79" or "lost"
	Effect gpu.Effect         `json:"effect"`
	Next   gpu.NextJobFitness `json:"next"`
	Count  int                `json:"times"`
}

// Suspicion is a sign of a fault of a device, observed in one run.
type Suspicion struct {
	Run    string    `json:"run"`
	At     time.Time `json:"at"`
	Device string    `json:"device"` // ID of the device
	Kind   string    `json:"kind"`   // ID of the check, "xid 79", "throttled" or "link down"
	What   string    `json:"what"`
}

// Record is the record that a run leaves for later ones: its own observations, and those of earlier
// runs.
type Record struct {
	Version int       `json:"version"`
	Run     string    `json:"run"`
	At      time.Time `json:"at"`
	// this run and the earlier ones that Suspicions refer to, newest first
	Runs []string `json:"runs"`
	// Devices are the devices of the node, including those that only an earlier run has seen.
	Devices    []Device    `json:"devices"`
	Suspicions []Suspicion `json:"suspicions,omitempty"`
}

// MergeRecords merges the newest records of a host, given newest first. Invalid records, and those
// of another version, are ignored. Without any record the result is the zero Record.
func MergeRecords(texts [][]byte) Record {
	// Decode the records.
	var records []Record
	for _, text := range texts {
		var r Record
		if json.Unmarshal(text, &r) == nil && r.Version == Version {
			records = append(records, r.cleanTexts())
		}
	}
	if len(records) == 0 {
		return Record{}
	}
	// Merge the runs and suspicions. The newest record comes first.
	all := records[0]
	for _, r := range records[1:] {
		all.Runs = append(all.Runs, r.Runs...)
		all.Suspicions = append(all.Suspicions, r.Suspicions...)
	}
	// Prefer the state of a device that a run has seen itself to a copy from an earlier record.
	all.Devices = nil
	for _, own := range []bool{true, false} {
		for _, r := range records {
			for _, d := range r.Devices {
				if _, known := all.findDevice(d.ID); !known && (d.Run == r.Run) == own {
					all.Devices = append(all.Devices, d)
				}
			}
		}
	}
	return all.withinLimits()
}

// cleanTexts removes control characters from texts that a person may have edited, and limits their
// length.
func (r Record) cleanTexts() Record {
	for i, d := range r.Devices {
		for _, words := range []*string{&d.ID, &d.Name, &d.Bus, &d.Model, &d.Run} {
			*words = textutil.SingleLine(*words, maxTextLength)
		}
		r.Devices[i] = d
	}
	for i, s := range r.Suspicions {
		for _, words := range []*string{&s.Run, &s.Kind, &s.What} {
			*words = textutil.SingleLine(*words, maxTextLength)
		}
		r.Suspicions[i] = s
	}
	return r
}

// withinLimits removes duplicates and limits the sizes. The newest runs are kept.
func (r Record) withinLimits() Record {
	r.Runs = removeDuplicates(r.Runs, func(run string) string { return run })
	r.Runs = r.Runs[:min(len(r.Runs), suspicionWindow)]
	r.Suspicions = removeDuplicates(r.Suspicions, Suspicion.identityKey)
	r.Suspicions = slices.DeleteFunc(r.Suspicions, func(s Suspicion) bool { return !slices.Contains(r.Runs, s.Run) })
	r.Devices = r.Devices[:min(len(r.Devices), maxDevices)]
	return r
}

// identityKey returns a key that is equal for equal suspicions.
func (s Suspicion) identityKey() string { return s.Run + "\n" + s.Device + "\n" + s.Kind }

// removeDuplicates removes duplicates. The first of equal elements is kept.
func removeDuplicates[T any](all []T, key func(T) string) []T {
	seen := make(map[string]bool)
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool {
		again := seen[key(one)]
		seen[key(one)] = true
		return again
	})
}

// findDevice returns the device with that ID.
func (r Record) findDevice(id string) (Device, bool) {
	at := slices.IndexFunc(r.Devices, func(d Device) bool { return d.ID == id })
	if at < 0 {
		return Device{}, false
	}
	return r.Devices[at], true
}

// isGPU reports whether the device is a GPU: NVIDIA's UUIDs have this prefix.
func (d Device) isGPU() bool { return strings.HasPrefix(d.ID, "GPU-") }

// CheckDevice returns the identity of the device for messages.
func (d Device) CheckDevice() check.Device {
	if !d.isGPU() {
		return check.Device{Index: -1, Name: d.Name, UUID: d.ID, Bus: d.Bus}
	}
	return check.Device{Index: d.Index, UUID: d.ID, Bus: d.Bus}
}

// Change is a change of a device since an earlier run.
type Change struct {
	Device check.Device
	What   string
}

// Changes returns the changes on a node that now has the given devices. slots are the PCI addresses
// of all GPUs on the bus, including those that this process may not use. A GPU is reported as
// missing only if slots is not empty and does not contain its address: another job may have it.
func (r Record) Changes(now []Device, slots []string) (news []Change) {
	tell := func(d Device, format string, args ...any) {
		news = append(news, Change{Device: d.CheckDevice(), What: fmt.Sprintf(format, args...)})
	}
	at := make(map[string]Device) // present devices by PCI address
	for _, d := range now {
		at[d.Bus] = d
	}
	// Compare the devices that are present with their last state.
	for _, d := range now {
		was, known := r.findDevice(d.ID)
		rows, told := d.RemappedRows.Get()
		before, toldBefore := was.RemappedRows.Get()
		if known && was.Bus != d.Bus {
			tell(d, "moved since run %s: it was at %s", was.Run, was.Bus)
		}
		if known && told && toldBefore && rows > before {
			tell(d, "%d more memory %s remapped since run %s: now %d", rows-before, textutil.PluralForm(rows-before, "row"), was.Run, rows)
		}
	}
	// Look for devices that have been replaced or removed.
	for _, was := range r.Devices {
		if slices.ContainsFunc(now, func(d Device) bool { return d.ID == was.ID }) {
			continue
		}
		switch d, taken := at[was.Bus]; {
		case taken && d.isGPU() == was.isGPU():
			tell(d, "replaced since run %s: now %s, was %s", was.Run, d.ID, was.ID)
		case was.isGPU() && len(slots) > 0 && !slices.Contains(slots, was.Bus):
			tell(was, "missing: it was present in run %s", was.Run)
		}
	}
	return news
}

// NextRecord returns the record of a run that has seen the given devices and found the given
// suspicions. A device that it has not seen stays in the record unless it was replaced or removed:
// another job may have it.
func (r Record) NextRecord(run string, at time.Time, now []Device, slots []string, found []Suspicion) Record {
	next := Record{Version: Version, Run: run, At: at, Runs: append([]string{run}, r.Runs...)}
	taken := make(map[string]bool)
	for _, d := range now {
		d.Run = run
		taken[d.ID], taken[d.Bus] = true, true
		next.Devices = append(next.Devices, d)
	}
	for _, was := range r.Devices {
		gone := was.isGPU() && len(slots) > 0 && !slices.Contains(slots, was.Bus)
		if !taken[was.ID] && !taken[was.Bus] && !gone {
			next.Devices = append(next.Devices, was)
		}
	}
	next.Suspicions = append(slices.Clone(found), r.Suspicions...)
	return next.withinLimits()
}
