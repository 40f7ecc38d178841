package pmi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
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

// operation and response are the arguments and the result of an operation or order, as JSON.
type operation struct {
	Entries []Entry       `json:"entries,omitempty"`
	Keys    []string      `json:"keys,omitempty"`
	Wait    bool          `json:"wait,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"` // a wait's; 0: none
	Proc    ProcID        `json:"proc,omitzero"`
	Event   *Event        `json:"event,omitempty"`
	Spawn   *SpawnRequest `json:"spawn,omitempty"`
	Job     *Job          `json:"job,omitempty"`
}

type response struct {
	Status  Status  `json:"status,omitempty"`
	Text    string  `json:"text,omitempty"` // text of the error
	Entries []Entry `json:"entries,omitempty"`
	Data    []byte  `json:"data,omitempty"`
	Job     string  `json:"job,omitempty"`
}

// NodeCaller is the head's connection to the nodes. *rendezvous.Head implements it.
type NodeCaller interface {
	CallNode(ctx context.Context, node int, name string, data []byte) ([]byte, error)
	AddRanks(places []rendezvous.NodeRanks)
}

// HeadConfig holds the parameters of the head's side.
type HeadConfig struct {
	Nodes      NodeCaller
	InitialJob *Job  // the job of the ranks that the run begins with
	Slots      []int // capacity of each node in ranks
	// Oversubscribe allows a spawn to use more slots than are free.
	Oversubscribe bool
	// OnSpawn is called with each spawned job.
	OnSpawn func(job *Job)
}

// Head is the head's side: it stores published entries and manages the jobs.
type Head struct {
	cfg HeadConfig

	mu            sync.Mutex
	jobs          map[string]*Job
	liveRanks     map[string]int // ranks of each spawned job that have not ended
	usedSlots     []int          // slots used on each node
	nextRank      int            // run-wide number of the next rank
	spawnCount    int            // number of spawned jobs
	published     map[string]Entry
	publishedSize int           // total size of the published entries, in bytes
	changed       chan struct{} // closed at the next change
}

// NewHead returns the head's side for a world.
func NewHead(cfg HeadConfig) *Head {
	h := &Head{
		cfg: cfg, jobs: map[string]*Job{cfg.InitialJob.Name: cfg.InitialJob}, liveRanks: make(map[string]int),
		usedSlots: make([]int, len(cfg.InitialJob.Hosts)),
		nextRank:  len(cfg.InitialJob.Nodes), published: make(map[string]Entry), changed: make(chan struct{}),
	}
	for _, node := range cfg.InitialJob.Nodes {
		h.usedSlots[node]++
	}
	return h
}

// HandleCall executes an operation that a node requests. It is a rendezvous.Handler. A failed
// operation is reported in the returned answer; the error is not nil only if the request cannot be
// decoded.
func (h *Head) HandleCall(ctx context.Context, node int, name string, data []byte) ([]byte, error) {
	return answerOperation(data, func(q operation) (response, error) { return h.executeCall(ctx, node, name, q) })
}

// answerOperation decodes an operation or order, executes it, and encodes its result.
func answerOperation(data []byte, execute func(q operation) (response, error)) ([]byte, error) {
	var q operation
	if err := json.Unmarshal(data, &q); err != nil {
		return nil, fmt.Errorf("cannot decode an operation of ranks: %w", err)
	}
	a, err := execute(q)
	if err != nil {
		a = response{Status: StatusOf(err), Text: err.Error()}
	}
	return json.Marshal(a)
}

func (h *Head) executeCall(ctx context.Context, node int, name string, q operation) (a response, err error) {
	switch name {
	case opPublish:
		err = h.publishEntries(q.Entries)
	case opLookup:
		if q.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, q.Timeout)
			defer cancel()
		}
		a.Entries, err = h.lookupEntries(ctx, q.Keys, q.Wait)
	case opUnpublish:
		h.unpublishEntries(q.Proc, q.Keys)
	case opModex:
		a.Data, err = h.fetchModex(ctx, q)
	case opNotify:
		err = h.callNodes(ctx, opNotify, q, func(other int) bool { return other != node })
	case opSpawn:
		a.Job, err = h.spawnJob(ctx, *q.Spawn)
	case opEnded:
		err = h.recordJobEnd(ctx, q.Proc.Job, node)
	default:
		err = fmt.Errorf("cannot execute %q: %w", name, NotSupported)
	}
	return a, err
}

// RunNumber returns the run-wide number of a process; -1 if it is unknown.
func (h *Head) RunNumber(of ProcID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.jobs[of.Job].RunNumber(of.Rank)
}

// notifyChangeLocked wakes the waits for a change. It requires h.mu.
func (h *Head) notifyChangeLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// Limits of the published entries: their number and their total size in bytes.
const (
	maxPublished     = 1 << 16
	maxPublishedSize = 64 << 20
)

func (e Entry) byteSize() int { return len(e.Key) + len(e.Value) }

// publishEntries publishes either all entries or, with an error, none. Keys that are already
// published cause the error Duplicate.
func (h *Head) publishEntries(entries []Entry) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	size := h.publishedSize
	for _, e := range entries {
		if was, known := h.published[e.Key]; known {
			return fmt.Errorf("cannot publish %s: %v has published it: %w", textutil.SingleLine(e.Key, 80),
				was.Publisher, Duplicate)
		}
		size += e.byteSize()
	}
	if len(h.published)+len(entries) > maxPublished || size > maxPublishedSize {
		return fmt.Errorf("cannot publish: at most %d entries of %d MiB together are accepted: %w", maxPublished,
			maxPublishedSize>>20, NoSpace)
	}
	for _, e := range entries {
		h.removeEntryLocked(e.Key) // in case entries contains the key twice
		h.published[e.Key] = e
		h.publishedSize += e.byteSize()
	}
	h.notifyChangeLocked()
	return nil
}

// removeEntryLocked removes a published entry. It requires h.mu.
func (h *Head) removeEntryLocked(key string) {
	if e, known := h.published[key]; known {
		h.publishedSize -= e.byteSize()
		delete(h.published, key)
	}
}

// lookupEntries returns the entries that are published under the given keys. If wait is set, it
// waits until all of them are published. It removes entries with [Entry.RemoveOnLookup].
func (h *Head) lookupEntries(ctx context.Context, keys []string, wait bool) ([]Entry, error) {
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
			if enough && e.RemoveOnLookup {
				h.removeEntryLocked(e.Key)
			}
		}
		h.mu.Unlock()
		if enough {
			return found, nil
		}
		if !wait {
			return nil, fmt.Errorf("cannot look up %s: %w",
				textutil.SingleLine(textutil.JoinLimited(keys, 16, ", "), 1000), NotFound)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (h *Head) unpublishEntries(by ProcID, keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(keys) == 0 {
		for key, e := range h.published {
			if e.Publisher == by {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		h.removeEntryLocked(key)
	}
}

func (h *Head) fetchModex(ctx context.Context, q operation) ([]byte, error) {
	h.mu.Lock()
	job := h.jobs[q.Proc.Job]
	h.mu.Unlock()
	if job == nil || q.Proc.Rank < 0 || q.Proc.Rank >= len(job.Nodes) {
		return nil, fmt.Errorf("cannot get the data of %v: %w", q.Proc, NotFound)
	}
	a, err := h.callNode(ctx, job.Nodes[q.Proc.Rank], opModex, q)
	return a.Data, err
}

func (h *Head) callNode(ctx context.Context, node int, name string, q operation) (response, error) {
	return q.request(func(data []byte) ([]byte, error) { return h.cfg.Nodes.CallNode(ctx, node, name, data) })
}

// request sends the operation by a call, and decodes the answer. It returns the error that the answer
// contains.
func (q operation) request(call func(data []byte) ([]byte, error)) (a response, _ error) {
	data, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if data, err = call(data); err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("cannot decode a response: %w", err)
	}
	if a.Status != 0 {
		return a, remoteError{a.Text, a.Status}
	}
	return a, nil
}

type remoteError struct {
	text   string
	status Status
}

func (t remoteError) Error() string { return t.text }
func (t remoteError) Unwrap() error { return t.status }

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

func (h *Head) callNodes(ctx context.Context, name string, q operation, wanted func(node int) bool) error {
	var orders errgroup.Group
	for node := range h.usedSlots {
		if wanted(node) {
			orders.Go(func() error {
				_, err := h.callNode(ctx, node, name, q)
				return err
			})
		}
	}
	return orders.Wait()
}

// spawnJob starts a new job and returns its name once its ranks have been started.
func (h *Head) spawnJob(ctx context.Context, s SpawnRequest) (string, error) {
	job, err := h.placeJob(s)
	if err != nil {
		return "", err
	}
	h.cfg.Nodes.AddRanks(job.NodeRanks())
	anyNode := func(int) bool { return true }
	own := func(node int) bool { return slices.Contains(job.Nodes, node) }
	q := operation{Job: job, Spawn: &s}
	// All nodes must know the job before one of its ranks runs.
	if err = h.callNodes(ctx, opAdd, q, anyNode); err == nil {
		err = h.callNodes(ctx, opStart, q, own)
	}
	if err != nil {
		_ = h.removeFromNodes(ctx, job.Name) // fails on a node that is lost
		h.dropJob(job)
		return "", fmt.Errorf("cannot spawn %s: %w",
			textutil.SingleLine(strings.Join(s.Commands[0].Argv, " "), 200), err)
	}
	h.cfg.OnSpawn(job)
	return job.Name, nil
}

// placeJob creates a job for a spawn and reserves its slots. It changes nothing if it returns an
// error.
func (h *Head) placeJob(s SpawnRequest) (*Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(s.Commands) > MaxCommands {
		return nil, fmt.Errorf("cannot spawn %d commands: at most %d are accepted: %w", len(s.Commands),
			MaxCommands, NoSpace)
	}
	parent := s.Requester
	job := &Job{
		Name: spawnedJobName(h.cfg.InitialJob.Name, h.spawnCount+1), FirstNumber: h.nextRank,
		Hosts: h.cfg.InitialJob.Hosts, UniverseSize: h.cfg.InitialJob.UniverseSize,
		Parent: &parent, Preput: s.Preput,
	}
	used := slices.Clone(h.usedSlots)
	// Assign nodes to the ranks of each command. The reservation remains local until all fit.
	for app, c := range s.Commands {
		nodes, err := PlaceRanks(c, h.cfg.InitialJob.Hosts, h.cfg.Slots, used, h.cfg.Oversubscribe)
		if err != nil {
			return nil, err
		}
		alive := 0
		for _, n := range used {
			alive += n
		}
		if alive > MaxRanks {
			return nil, fmt.Errorf("cannot spawn: the run would have %d ranks, and at most %d are accepted: %w",
				alive, MaxRanks, NoSpace)
		}
		job.Nodes = append(job.Nodes, nodes...)
		job.Apps = append(job.Apps, slices.Repeat([]int{app}, len(nodes))...)
	}
	if len(job.Nodes) == 0 {
		return nil, fmt.Errorf("cannot spawn: no ranks were requested: %w", BadParam)
	}
	h.usedSlots, h.nextRank, h.spawnCount = used, h.nextRank+len(job.Nodes), h.spawnCount+1
	h.jobs[job.Name], h.liveRanks[job.Name] = job, len(job.Nodes)
	job.UniverseSize = max(job.UniverseSize, len(job.Nodes))
	return job, nil
}

func (h *Head) dropJob(job *Job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, node := range job.Nodes {
		h.usedSlots[node]--
	}
	delete(h.liveRanks, job.Name)
	delete(h.jobs, job.Name)
	h.notifyChangeLocked()
}

// recordJobEnd records that all ranks of a job on a node have ended. When the last ranks have
// ended, it removes the job on all nodes.
func (h *Head) recordJobEnd(ctx context.Context, name string, node int) error {
	h.mu.Lock()
	job := h.jobs[name]
	if _, live := h.liveRanks[name]; !live {
		h.mu.Unlock()
		return nil
	}
	own := len(job.LocalRanks(node))
	h.liveRanks[name] -= own
	h.usedSlots[node] -= own
	over := h.liveRanks[name] <= 0
	if over {
		delete(h.liveRanks, name)
		delete(h.jobs, name)
		h.notifyChangeLocked()
	}
	h.mu.Unlock()
	if !over {
		return nil
	}
	return h.removeFromNodes(ctx, name)
}

func (h *Head) removeFromNodes(ctx context.Context, name string) error {
	return h.callNodes(ctx, opRemove, operation{Proc: ProcID{name, AllRanks}}, func(int) bool { return true })
}

// AwaitSpawnedJobs waits until the ranks of all spawned jobs have ended. If ctx ends first, it
// returns context.Cause(ctx).
func (h *Head) AwaitSpawnedJobs(ctx context.Context) error {
	for {
		h.mu.Lock()
		left, changed := len(h.liveRanks), h.changed
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

// PlaceRanks returns the node of each rank of a command. Each rank in turn is placed on the node
// with the most free slots, among those that the "host" entry of the command's Info allows. It adds
// the ranks to used. The error is NoSpace if there are too few slots, and BadParam if the number of
// ranks is negative or a host is not in hosts.
func PlaceRanks(c Command, hosts []string, slots, used []int, oversubscribe bool) ([]int, error) {
	// Check the request.
	allowed, err := allowedNodes(c.Info["host"], hosts)
	if err != nil {
		return nil, err
	}
	if c.Ranks < 0 {
		return nil, fmt.Errorf("cannot place %d ranks: %w", c.Ranks, BadParam)
	}
	if c.Ranks > MaxRanks {
		return nil, fmt.Errorf("cannot place %d ranks: at most %d are accepted: %w", c.Ranks, MaxRanks, NoSpace)
	}
	// Check that there are enough free slots.
	free, sum, all := make([]int, len(allowed)), 0, 0
	for i, node := range allowed {
		free[i] = slots[node] - used[node]
		sum += max(free[i], 0)
		all += slots[node]
	}
	if sum < c.Ranks && !oversubscribe {
		return nil, fmt.Errorf("cannot place %d %s: only %d of %d slots on %d %s can be used: "+
			"give a higher --slots-per-node=N, or --oversubscribe: %w", c.Ranks, textutil.PluralForm(c.Ranks, "rank"),
			sum, all, len(allowed), textutil.PluralForm(len(allowed), "node"), NoSpace)
	}
	// Assign the ranks.
	var nodes []int
	for i, n := range shareRanks(c.Ranks, free) {
		used[allowed[i]] += n
		nodes = append(nodes, slices.Repeat([]int{allowed[i]}, n)...)
	}
	return nodes, nil
}

// shareRanks returns how many of n ranks each node gets. The result is the same as if each rank in
// turn were placed on the node with the most free slots then, the first of them on a tie.
func shareRanks(n int, free []int) []int {
	above := func(level int) (sum int) {
		for _, f := range free {
			sum += max(f-level, 0)
		}
		return sum
	}
	// In the result, all nodes are filled down to the same level of free slots, and the first of these
	// nodes have one free slot less.
	highest := slices.Max(free)
	level := highest - sort.Search(n, func(down int) bool { return above(highest-down-1) > n })
	given, rest := make([]int, len(free)), n-above(level)
	for i, f := range free {
		if given[i] = max(f-level, 0); f >= level && rest > 0 {
			given[i]++
			rest--
		}
	}
	return given
}

// allowedNodes returns the nodes that a list of hosts ("host" or "host:N") names; all nodes if the
// list is empty.
func allowedNodes(list string, hosts []string) (allowed []int, err error) {
	for word := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		host, _, _ := strings.Cut(word, ":")
		node := slices.IndexFunc(hosts, func(known string) bool { return shortHost(known) == shortHost(host) })
		if node < 0 {
			return nil, fmt.Errorf("cannot spawn on %s: it is not a node of this run; the nodes are %s: %w",
				host, textutil.JoinLimited(hosts, 16, ", "), BadParam)
		}
		if !slices.Contains(allowed, node) {
			allowed = append(allowed, node)
		}
	}
	if allowed == nil {
		for node := range hosts {
			allowed = append(allowed, node)
		}
	}
	slices.Sort(allowed)
	return allowed, nil
}

func shortHost(host string) string {
	name, _, _ := strings.Cut(host, ".")
	return name
}

// NodeRanks returns the job's ranks by node, with their run-wide numbers, for the rendezvous.
func (j *Job) NodeRanks() []rendezvous.NodeRanks {
	places := make([]rendezvous.NodeRanks, len(j.Hosts))
	for node, host := range j.Hosts {
		places[node] = rendezvous.NodeRanks{Node: node, Host: host}
	}
	for rank, node := range j.Nodes {
		places[node].Ranks = append(places[node].Ranks, j.FirstNumber+rank)
	}
	return places
}
