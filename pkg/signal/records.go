package signal

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Version is the version of every record's form. A reader refuses a newer one.
const Version = 1

// Header opens every record: which attempt it belongs to and who wrote it.
type Header struct {
	Version int       `json:"v"`
	Nonce   string    `json:"nonce"` // drawn by the head for this attempt
	Rank    int       `json:"rank"`
	Host    string    `json:"host"`
	At      time.Time `json:"at"` // the writer's wall clock, for people only
}

func (h *Header) header() *Header { return h }

// Record is anything with a Header that can be published.
type Record interface{ header() *Header }

// HeaderOf returns what opens a record; its version is 0 where it was not read.
func HeaderOf(rec Record) Header { return *rec.header() }

// Job is the attempt: what everybody must know to take part in it.
type Job struct {
	Header
	Run       string   `json:"run"`       // the run directory's name
	Key       string   `json:"key"`       // facts of the launch that all its ranks share
	Size      int      `json:"size"`      // number of nodes
	Digest    string   `json:"digest"`    // of the configuration, the same on all nodes
	Addresses []string `json:"addresses"` // where the head can be reached, best first
	Program   string   `json:"program"`   // version of the head's bringupd
	PID       int      `json:"pid"`
	// Hosts are those of all ranks in their order, as a node list; empty where
	// the launcher does not tell.
	Hosts string `json:"hosts,omitempty"`
	// Launcher is what started the daemons, and LaunchID the job's name there.
	Launcher string `json:"launcher,omitempty"`
	LaunchID string `json:"launch_id,omitempty"`
	// FileSystem is what the log directory lies on, as the head sees it.
	FileSystem string `json:"share"`
	// SandboxStep says that the gate waits for sandboxes of another step.
	SandboxStep bool `json:"sandbox_step,omitempty"`
	// Lifeline is where workers may connect to the head, best first; empty
	// where they can't.
	Lifeline []string `json:"lifeline,omitempty"`
	// Plan is for who looks from outside; nil where an older head made it.
	Plan *Plan `json:"plan,omitempty"`
}

// Plan is what is going to be done, for people: no daemon reads it.
type Plan struct {
	Framework string `json:"framework"`
	// Steps are those of join, check, sandbox, head, workers and driver that
	// there are in this job, in the order of the sequence.
	Steps []string `json:"steps"`
	// Deadlines are how long a step may take: join from the head's start, and
	// of check, sandbox, head and workers each node's own, from where it begins.
	Deadlines map[string]time.Duration `json:"deadlines_ns"`
	// Need is how many nodes the driver needs; less than there are where some
	// of them are spares.
	Need int `json:"need"`
	// Sandboxes says how many the gate needs: all, any, head or a number.
	Sandboxes string `json:"sandboxes,omitempty"`
	// Driver is the first word of the driver, without where it is.
	Driver string `json:"driver,omitempty"`
	// World says that the driver runs in ranks on all nodes.
	World bool `json:"world,omitempty"`
	// Rest is the longest pause between two beats of a head that is well; 0 where
	// an older head does not tell.
	Rest time.Duration `json:"rest_ns,omitempty"`
}

// JoinedRecord echoes the canary: who wrote it has read the job and can write.
type JoinedRecord struct {
	Header
	Canary  string `json:"canary"` // the job's nonce
	Address string `json:"address,omitempty"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	// Seen is how long after the daemon's start the run directory was seen, and
	// Answer how long it took from there to this record.
	Seen   time.Duration `json:"seen_ns"`
	Answer time.Duration `json:"answer_ns"`
	// Waited says that the daemon had looked before, and not seen it.
	Waited bool `json:"waited"`
}

// State is a record whose name says all.
type State struct {
	Header
}

// CheckedRecord is what the checks of a node have said.
type CheckedRecord struct {
	Header
	Report json.RawMessage `json:"report,omitempty"` // pkg/check's; nothing where there were none
}

// EventRecord is something that befell a node and ended nothing, for who looks
// for the cause of what came after.
type EventRecord struct {
	Header
	What   string          `json:"what"`             // the sentence for people
	Detail json.RawMessage `json:"detail,omitempty"` // pkg/gpu's event
	Times  int             `json:"times,omitempty"`  // where it came more than once
}

// HeadRecord tells where the head's service is.
type HeadRecord struct {
	Header
	Address string            `json:"address,omitempty"`
	Env     map[string]string `json:"env,omitempty"` // for workers and the driver
	// Dashboard is the URL of its pages, as the head's node reaches them.
	Dashboard string `json:"dashboard,omitempty"`
}

// TeamRecord says which of the nodes the driver gets, where there are more than
// it needs. The newest generation counts.
type TeamRecord struct {
	Header
	Generation int           `json:"generation"`
	Members    []Member      `json:"members"` // by their place in the team
	Dropped    []DroppedRank `json:"dropped,omitempty"`
}

// Member is a node's place in the team.
type Member struct {
	Rank int `json:"rank"` // in the launch
	// Since is the generation from which on the member's place and the team's
	// size are what they are: what runs there from before was told others.
	Since int `json:"since,omitempty"`
}

// Place returns the place of a rank of the launch in the team; -1 where it has
// none.
func (t *TeamRecord) Place(rank int) int {
	return slices.IndexFunc(t.Members, func(m Member) bool { return m.Rank == rank })
}

// DroppedRank is a node that the team does without, because something is wrong
// with it.
type DroppedRank struct {
	Rank int    `json:"rank"`
	Host string `json:"host,omitempty"`
	Why  string `json:"why"`
}

// FailedRecord is a cause, as the node saw it that saw it first.
type FailedRecord struct {
	Header
	Kind   string `json:"kind"`             // health names the kinds
	Phase  string `json:"phase"`            // of the sequence
	What   string `json:"what"`             // the sentence for people
	Child  string `json:"child,omitempty"`  // the child that died
	Code   int    `json:"code,omitempty"`   // its exit code; without a child, 126 or 127 as a shell has it
	Signal string `json:"signal,omitempty"` // or the signal that ended it
	ChildEnd
	Log   string   `json:"log,omitempty"`   // where its output is, in Logs
	Lines []string `json:"lines,omitempty"` // the last lines of it
	// WorldRank is the rank of the job's world that it is about; nil where it is
	// about none. Header.Rank is the node's.
	WorldRank *WorldRank `json:"world_rank,omitempty"`
	// Lost are the ranks that this rank misses, where it misses any.
	Lost []int `json:"lost,omitempty"`
	// Report is what the checks of the node have said, where one of them failed.
	Report json.RawMessage `json:"report,omitempty"`
	// Age is how long before the record was written the thing happened, on the
	// writer's own monotonic clock: no reader's clock is compared with it.
	Age time.Duration `json:"age_ns,omitempty"`
	// Seen is when it happened, where that is still to become an age; zero in
	// a record that was read.
	Seen time.Time `json:"-"`
}

// ChildEnd is how a child has ended, besides its code.
type ChildEnd struct {
	Exit string `json:"exit,omitempty"` // in words; empty where it has not ended
	OOM  *OOM   `json:"oom,omitempty"`  // where the kernel ended processes meanwhile
}

// WorldRank is a rank of the job's world, as people look for it.
type WorldRank struct {
	Number int    `json:"number"`
	GPUs   string `json:"gpus,omitempty"` // of the node, by index: "2" or "4-7"; empty where it has none of its own
	// Symptom is what makes it look as if it had failed because of another process,
	// as its last lines have it; empty where nothing does.
	Symptom string `json:"symptom,omitempty"`
}

// String is how messages speak of it: "rank 12".
func (w WorldRank) String() string { return fmt.Sprintf("rank %d", w.Number) }

// Cards is how messages speak of its GPUs: "GPU 2", "GPUs 4-7"; empty where it has none.
func (w WorldRank) Cards() string {
	switch {
	case w.GPUs == "":
		return ""
	case strings.ContainsAny(w.GPUs, ",-"):
		return "GPUs " + w.GPUs
	default:
		return "GPU " + w.GPUs
	}
}

// OOM is what the kernel's count says of processes that it ended because memory
// ran out.
type OOM struct {
	Kills  int    `json:"kills"`
	Limit  int64  `json:"limit_bytes,omitempty"` // the least that holds there; 0 where there is none
	Cgroup string `json:"cgroup"`
}

// RanksRecord says which ranks of a world run where: so many on each node of the team,
// numbered in that order, which pkg/ranks names.
type RanksRecord struct {
	Header
	Order   string `json:"order,omitempty"`
	PerNode []int  `json:"per_node"`
	// Slots is how many ranks each node may have, those that are spawned later too.
	Slots []int `json:"slots"`
	// Hosts are those of the nodes.
	Hosts []string `json:"hosts"`
	// Master is the address of the node of rank 0, and MasterPort a port there that is
	// kept for it.
	Master     string `json:"master"`
	MasterPort int    `json:"master_port"`
}

// EndedRecord says how the ranks of a node have ended, by their numbers.
type EndedRecord struct {
	Header
	Exits []RankExit `json:"exits"`
}

// RankExit is how a rank has ended.
type RankExit struct {
	Rank int    `json:"rank"` // of the world
	Code int    `json:"code"` // 128+n where signal n has ended it
	Exit string `json:"exit"` // the same in words
}

// AbortRecord is the end with a cause: the verdict, and with it the job's code.
type AbortRecord struct {
	Header
	Code  int          `json:"code"`
	Word  string       `json:"word"`
	Cause FailedRecord `json:"cause"`
	// Nodes are the hosts to stay away from, where nodes are to blame.
	Nodes []string `json:"bad_nodes,omitempty"`
	// NextAttempt is the attempt that follows; 0 where none does.
	NextAttempt int `json:"next_attempt,omitempty"`
}

// DrainRecord is the orderly end, or that it will come so when all that stays for a look has stayed for Look.
type DrainRecord struct {
	Header
	Code int           `json:"code"` // the job's: the driver's own
	Why  string        `json:"why"`
	Look time.Duration `json:"look_ns,omitempty"`
}

// DoneRecord says that nothing of ours runs on the node any more.
type DoneRecord struct {
	Header
	Left []string `json:"left,omitempty"` // what would not die
	// Share is what the node's daemon had asked of the share until then.
	Share *Stats `json:"share,omitempty"`
}

// Result is how it all ended.
type Result struct {
	Header
	Run   string        `json:"run"`
	Size  int           `json:"size"`
	Code  int           `json:"code"`
	Word  string        `json:"word"`
	Why   string        `json:"why"`
	Cause *FailedRecord `json:"cause,omitempty"`
	Circumstances
	Nodes []string `json:"bad_nodes,omitempty"`
	Cast
	Course
	Share *ShareReport `json:"share,omitempty"`
	// Lifelines is nil where there were none.
	Lifelines *LifelineReport `json:"lifelines,omitempty"`
	// Requeue is what was decided, where a failed job was to be tried again.
	Requeue *Requeue `json:"requeue,omitempty"`
	// NextAttempt is the attempt that follows within this launch; 0 where none does.
	NextAttempt int `json:"next_attempt,omitempty"`
}

// Circumstances are what surrounds a cause.
type Circumstances struct {
	// AtPhase is the phase that the sequence was in when it failed, and
	// AfterGate how long the gate had been open then, by the head's clock.
	AtPhase   string        `json:"at_phase,omitempty"`
	AfterGate time.Duration `json:"after_gate_ns,omitempty"`
	// Consequences are the other failures, without their last lines, and not
	// more of them than a record bears.
	Consequences []FailedRecord `json:"consequences,omitempty"`
	Advice       []string       `json:"advice,omitempty"` // what to do next, for people
	// Events befell nodes while the driver ran, and ended nothing.
	Events []EventRecord `json:"events,omitempty"`
}

// Cast is who took part. Team are the ranks that the driver got, by their place,
// where there were spares; Dropped those with which something was wrong.
type Cast struct {
	Hosts   []string      `json:"hosts,omitempty"`
	Team    []int         `json:"team,omitempty"`
	Dropped []DroppedRank `json:"dropped,omitempty"`
}

// Course is how long it took.
type Course struct {
	Took    time.Duration `json:"took_ns"`          // start of the head to here
	ToGate  time.Duration `json:"to_gate_ns"`       // start of the head to the gate; 0 where it never opened
	Program string        `json:"program"`          // version of bringupd
	Phases  []PhaseTime   `json:"phases,omitempty"` // as the head went through them
}

// Requeue is whether the job is to be started anew. It was decided before the
// launcher was asked: what that said is in the log.
type Requeue struct {
	Wanted bool   `json:"wanted"`
	Why    string `json:"why"`
}

// LifelineReport is what the head has seen of its lifelines.
type LifelineReport struct {
	Reconnects int `json:"reconnects"` // of ranks that had been connected before
	// Strangers are connections that were not let in, by what was wrong with
	// them.
	Strangers map[string]int `json:"strangers,omitempty"`
}

// ShareReport is what the head knows of the share. What each of the others has
// asked of it is in its DoneRecord.
type ShareReport struct {
	Head Stats `json:"head"` // what the head had asked until the result was written
	// RoundTrips are the canary's, by a few ranks: how late records are seen.
	RoundTrips []RoundTrip `json:"round_trips,omitempty"`
}

// RoundTrip is the time from the moment when the head had published the job to
// the one when it saw the rank's answer, less what the rank took to answer: two
// records' way, and the pauses between looks that they met.
type RoundTrip struct {
	Rank int           `json:"rank"`
	Took time.Duration `json:"took_ns"`
}

// PhaseTime is how long a phase took on the node that tells.
type PhaseTime struct {
	Phase string        `json:"phase"`
	Took  time.Duration `json:"took_ns"`
}

// encode fills the record's header and returns its JSON, one line.
func (d *Dir) encode(rec Record) ([]byte, error) {
	h := rec.header()
	*h = Header{Version: Version, Nonce: d.nonce, Rank: d.rank, Host: d.host, At: time.Now()}
	data, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("cannot encode a record of rank %d: %v", d.rank, err)
	}
	if len(data) >= maxRecord {
		return nil, fmt.Errorf("cannot publish a record of %d bytes: at most %d are read", len(data), maxRecord-1)
	}
	return append(data, '\n'), nil
}

// decode parses a record. One that is cut short is errAbsent, because it may
// become whole; one of another attempt is, because it is not meant. Only what
// is meant changes rec.
func decode(data []byte, nonce string, rec Record) error {
	if len(data) == 0 || data[len(data)-1] != '\n' {
		return errAbsent
	}
	// The error of a time that is none quotes all of it, and goes into records.
	const unread = "cannot read a record: %.200v"
	var h Header
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf(unread, err)
	}
	switch {
	case h.Version > Version:
		return fmt.Errorf("cannot read a record of version %d: this bringupd knows %d; run one version on all nodes", h.Version, Version)
	case h.Version < 1 || h.Nonce == "":
		return errors.New("cannot read a record: it has no header")
	case nonce != "" && h.Nonce != nonce:
		return errAbsent
	}
	if err := json.Unmarshal(data, rec); err != nil {
		return fmt.Errorf(unread, err)
	}
	return nil
}
