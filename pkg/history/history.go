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

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// ID is the ID of the check that reports changes.
const ID = "host.history"

// Version is the version of the JSON format of a Record.
const Version = 1

const (
	// Records is the number of records of a host that are read. Each record contains the ones before
	// it. The second and third are needed for runs that ended at the same time and have not read each
	// other's records.
	Records = 3
	// window is the number of runs on the node for which a suspicion is kept.
	window = 10
	// mostDevices limits the devices in a record. A node has about 16 GPUs and as many network cards
	// at most. The devices seen last are kept.
	mostDevices = 64
	// mostOf limits the entries of one device in a record, and mostWords their length in characters.
	mostOf    = 16
	mostWords = 300
)

// Device is a GPU or a network card, in the state in which it was last seen.
type Device struct {
	ID    string `json:"id"`   // a GPU's UUID or a card's node GUID; it does not depend on the slot
	Name  string `json:"name"` // only for a card: mlx5_0
	Index int    `json:"index"`
	Bus   string `json:"bus"` // PCI address as in sysfs: 0000:3b:00.0
	Model string `json:"model,omitempty"`
	Run   string `json:"run,omitempty"` // the last run that has seen the device
	// Rows is the number of rows of a GPU's memory that were replaced so far.
	Rows     gpu.Reading[int] `json:"remapped_rows"`
	Course   *Course          `json:"course,omitempty"` // nil if there are no counters
	Findings []Finding        `json:"findings,omitempty"`
	Events   []Happened       `json:"events,omitempty"`
}

// Finding is a problem of the device that a check has found.
type Finding struct {
	ID       string        `json:"id"`
	Verdict  check.Verdict `json:"verdict"`
	Class    check.Class   `json:"class"`
	Observed string        `json:"observed"`
}

// Happened counts the events of one kind of a GPU during a job.
type Happened struct {
	Kind   string     `json:"kind"` // for example "xid 79" or "lost"
	Effect gpu.Effect `json:"effect"`
	Next   gpu.Next   `json:"next"`
	Times  int        `json:"times"`
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
	Runs    []string  `json:"runs"` // this run and the earlier ones that Suspicions refer to, newest first
	// Devices are the devices of the node, including those that only an earlier run has seen.
	Devices    []Device    `json:"devices"`
	Suspicions []Suspicion `json:"suspicions,omitempty"`
}

// Read merges the newest records of a host, given newest first. Invalid records, and those of
// another version, are ignored. Without any record the result is the zero Record.
func Read(texts [][]byte) Record {
	// Decode the records.
	var records []Record
	for _, text := range texts {
		var r Record
		if json.Unmarshal(text, &r) == nil && r.Version == Version {
			records = append(records, r.clean())
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
				if _, known := all.device(d.ID); !known && (d.Run == r.Run) == own {
					all.Devices = append(all.Devices, d)
				}
			}
		}
	}
	return all.bounded()
}

// clean removes control characters from texts that a person may have edited, and limits their
// length.
func (r Record) clean() Record {
	for i, d := range r.Devices {
		for _, words := range []*string{&d.ID, &d.Name, &d.Bus, &d.Model, &d.Run} {
			*words = prose.Line(*words, mostWords)
		}
		r.Devices[i] = d
	}
	for i, s := range r.Suspicions {
		for _, words := range []*string{&s.Run, &s.Kind, &s.What} {
			*words = prose.Line(*words, mostWords)
		}
		r.Suspicions[i] = s
	}
	return r
}

// bounded removes duplicates and limits the sizes. The newest runs are kept.
func (r Record) bounded() Record {
	r.Runs = distinct(r.Runs, func(run string) string { return run })
	r.Runs = r.Runs[:min(len(r.Runs), window)]
	r.Suspicions = distinct(r.Suspicions, Suspicion.key)
	r.Suspicions = slices.DeleteFunc(r.Suspicions, func(s Suspicion) bool { return !slices.Contains(r.Runs, s.Run) })
	r.Devices = r.Devices[:min(len(r.Devices), mostDevices)]
	return r
}

// key returns a key that is equal for equal suspicions.
func (s Suspicion) key() string { return s.Run + "\n" + s.Device + "\n" + s.Kind }

// distinct removes duplicates. The first of equal elements is kept.
func distinct[T any](all []T, key func(T) string) []T {
	seen := make(map[string]bool)
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool {
		again := seen[key(one)]
		seen[key(one)] = true
		return again
	})
}

// device returns the device with that ID.
func (r Record) device(id string) (Device, bool) {
	at := slices.IndexFunc(r.Devices, func(d Device) bool { return d.ID == id })
	if at < 0 {
		return Device{}, false
	}
	return r.Devices[at], true
}

// gpu reports whether the device is a GPU: NVIDIA's UUIDs have this prefix.
func (d Device) gpu() bool { return strings.HasPrefix(d.ID, "GPU-") }

// Device returns the identity of the device for messages.
func (d Device) Device() check.Device {
	if !d.gpu() {
		return check.Device{Index: -1, Name: d.Name, UUID: d.ID, Bus: d.Bus}
	}
	return check.Device{Index: d.Index, UUID: d.ID, Bus: d.Bus}
}

// News is a change of a device since an earlier run.
type News struct {
	Device check.Device
	What   string
}

// News returns the changes on a node that now has the given devices. slots are the PCI addresses of
// all GPUs on the bus, including those that this process may not use. A GPU is reported as missing
// only if slots is not empty and does not contain its address: another job may have it.
func (r Record) News(now []Device, slots []string) (news []News) {
	tell := func(d Device, format string, args ...any) {
		news = append(news, News{Device: d.Device(), What: fmt.Sprintf(format, args...)})
	}
	at := make(map[string]Device) // present devices by PCI address
	for _, d := range now {
		at[d.Bus] = d
	}
	// Compare the devices that are present with their last state.
	for _, d := range now {
		was, known := r.device(d.ID)
		rows, told := d.Rows.Get()
		before, toldBefore := was.Rows.Get()
		if known && was.Bus != d.Bus {
			tell(d, "it is in another place than in run %s: it was at %s", was.Run, was.Bus)
		}
		if known && told && toldBefore && rows > before {
			tell(d, "%d %s of its memory were replaced since run %s: %d now", rows-before, prose.Noun(rows-before, "row"), was.Run, rows)
		}
	}
	// Look for devices that have been replaced or removed.
	for _, was := range r.Devices {
		if slices.ContainsFunc(now, func(d Device) bool { return d.ID == was.ID }) {
			continue
		}
		switch d, taken := at[was.Bus]; {
		case taken && d.gpu() == was.gpu():
			tell(d, "it is another one than in run %s: %s, which was %s", was.Run, d.ID, was.ID)
		case was.gpu() && len(slots) > 0 && !slices.Contains(slots, was.Bus):
			tell(was, "it is gone: it was there in run %s", was.Run)
		}
	}
	return news
}

// Next returns the record of a run that has seen the given devices and found the given suspicions.
// A device that it has not seen stays in the record unless it was replaced or removed: another job
// may have it.
func (r Record) Next(run string, at time.Time, now []Device, slots []string, found []Suspicion) Record {
	next := Record{Version: Version, Run: run, At: at, Runs: append([]string{run}, r.Runs...)}
	taken := make(map[string]bool)
	for _, d := range now {
		d.Run = run
		taken[d.ID], taken[d.Bus] = true, true
		next.Devices = append(next.Devices, d)
	}
	for _, was := range r.Devices {
		gone := was.gpu() && len(slots) > 0 && !slices.Contains(slots, was.Bus)
		if !taken[was.ID] && !taken[was.Bus] && !gone {
			next.Devices = append(next.Devices, was)
		}
	}
	next.Suspicions = append(slices.Clone(found), r.Suspicions...)
	return next.bounded()
}
