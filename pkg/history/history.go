// Package history is what the GPUs and network cards of a node have gone through in earlier jobs: what of it is new, what
// makes a device suspicious, and what is told when a job ends. It is policy over data alone: pkg/signal keeps the data.
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

// ID is that of the check that tells what is new.
const ID = "host.history"

// Version is the version of the form that a Record has as JSON.
const Version = 1

const (
	// Records is how many records of a host are read. Each has what came before, and the second and third are for runs
	// that ended at the same time, of which none has read the other's.
	Records = 3
	// window is how many runs on the node a suspicion is remembered for.
	window = 10
	// mostDevices bounds a record: a node has at most some 16 GPUs and as many cards. What was seen last is kept.
	mostDevices = 64
	// mostOf bounds what a record has of one device, and mostWords what each says, in characters.
	mostOf    = 16
	mostWords = 300
)

// Device is a GPU or a network card, as it was last seen.
type Device struct {
	ID    string `json:"id"`   // a GPU's UUID, a card's node GUID: it stays the same wherever the device is put
	Name  string `json:"name"` // of a card: mlx5_0
	Index int    `json:"index"`
	Bus   string `json:"bus"` // PCI address, as sysfs has it: 0000:3b:00.0
	Model string `json:"model,omitempty"`
	Run   string `json:"run,omitempty"` // the last one that has seen it
	// Rows are the rows of a GPU's memory that were replaced so far.
	Rows     gpu.Reading[int] `json:"remapped_rows"`
	Course   *Course          `json:"course,omitempty"` // nil where nothing was counted
	Findings []Finding        `json:"findings,omitempty"`
	Events   []Happened       `json:"events,omitempty"`
}

// Finding is what a check has said of the device that is wrong with it.
type Finding struct {
	ID       string        `json:"id"`
	Verdict  check.Verdict `json:"verdict"`
	Class    check.Class   `json:"class"`
	Observed string        `json:"observed"`
}

// Happened is what befell a GPU while a job ran, and how often.
type Happened struct {
	Kind   string     `json:"kind"` // xid 79, lost
	Effect gpu.Effect `json:"effect"`
	Next   gpu.Next   `json:"next"`
	Times  int        `json:"times"`
}

// Suspicion is that something may be wrong with a device, for what one run has seen.
type Suspicion struct {
	Run    string    `json:"run"`
	At     time.Time `json:"at"`
	Device string    `json:"device"` // its ID
	Kind   string    `json:"kind"`   // the check's ID, xid 79, throttled, link down
	What   string    `json:"what"`
}

// Record is what a run leaves for later ones: what it has seen, and what is remembered of those before.
type Record struct {
	Version int       `json:"version"`
	Run     string    `json:"run"`
	At      time.Time `json:"at"`
	Runs    []string  `json:"runs"` // this one, and those before it, which Suspicions are of
	// Devices are those of the node, also such that only an earlier run has seen.
	Devices    []Device    `json:"devices"`
	Suspicions []Suspicion `json:"suspicions,omitempty"`
}

// Read makes one of the newest records of a host, the newest first. What is no record of this version is passed over; of
// no record the zero Record is made.
func Read(texts [][]byte) Record {
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
	all := records[0]
	for _, r := range records[1:] {
		all.Runs = append(all.Runs, r.Runs...)
		all.Suspicions = append(all.Suspicions, r.Suspicions...)
	}
	// A run knows best what it has seen itself.
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

// clean makes plain words of what a person may have edited.
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

// bounded has of the runs the newest, and nothing twice.
func (r Record) bounded() Record {
	r.Runs = distinct(r.Runs, func(run string) string { return run })
	r.Runs = r.Runs[:min(len(r.Runs), window)]
	r.Suspicions = distinct(r.Suspicions, Suspicion.key)
	r.Suspicions = slices.DeleteFunc(r.Suspicions, func(s Suspicion) bool { return !slices.Contains(r.Runs, s.Run) })
	r.Devices = r.Devices[:min(len(r.Devices), mostDevices)]
	return r
}

func (s Suspicion) key() string { return s.Run + "\n" + s.Device + "\n" + s.Kind }

// distinct has the first of those that are the same.
func distinct[T any](all []T, key func(T) string) []T {
	seen := make(map[string]bool)
	return slices.DeleteFunc(slices.Clone(all), func(one T) bool {
		again := seen[key(one)]
		seen[key(one)] = true
		return again
	})
}

func (r Record) device(id string) (Device, bool) {
	at := slices.IndexFunc(r.Devices, func(d Device) bool { return d.ID == id })
	if at < 0 {
		return Device{}, false
	}
	return r.Devices[at], true
}

// gpu tells a GPU from a card: NVIDIA's UUIDs begin so.
func (d Device) gpu() bool { return strings.HasPrefix(d.ID, "GPU-") }

// Device is how messages speak of it.
func (d Device) Device() check.Device {
	if !d.gpu() {
		return check.Device{Index: -1, Name: d.Name, UUID: d.ID, Bus: d.Bus}
	}
	return check.Device{Index: d.Index, UUID: d.ID, Bus: d.Bus}
}

// News is what is new about a device since an earlier run.
type News struct {
	Device check.Device
	What   string
}

// News is what is new on a node that has these devices. Slots are the addresses of the GPUs that its bus has, whoever may
// use them; without any, and where another job may have a GPU, none is missed.
func (r Record) News(now []Device, slots []string) (news []News) {
	tell := func(d Device, format string, args ...any) {
		news = append(news, News{Device: d.Device(), What: fmt.Sprintf(format, args...)})
	}
	at := make(map[string]Device) // what is there, by its address
	for _, d := range now {
		at[d.Bus] = d
	}
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

// Next is what a run leaves that has seen these devices, and found those suspicions. What it has not seen is remembered
// as long as its place may still be there: another job may have it.
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
