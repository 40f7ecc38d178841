package timeline

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/signal"
)

// readEvents reads the event logs. A quick read includes only the head's log, which has the head's
// observations of all other nodes.
func (r *reading) readEvents(events *signal.DirSnapshot) {
	var names []string
	for _, name := range events.Names {
		rank, kind, ok := signal.ParseEventsName(name)
		if !ok || rank >= len(r.Nodes) || len(name) > 64 {
			continue
		}
		if r.opts.Depth == Full || rank == 0 && kind == daemonKind {
			names = append(names, name)
		}
	}
	// Share the total limits among the files. The head's log always gets the full limit.
	limit, most := r.opts.FileLimit, mostLines
	if n := len(names); n > 1 {
		limit = min(limit, max(r.opts.TotalLimit/int64(n), leastFileLimit))
		most = min(most, max(allLines/n, leastLines))
	}
	each(r, names, func(name string) {
		limit, most := limit, most
		if rank, _, _ := signal.ParseEventsName(name); rank == 0 {
			limit, most = r.opts.FileLimit, mostLines
		}
		content, err := events.ReadFile(r.ctx, name, limit)
		if err != nil {
			r.problem(err)
			return
		}
		t := decodeTrail(name, content, most)
		r.mu.Lock()
		r.trails = append(r.trails, t)
		r.mu.Unlock()
	})
	// The order must not depend on which file was read first.
	slices.SortFunc(r.trails, func(a, b told) int {
		return strings.Compare(signal.EventsName(a.daemon, a.rank, mostNodes), signal.EventsName(b.daemon, b.rank, mostNodes))
	})
	for _, t := range r.trails {
		for _, problem := range t.problems {
			r.problem(errors.New(problem))
		}
	}
}

// daemonKind is the kind of a node's main daemon, in contrast to that of its sandbox.
const daemonKind = "daemon"

// place converts all times that were read to the head's clock.
func (r *reading) place() {
	slices.Sort(r.Problems)
	// First the times of the head's records, which need no correction.
	published, reached, exchanges := r.clues()
	c := &r.Control
	for name, mark := range map[string]*Mark{signal.NameGateOpen: &c.Go, signal.NameHeadFinished: &c.Over, signal.NameHead: &c.Head, signal.NameOrderlyEnd: &c.Drain} {
		if at, known := published[name]; known && mark.There {
			mark.At = at // a mark itself has only the file system's time
		}
	}
	// Then estimate each node's clock offset, and convert the times of its states. The head's
	// observation is used for states whose time the node has not recorded.
	for rank := range r.Nodes {
		node := &r.Nodes[rank]
		node.Clock = Clock{Known: true}
		if rank > 0 {
			node.Clock = reckon(exchanges[rank], node.Host != "" && node.Host == r.Nodes[0].Host)
		}
		for i := range node.States {
			s := &node.States[i]
			if at, known := node.told[s.Word]; known {
				s.At = node.Clock.Correct(at)
			} else {
				s.At = reached[sight{s.Word, rank}]
			}
			node.sign(s.At)
		}
		node.told = nil
	}
	r.placeTrails()
}

// tell notes the time at which the node began to publish a state, by its own clock.
func (n *Node) tell(state string, at time.Time) {
	if n.told == nil { // allocated late: most nodes of a damaged run have no times
		n.told = make(map[string]time.Time)
	}
	n.told[state] = at
}

// sight is the observation of the head that a node has reached a state.
type sight struct {
	state string
	rank  int
}

// clues collects times from all events: when the head began to publish each record in control/,
// when it first observed each node in each state, and the exchanges between each node and the head.
func (r *reading) clues() (published map[string]time.Time, reached map[sight]time.Time, exchanges [][]exchange) {
	published, reached, exchanges = r.recorded(), make(map[sight]time.Time), make([][]exchange, len(r.Nodes))
	saw := func(rank int, x exchange) {
		if rank > 0 {
			exchanges[rank] = append(exchanges[rank], x)
		}
	}
	// A node reads the job record before it joins.
	for rank := range r.Nodes {
		if joined := r.Nodes[rank].Joined; joined != nil && r.Job != nil {
			saw(rank, exchange{wrote: r.Job.WrittenAt, saw: joined.WrittenAt.Add(-joined.TimeToAnswer)})
		}
	}
	for _, t := range r.trails { // the head's own log comes first
		ofHead := t.rank == 0 && t.daemon == daemonKind
		for _, e := range t.events {
			r.Nodes[t.rank].sees(e.Host)
			switch state := stateOf(e.Record); {
			case e.Name == eventlog.RecordPublished && state != "":
				r.Nodes[t.rank].tell(plain(state), e.began())
			case e.Name == eventlog.RecordPublished && ofHead:
				published[e.Record] = e.began()
			case e.Name == eventlog.RecordSeen:
				if wrote, known := published[e.Record]; known {
					saw(t.rank, exchange{wrote: wrote, saw: e.Wrote})
				}
			case e.Name == eventlog.StateReached && ofHead:
				for _, rank := range parseRanks(e.Ranks, len(r.Nodes)) {
					if seen := (sight{plain(e.State), rank}); reached[seen].IsZero() {
						reached[seen] = e.Wrote
					}
				}
			}
		}
	}
	// Records of the nodes that the head has observed bound the offsets on the other side.
	for seen, at := range reached {
		if wrote, known := r.Nodes[seen.rank].told[seen.state]; known {
			saw(seen.rank, exchange{wrote: wrote, saw: at, byNode: true})
		}
	}
	return published, reached, exchanges
}

// recorded returns when the head has published those records in control/ that contain the time
// themselves.
func (r *reading) recorded() map[string]time.Time {
	published := make(map[string]time.Time)
	note := func(name string, there bool, at time.Time) {
		if there && believable(at) {
			published[name] = at
		}
	}
	c := &r.Control
	note(signal.NameJob, r.Job != nil, c.Job.At)
	note(signal.NameHead, c.Service != nil, c.Head.At)
	note(signal.NameOrderlyEnd, c.Ending != nil, c.Drain.At)
	return published
}

// stateOf returns the state in the name of a node's record, or an empty string for other names.
func stateOf(record string) string {
	_, state, _, _ := signal.ParseNodeName(record, 0)
	return state
}

// plain returns a state without its generation, if it has one.
func plain(state string) string {
	if _, up := signal.ParseServiceUpState(state); up {
		return signal.StateServiceUp
	}
	return state
}

// placeTrails converts the times of all events to the head's clock, and derives the phases from
// them.
func (r *reading) placeTrails() {
	// A quick read needs the phases only, not the events.
	total := 0
	for _, t := range r.trails {
		total += len(t.events)
	}
	if r.opts.Depth == Full {
		r.Events = make([]Event, 0, total)
	}
	// A drain record counts unless the head has aborted the run.
	orderly := r.Control.Drain.There && (len(r.Control.Aborts) == 0 || r.Control.Aborts[0].Rank != 0)
	for _, t := range r.trails {
		node := &r.Nodes[t.rank]
		for i := range t.events {
			e := &t.events[i]
			e.At = node.Clock.Correct(e.Wrote)
			if e.Host == "" {
				e.Host = node.Host
			}
		}
		node.Phases = append(node.Phases, spansOf(t.events, orderly)...)
		if len(t.events) > 0 {
			node.sign(t.events[len(t.events)-1].At)
		}
		if r.opts.Depth == Full {
			r.Events = append(r.Events, t.events...)
		}
	}
	slices.SortStableFunc(r.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	for i := range r.Nodes {
		slices.SortStableFunc(r.Nodes[i].Phases, func(a, b Span) int { return a.From.Compare(b.From) })
	}
}

// sign takes over the time of a sign of life if it is the newest.
func (n *Node) sign(at time.Time) {
	if at.After(n.Seen) {
		n.Seen = at
	}
}

// parseRanks parses a list such as 1-3,7 of node indices below size. It skips invalid parts,
// because the text is untrusted.
func parseRanks(list string, size int) []int {
	var ranks []int
	for part := range strings.SplitSeq(list, ",") {
		first, last, two := strings.Cut(part, "-")
		if !two {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to >= size {
			continue
		}
		for rank := from; rank <= to && len(ranks) < size; rank++ {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}
