package pmi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Operations that nodes request from the head, and orders that the head sends to nodes.
const (
	opPublish   = "publish"
	opLookup    = "lookup"
	opUnpublish = "unpublish"
	opModex     = "modex"  // both an operation and an order
	opNotify    = "notify" // both an operation and an order
	opSpawn     = "spawn"
	opEnded     = "ended"  // all ranks of a job on the node have ended
	opAdd       = "add"    // order: register a new job
	opStart     = "start"  // order: start the job's ranks on this node
	opRemove    = "remove" // order: remove a job that has ended
)

// question and answer are the arguments and the result of an operation or order, as JSON.
type question struct {
	Entries []Entry  `json:"entries,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	Wait    bool     `json:"wait,omitempty"`
	Of      Proc     `json:"of,omitzero"`
	Event   *Event   `json:"event,omitempty"`
	Spawn   *Spawn   `json:"spawn,omitempty"`
	Job     *Job     `json:"job,omitempty"`
}

type answer struct {
	Status  Status  `json:"status,omitempty"`
	Words   string  `json:"words,omitempty"` // text of the error
	Entries []Entry `json:"entries,omitempty"`
	Data    []byte  `json:"data,omitempty"`
	Job     string  `json:"job,omitempty"`
}

// Nodes is the head's connection to the nodes. *meeting.Head implements it.
type Nodes interface {
	Order(ctx context.Context, node int, name string, data []byte) ([]byte, error)
	Add(places []meeting.Place)
}

// HeadConfig holds the parameters of the head's side.
type HeadConfig struct {
	Nodes Nodes
	World *Job  // the job of the ranks that the run begins with
	Slots []int // capacity of each node in ranks
	// Oversubscribe allows a spawn to use more slots than are free.
	Oversubscribe bool
	// Spawned is called with each spawned job.
	Spawned func(job *Job)
}

// Head is the head's side: it stores published entries and manages the jobs.
type Head struct {
	cfg HeadConfig

	mu        sync.Mutex
	jobs      map[string]*Job
	left      map[string]int // ranks of each spawned job that have not ended
	used      []int          // slots used on each node
	next      int            // run-wide number of the next rank
	spawns    int            // number of spawned jobs
	published map[string]Entry
	size      int           // total size of the published entries, in bytes
	changed   chan struct{} // closed at the next change
}

// NewHead returns the head's side for a world.
func NewHead(cfg HeadConfig) *Head {
	h := &Head{
		cfg: cfg, jobs: map[string]*Job{cfg.World.Name: cfg.World}, left: make(map[string]int), used: make([]int, len(cfg.World.Hosts)),
		next: len(cfg.World.Nodes), published: make(map[string]Entry), changed: make(chan struct{}),
	}
	for _, node := range cfg.World.Nodes {
		h.used[node]++
	}
	return h
}

// Do executes an operation that a node requests. It is a meeting.Operation. A failed operation is
// reported in the returned answer; the error is not nil only if the request cannot be decoded.
func (h *Head) Do(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, fmt.Errorf("cannot read what node %d asks: %w", node, err)
	}
	a, err := h.do(ctx, node, name, q)
	if err != nil {
		a = answer{Status: StatusOf(err), Words: err.Error()}
	}
	return json.Marshal(a)
}

// do executes a decoded operation.
func (h *Head) do(ctx context.Context, node int, name string, q question) (a answer, err error) {
	switch name {
	case opPublish:
		err = h.publish(q.Entries)
	case opLookup:
		a.Entries, err = h.lookup(ctx, q.Keys, q.Wait)
	case opUnpublish:
		h.unpublish(q.Of, q.Keys)
	case opModex:
		a.Data, err = h.modex(ctx, q)
	case opNotify:
		err = h.all(ctx, opNotify, q, func(other int) bool { return other != node })
	case opSpawn:
		a.Job, err = h.spawn(ctx, *q.Spawn)
	case opEnded:
		err = h.ended(ctx, q.Of.Job, node)
	default:
		err = fmt.Errorf("cannot do %q: %w", name, NotSupported)
	}
	return a, err
}

// Number returns the run-wide number of a process; -1 if it is unknown.
func (h *Head) Number(of Proc) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.jobs[of.Job].Number(of.Rank)
}

// changedLocked wakes the waits for a change. It requires h.mu.
func (h *Head) changedLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Limits of the published entries: their number and their total size in bytes.
const (
	mostPublished     = 1 << 16
	mostPublishedSize = 64 << 20
)

func (e Entry) size() int { return len(e.Key) + len(e.Value) }

// publish publishes either all entries or, with an error, none. Keys that are already published
// cause the error Duplicate.
func (h *Head) publish(entries []Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	size := h.size
	for _, e := range entries {
		if was, known := h.published[e.Key]; known {
			return fmt.Errorf("cannot publish %s: %v has: %w", prose.Line(e.Key, 80), was.By, Duplicate)
		}
		size += e.size()
	}
	if len(h.published)+len(entries) > mostPublished || size > mostPublishedSize {
		return fmt.Errorf("cannot publish: at most %d entries of %d MiB together are accepted: %w", mostPublished, mostPublishedSize>>20, NoSpace)
	}
	for _, e := range entries {
		h.removeLocked(e.Key) // in case entries contains the key twice
		h.published[e.Key] = e
		h.size += e.size()
	}
	h.changedLocked()
	return nil
}

// removeLocked removes a published entry. It requires h.mu.
func (h *Head) removeLocked(key string) {
	if e, known := h.published[key]; known {
		h.size -= e.size()
		delete(h.published, key)
	}
}

// lookup returns the entries that are published under the given keys. If wait is set, it waits
// until all of them are published. It removes entries with [Entry.Once].
func (h *Head) lookup(ctx context.Context, keys []string, wait bool) ([]Entry, error) {
	for {
		h.mu.Lock()
		var found []Entry
		for _, key := range keys {
			if e, known := h.published[key]; known {
				found = append(found, e)
			}
		}
		changed := h.changed
		enough := len(found) == len(keys) || len(found) > 0 && !wait
		for _, e := range found {
			if enough && e.Once {
				h.removeLocked(e.Key)
			}
		}
		h.mu.Unlock()
		if enough {
			return found, nil
		}
		if !wait {
			return nil, fmt.Errorf("cannot look up %s: %w", prose.Line(prose.List(keys, 16, ", "), 1000), NotFound)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// unpublish removes the entries with the given keys; without keys, all entries that by has
// published.
func (h *Head) unpublish(by Proc, keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(keys) == 0 {
		for key, e := range h.published {
			if e.By == by {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		h.removeLocked(key)
	}
}

// modex requests the data that a rank has committed from the rank's node.
func (h *Head) modex(ctx context.Context, q question) ([]byte, error) {
	h.mu.Lock()
	job := h.jobs[q.Of.Job]
	h.mu.Unlock()
	if job == nil || q.Of.Rank < 0 || q.Of.Rank >= len(job.Nodes) {
		return nil, fmt.Errorf("cannot ask for what %v has: %w", q.Of, NotFound)
	}
	a, err := h.order(ctx, job.Nodes[q.Of.Rank], opModex, q)
	return a.Data, err
}

// order sends an order to a node and waits for the result.
func (h *Head) order(ctx context.Context, node int, name string, q question) (answer, error) {
	data, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	return answered(h.cfg.Nodes.Order(ctx, node, name, data))
}

// answered decodes an answer. It returns the error that the answer contains.
func answered(data []byte, err error) (a answer, _ error) {
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("cannot read an answer: %w", err)
	}
	if a.Status != 0 {
		return a, told{a.Words, a.Status}
	}
	return a, nil
}

// told is an error that another node reported.
type told struct {
	words  string
	status Status
}

func (t told) Error() string { return t.words }
func (t told) Unwrap() error { return t.status }

// StatusOf returns the status that corresponds to an error; 0 if err is nil.
func StatusOf(err error) Status {
	status, is := errors.AsType[Status](err)
	switch {
	case err == nil:
		return 0
	case is:
		return status
	case errors.Is(err, context.DeadlineExceeded):
		return TimedOut
	}
	return Failed
}

// all sends an order to all wanted nodes in parallel, and waits for the results. It returns the
// first error.
func (h *Head) all(ctx context.Context, name string, q question, wanted func(node int) bool) error {
	orders, ctx := errgroup.WithContext(ctx)
	for node := range h.used {
		if wanted(node) {
			orders.Go(func() error {
				_, err := h.order(ctx, node, name, q)
				return err
			})
		}
	}
	return orders.Wait()
}

// spawn starts a new job and returns its name once its ranks have been started.
func (h *Head) spawn(ctx context.Context, s Spawn) (string, error) {
	job, err := h.place(s)
	if err != nil {
		return "", err
	}
	h.cfg.Nodes.Add(job.Places())
	anyNode := func(int) bool { return true }
	own := func(node int) bool { return slices.Contains(job.Nodes, node) }
	q := question{Job: job, Spawn: &s}
	// All nodes must know the job before one of its ranks runs.
	if err = h.all(ctx, opAdd, q, anyNode); err == nil {
		err = h.all(ctx, opStart, q, own)
	}
	if err != nil {
		h.drop(job)
		return "", fmt.Errorf("cannot spawn %s: %w", prose.Line(strings.Join(s.Commands[0].Argv, " "), 200), err)
	}
	h.cfg.Spawned(job)
	return job.Name, nil
}

// place creates a job for a spawn and reserves its slots. It changes nothing if it returns an
// error.
func (h *Head) place(s Spawn) (*Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(s.Commands) > MostCommands {
		return nil, fmt.Errorf("cannot spawn %d commands: at most %d are accepted: %w", len(s.Commands), MostCommands, NoSpace)
	}
	parent := s.By
	job := &Job{
		Name: spawnedName(h.cfg.World.Name, h.spawns+1), First: h.next, Hosts: h.cfg.World.Hosts, Universe: h.cfg.World.Universe,
		Parent: &parent, Preput: s.Preput,
	}
	used := slices.Clone(h.used)
	// Assign nodes to the ranks of each command. The reservation remains local until all fit.
	for app, c := range s.Commands {
		nodes, err := Place(c, h.cfg.World.Hosts, h.cfg.Slots, used, h.cfg.Oversubscribe)
		if err != nil {
			return nil, err
		}
		alive := 0
		for _, n := range used {
			alive += n
		}
		if alive > MostRanks {
			return nil, fmt.Errorf("cannot spawn: with these the run has %d ranks, and at most %d are accepted: %w", alive, MostRanks, NoSpace)
		}
		job.Nodes = append(job.Nodes, nodes...)
		job.Apps = append(job.Apps, slices.Repeat([]int{app}, len(nodes))...)
	}
	if len(job.Nodes) == 0 {
		return nil, fmt.Errorf("cannot spawn nothing: %w", BadParam)
	}
	h.used, h.next, h.spawns = used, h.next+len(job.Nodes), h.spawns+1
	h.jobs[job.Name], h.left[job.Name] = job, len(job.Nodes)
	job.Universe = max(job.Universe, len(job.Nodes))
	return job, nil
}

// drop removes a job that could not be started and frees its slots.
func (h *Head) drop(job *Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, node := range job.Nodes {
		h.used[node]--
	}
	delete(h.left, job.Name)
	delete(h.jobs, job.Name)
	h.changedLocked()
}

// ended records that all ranks of a job on a node have ended. When the last ranks have ended, it
// removes the job on all nodes.
func (h *Head) ended(ctx context.Context, name string, node int) error {
	h.mu.Lock()
	job := h.jobs[name]
	if _, live := h.left[name]; !live {
		h.mu.Unlock()
		return nil
	}
	own := len(job.Local(node))
	h.left[name] -= own
	h.used[node] -= own
	over := h.left[name] <= 0
	if over {
		delete(h.left, name)
		delete(h.jobs, name)
		h.changedLocked()
	}
	h.mu.Unlock()
	if !over {
		return nil
	}
	return h.all(ctx, opRemove, question{Of: Proc{name, All}}, func(int) bool { return true })
}

// Await waits until the ranks of all spawned jobs have ended. If ctx ends first, it returns
// context.Cause(ctx).
func (h *Head) Await(ctx context.Context) error {
	for {
		h.mu.Lock()
		left, changed := len(h.left), h.changed
		h.mu.Unlock()
		if left == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
