package gpu

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
)

// EventKind is the type of an event.
type EventKind string

// The kinds.
const (
	KindXid       EventKind = "xid"       // the driver has reported an error
	KindRecovery  EventKind = "recovery"  // the GPU requests an action (field 230)
	KindLost      EventKind = "lost"      // the GPU does not answer any more
	KindLink      EventKind = "link"      // active NVLinks went down after an Xid; Detail names them
	KindC2C       EventKind = "c2c"       // the GPU's link to the CPU went down after an Xid
	KindUnwatched EventKind = "unwatched" // the driver does not report this GPU's events
	// for long, the watch had no output, or a call for this GPU has not returned: the driver may hang
	KindSilent    EventKind = "silent"
	KindRestarted EventKind = "again" // the watch has died and was restarted
)

// Event is an event of a GPU, or of the watch, during a job.
type Event struct {
	At   time.Time `json:"at"`
	Kind EventKind `json:"kind"`
	// number of the Xid, 999 if the driver cannot name it
	Xid      int    `json:"xid,omitempty"`
	GPU      int    `json:"gpu"` // index; -1 if unknown
	UUID     string `json:"uuid,omitempty"`
	Bus      string `json:"bus,omitempty"`      // in the format of sysfs: 0000:3b:00.0
	Recovery int    `json:"recovery,omitempty"` // for KindRecovery: field 230
	Detail   string `json:"detail,omitempty"`
	// for a repeated event: how often since the last report
	Count int `json:"count,omitempty"`
}

// Device returns the GPU that the event is about.
func (e Event) Device() check.Device {
	return check.Device{Index: e.GPU, UUID: e.UUID, Bus: e.Bus}
}

// ClassifiedEvent is an event with its classification: its effects on the job and on the next one.
type ClassifiedEvent struct {
	Event
	EventVerdict
}

// DecodeEvent decodes the event in a record; ok is false if the record has none, or an invalid one.
func DecodeEvent(record json.RawMessage) (j ClassifiedEvent, ok bool) {
	ok = len(record) > 0 && json.Unmarshal(record, &j) == nil
	return j, ok
}

// ToFinding returns the event in the form of a failed check, as the command that drains a node
// expects it.
func (j ClassifiedEvent) ToFinding() check.Finding {
	device, what := j.Device(), j.Meaning
	if j.Kind == KindXid {
		what = fmt.Sprintf("Xid %d: %s", j.Xid, j.Meaning)
	}
	return check.Finding{ID: "gpu." + string(j.Kind), Device: &device, Verdict: check.Fail,
		Class: check.ClassNode, Observed: what, Hint: j.Action}
}

// kindVerdicts are the classifications of events that depend on their kind alone.
var kindVerdicts = map[EventKind]EventVerdict{
	KindLost: {EffectFatal, NextUnfit,
		"drain the node, and reboot it; if it recurs, check the GPU's seating and power", "the GPU is lost"},
	KindLink: {EffectFatal, NextUnfit,
		"drain the node, and reset the GPUs of the fabric; if it recurs, test the link and its peer",
		"NVLinks that were active have gone down"},
	KindC2C: {EffectFatal, NextUnfit,
		"drain the node, and reset the GPU; if it recurs, replace the GPU (RMA)",
		"the link to the CPU (C2C) has gone down"},
	KindUnwatched: {EffectWarn, NextFit,
		"a failure of this GPU is now noticed only if the job's program fails", "cannot watch the events of this GPU"},
	KindSilent: {EffectWarn, NextFit,
		"check whether nvidia-smi responds on the node: if not, reboot it",
		"the NVIDIA driver does not respond: it may hang"},
	KindRestarted: {EffectWarn, NextFit, "nothing", "the GPU watcher ended and is restarted"},
}

// RecoveryActions maps the values of nvmlDeviceGpuRecoveryAction_t, except 0 (none), to their
// classifications. No new job may start on a GPU that requests any of them.
//
// Which actions can wait for the end of the job follows from NVIDIA's documentation (nvidia-smi's
// manual, "GPU Recovery Action"). With 1 all processes must be terminated, and with 2 no
// application can be started again. With 3 applications should be stopped "when convenient"; DCGM
// also only warns. With 4 existing work that was not affected may continue. With 5 the driver
// refuses new memory of the fabric, and itself ends the processes that have imported some
// (open-gpu-kernel-modules, imex_session_api.c). Drivers have 5 since version 575, but DCGM's range
// check drops it. 6 and 7 come with NVML 615 and are documented by their names only; they are
// handled like 1 and 2.
var RecoveryActions = map[int]EventVerdict{
	1: {EffectFatal, NextUnfit,
		"drain the node, and reset the GPU (nvidia-smi --gpu-reset)", "the GPU requests a reset"},
	2: {EffectFatal, NextUnfit,
		"drain the node, and reboot it", "the GPU requests a reboot of the node"},
	3: {EffectWarn, NextUnfit, "drain the node, and stop the programs that use the GPU over NVLink",
		"the GPU requests that all traffic from other GPUs stops"},
	4: {EffectWarn, NextUnfit,
		"drain the node, stop the programs on all of its GPUs, and reset this one after the job",
		"the GPU requests a drain and a reset"},
	5: {EffectWarn, NextUnfit,
		"drain the node, and recover the IMEX domain " +
			"(nvidia-imex-ctl; restart nvidia-imex on its nodes)",
		"the GPU requests a recovery of its IMEX domain"},
	6: {EffectFatal, NextUnfit, "drain the node, and reset the GPU's PCIe bus, or reboot the node",
		"the GPU requests a reset of its PCIe bus"},
	7: {EffectFatal, NextUnfit,
		"drain the node, and reboot it", "the GPU requests a reboot of the system"},
}

// ClassifyEvent returns an event with its effects on this job and on the next one, its meaning, and
// the action that an operator must take.
func ClassifyEvent(e Event) ClassifiedEvent {
	verdict, known := kindVerdicts[e.Kind]
	switch {
	case e.Kind == KindXid:
		verdict = lookUpXid(e.Xid)
		if verdict.Effect == EffectAsk {
			verdict.Effect = EffectWarn // the watch polls the GPU, and reports another event if it must end the job
		}
	case e.Kind == KindRecovery:
		verdict = recoveryVerdict(e.Recovery)
	case e.Kind == KindLost && e.Detail == string(ResetRequired):
		verdict.Action, verdict.Meaning = "drain the node, and reset the GPU", "the GPU is unusable until it is reset"
	case !known:
		verdict = EventVerdict{EffectWarn, NextFit, "nothing",
			"an event of an unknown kind: " + string(e.Kind)}
	}
	return ClassifiedEvent{e, verdict}
}

// recoveryVerdict returns the effects of a recovery action that a GPU requests. An action that is
// not in RecoveryActions is fatal. (DCGM, in contrast, drops the values that it does not know, such
// as 5.)
func recoveryVerdict(recovery int) EventVerdict {
	if recovery == 0 {
		return EventVerdict{EffectIgnore, NextFit, "nothing", "the GPU requests no action"}
	}
	if known, ok := RecoveryActions[recovery]; ok {
		return known
	}
	return EventVerdict{EffectFatal, NextUnfit, "drain the node, and see nvidia-smi -q: GPU Recovery Action",
		fmt.Sprintf("the GPU requests the recovery action %d", recovery)}
}

// String returns one line for a log or a terminal: which GPU, what happened, and what to do.
func (j ClassifiedEvent) String() string {
	var b strings.Builder
	switch {
	case j.GPU >= 0:
		b.WriteString(j.Device().String() + ": ")
	case j.Kind != KindRestarted && j.Kind != KindSilent: // these are about all GPUs
		b.WriteString("an unknown GPU: ")
	}
	if j.Kind == KindXid {
		fmt.Fprintf(&b, "Xid %d: ", j.Xid)
	}
	b.WriteString(j.Meaning)
	// Append the details, the number of repetitions and what to do.
	if j.Detail != "" {
		fmt.Fprintf(&b, " (%s)", j.Detail)
	}
	if j.Count > 1 {
		fmt.Fprintf(&b, ", repeated %d times", j.Count)
	}
	if j.Action != "" && j.Action != "nothing" {
		fmt.Fprintf(&b, "; %s", j.Action)
	}
	return b.String()
}

// A new event is reported at once, and repetitions of it at intervals that double from
// minRepeatInterval to maxRepeatInterval: an error in a loop occurs a thousand times a second.
const (
	minRepeatInterval = 10 * time.Second
	maxRepeatInterval = 10 * time.Minute

	// maximum number of different events that are tracked; 16 GPUs have far fewer
	maxTrackedEvents = 4096
)

// RepeatFilter limits how often repeated events are reported. Its zero value is ready for use. It
// is not safe for concurrent use.
type RepeatFilter struct{ seen map[Event]*repeatState }

type repeatState struct {
	suppressed int
	nextReport time.Time
	interval   time.Duration
}

// repeatKey returns the event without the fields that differ between repetitions.
func (e Event) repeatKey() Event {
	e.At, e.Count = time.Time{}, 0
	if e.UUID != "" {
		e.Bus = ""
	}
	return e
}

// FilterEvent reports whether an event should be reported now. If it is a repetition, Count of the
// returned event is the number of repetitions since the last report. Once too many different events
// are tracked, all new ones count as repetitions of one event.
func (d *RepeatFilter) FilterEvent(e Event, now time.Time) (Event, bool) {
	if d.seen == nil {
		d.seen = map[Event]*repeatState{}
	}
	key := e.repeatKey()
	if d.seen[key] == nil && len(d.seen) >= maxTrackedEvents {
		key = Event{}
	}
	was := d.seen[key]
	if was == nil {
		d.seen[key] = &repeatState{nextReport: now.Add(minRepeatInterval), interval: minRepeatInterval}
		return e, true
	}
	was.suppressed += max(e.Count, 1)
	if now.Before(was.nextReport) {
		return Event{}, false
	}
	e.Count, was.suppressed = was.suppressed, 0
	was.interval = min(2*was.interval, maxRepeatInterval)
	was.nextReport = now.Add(was.interval)
	return e, true
}

const xidCatalogue = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"

// Effect is the effect of an event on the running job.
type Effect string

// The effects.
const (
	EffectFatal Effect = "fatal" // the job ends, because it cannot use the GPU any more
	// depends on the GPU's recovery action or the state of its links
	EffectAsk Effect = "ask"
	// probably an error of the user's program: its outcome decides, and the Xid is reported with it
	EffectApp    Effect = "app"
	EffectWarn   Effect = "warn"   // reported, and the job continues
	EffectIgnore Effect = "ignore" // not reported
)

// NextJobFitness is whether the GPU may be used by the next job.
type NextJobFitness string

// The values of Next.
const (
	NextFit   NextJobFitness = "fit"   // the GPU may be used by another job
	NextUnfit NextJobFitness = "unfit" // not until an administrator acts
)

// EventVerdict is the classification of an Xid, or of another event.
type EventVerdict struct {
	Effect  Effect         `json:"effect"`
	Next    NextJobFitness `json:"next,omitempty"`
	Action  string         `json:"action,omitempty"`  // the action that an operator must take
	Meaning string         `json:"meaning,omitempty"` // a description of the event
}

//go:embed xid.tsv
var xidTableData string

// xidTable maps Xids to their classification, as xid.tsv has it.
var xidTable = sync.OnceValue(func() map[int]EventVerdict {
	table := make(map[int]EventVerdict)
	for line := range strings.Lines(xidTableData) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		xid, verdict, err := parseXidLine(line)
		if err != nil {
			panic("internal error: " + err.Error()) // a test makes sure that it can be parsed
		}
		table[xid] = verdict
	}
	return table
})

func parseXidLine(line string) (xid int, verdict EventVerdict, err error) {
	fields := strings.Split(line, "\t")
	if len(fields) != 5 {
		return 0, verdict, fmt.Errorf("cannot use %q: it has %d fields, expected 5", line, len(fields))
	}
	xid, err = strconv.Atoi(fields[0])
	return xid, EventVerdict{Effect(fields[1]), NextJobFitness(fields[2]), fields[3], fields[4]}, err
}

// maxXid is the maximum Xid; the known ones are below 200, and 999 stands for an error that the
// driver cannot name.
const maxXid = 65535

// lookUpXid returns the classification of an Xid. An Xid that is not in the table is a warning.
func lookUpXid(xid int) EventVerdict {
	if verdict, known := xidTable()[xid]; known {
		return verdict
	}
	return EventVerdict{EffectWarn, NextFit, "see " + xidCatalogue, "not in the table of Xids"}
}
