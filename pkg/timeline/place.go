package timeline

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/trail"
)

// stamp is when a node has said that it is in a state, by its own clock.
type stamp struct {
	state string
	at    time.Time
}

// readEvents reads the timelines: the head's alone for a quick look, whose
// looks at all others are in it.
func (r *reading) readEvents(events *signal.Folder) {
	var names []string
	for _, name := range events.Names {
		rank, kind, ok := signal.ParseEventsName(name)
		if !ok || rank >= len(r.Nodes) || len(name) > 64 {
			continue
		}
		if r.Depth == Full || rank == 0 && kind == daemonKind {
			names = append(names, name)
		}
	}
	limit, most := r.opts.FileLimit, mostLines
	if n := len(names); n > 1 {
		limit = min(limit, max(r.opts.TotalLimit/int64(n), leastFileLimit))
		most = min(most, max(allLines/n, leastLines))
	}
	r.eachName(names, func(name string) {
		limit, most := limit, most
		if rank, _, _ := signal.ParseEventsName(name); rank == 0 {
			limit, most = r.opts.FileLimit, mostLines
		}
		content, err := events.Read(r.ctx, name, limit)
		if err != nil {
			r.problem(err)
			return
		}
		t := decodeTrail(name, content, most)
		r.mu.Lock()
		r.trails = append(r.trails, t)
		r.mu.Unlock()
	})
	slices.SortFunc(r.trails, func(a, b told) int {
		return strings.Compare(signal.EventsName(a.daemon, a.rank, mostNodes), signal.EventsName(b.daemon, b.rank, mostNodes))
	})
	for _, t := range r.trails {
		for _, problem := range t.problems {
			r.problem(errors.New(problem))
		}
	}
}

const daemonKind = "daemon"

// place puts all that was read on the head's clock.
func (r *reading) place() {
	slices.Sort(r.Problems)
	published, reached := r.heads()
	told := r.told()
	exchanges := r.exchanges(published)
	for word, seen := range reached {
		for rank, at := range seen {
			if wrote, known := told[rank][word]; known && rank > 0 {
				exchanges[rank] = append(exchanges[rank], exchange{wrote: wrote, saw: at, byNode: true})
			}
		}
	}
	for rank := range r.Nodes {
		node := &r.Nodes[rank]
		node.Clock = Clock{Known: true}
		if rank > 0 {
			node.Clock = reckon(exchanges[rank], node.Host != "" && node.Host == r.Nodes[0].Host)
		}
		node.wrote = nil
		for i := range node.States {
			s := &node.States[i]
			if at, known := told[rank][s.Word]; known {
				s.At = node.Clock.Correct(at)
			} else {
				s.At = reached[s.Word][rank]
			}
			node.sign(s.At)
		}
	}
	r.placeTrails()
}

// told returns when each rank began to publish its states, by its own clock.
func (r *reading) told() []map[string]time.Time {
	told := make([]map[string]time.Time, len(r.Nodes))
	tell := func(rank int, state string, at time.Time) {
		if told[rank] == nil { // most ranks of a damaged run have none
			told[rank] = make(map[string]time.Time)
		}
		told[rank][state] = at
	}
	for rank := range r.Nodes {
		for _, s := range r.Nodes[rank].wrote {
			tell(rank, s.state, s.at)
		}
	}
	for _, t := range r.trails {
		for _, e := range t.events {
			r.sees(t.rank, e.Host)
			if e.Name == trail.Told && state(e.Record) != "" {
				tell(t.rank, plain(state(e.Record)), e.began())
			}
		}
	}
	return told
}

// exchanges are what each rank has seen of what the head has published.
func (r *reading) exchanges(published map[string]time.Time) [][]exchange {
	exchanges := make([][]exchange, len(r.Nodes))
	for rank := 1; rank < len(r.Nodes) && r.Job != nil; rank++ {
		if joined := r.Nodes[rank].Joined; joined != nil {
			exchanges[rank] = append(exchanges[rank], exchange{wrote: r.Job.At, saw: joined.At.Add(-joined.Answer)})
		}
	}
	for _, t := range r.trails {
		for _, e := range t.events {
			if wrote, known := published[e.Record]; known && t.rank > 0 && e.Name == trail.Saw {
				exchanges[t.rank] = append(exchanges[t.rank], exchange{wrote: wrote, saw: e.Wrote})
			}
		}
	}
	return exchanges
}

// plain is a state without the generation that it may have.
func plain(state string) string {
	if _, up := signal.ParseUp(state); up {
		return signal.Up
	}
	return state
}

// heads returns what the head's own timeline tells of the others: when it began
// to publish what is in Control, and when it saw a rank in a state.
func (r *reading) heads() (published map[string]time.Time, reached map[string]map[int]time.Time) {
	published, reached = make(map[string]time.Time), make(map[string]map[int]time.Time)
	note := func(name string, mark *Mark) {
		if mark.There && believable(mark.At) {
			published[name] = mark.At
		}
	}
	c := &r.Control
	if r.Job != nil {
		note(signal.NameJob, &c.Job)
	}
	if c.Service != nil {
		note(signal.NameHead, &c.Head)
	}
	if c.Ending != nil {
		note(signal.NameDrain, &c.Drain)
	}
	for _, t := range r.trails {
		if t.rank != 0 || t.daemon != daemonKind {
			continue
		}
		for _, e := range t.events {
			switch e.Name {
			case trail.Told:
				if _, isNode, _, of := signal.ParseNodeName(e.Record, 0); !of || isNode == "" {
					published[e.Record] = e.began()
				}
			case trail.Reached:
				word := plain(e.State)
				if reached[word] == nil {
					reached[word] = make(map[int]time.Time)
				}
				for _, rank := range parseRanks(e.Ranks, len(r.Nodes)) {
					if _, before := reached[word][rank]; !before {
						reached[word][rank] = e.Wrote
					}
				}
			}
		}
	}
	for name, mark := range map[string]*Mark{signal.NameGo: &c.Go, signal.NameOver: &c.Over, signal.NameHead: &c.Head, signal.NameDrain: &c.Drain} {
		if at, known := published[name]; known && mark.There {
			mark.At = at // a mark has only the file system's clock
		}
	}
	return published, reached
}

// placeTrails puts the events on the head's clock, and makes phases of them.
func (r *reading) placeTrails() {
	total := 0
	for _, t := range r.trails {
		total += len(t.events)
	}
	if r.Depth == Full {
		r.Events = make([]Event, 0, total)
	}
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
		if r.Depth == Full {
			r.Events = append(r.Events, t.events...)
		}
	}
	slices.SortStableFunc(r.Events, func(a, b Event) int { return a.At.Compare(b.At) })
	for i := range r.Nodes {
		slices.SortStableFunc(r.Nodes[i].Phases, func(a, b Span) int { return a.From.Compare(b.From) })
	}
}

// sign takes in a sign of life.
func (n *Node) sign(at time.Time) {
	if at.After(n.Seen) {
		n.Seen = at
	}
}
