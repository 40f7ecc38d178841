package health_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// The timing of the tests: a heartbeat each 2 s, silence after 10 s, and a poll each 1.6 s.
const (
	peerTimeout = 16 * time.Second
	silence     = 10 * time.Second
)

// lossesTest has the state machine of a head with three peers, and what it is told about them.
type lossesTest struct {
	*health.Losses
	began    time.Time
	silent   bool         // no kernel of a peer's host acknowledges
	linkDown bool         // the head's interface is down
	spare    map[int]bool // the spares
	beats    int64        // the newest heartbeat file of the nodes that beat
	polls    int
	names    []string // in the last listing
	share    time.Duration
	outlasts bool
	over     bool
}

func newLossesTest(linked ...int) *lossesTest {
	w := &lossesTest{began: time.Now(), spare: make(map[int]bool)}
	timing := health.HeadHeartbeatTiming(peerTimeout, 1)
	standby := timing
	standby.SilenceTimeout *= 8
	links := health.NewLinks(health.LinksConfig{Interval: timing.HeartbeatInterval,
		TCPState: func(int) peerlink.TCPState {
			return peerlink.TCPState{Connected: true, Acknowledges: !w.silent}
		}}, w.began)
	for _, node := range linked {
		links.SetConnected(node, w.began)
	}
	w.Losses = health.NewLosses(health.LossesConfig{
		Timing: timing, StandbyTiming: standby, PeerTimeout: peerTimeout, Size: 4, Links: links,
		Monitored: func(l signal.Listing, standby bool) map[int]int64 {
			alive := make(map[int]int64)
			for node := 1; node < 4; node++ {
				if w.spare[node] == standby && !l.IsIn(node, record.StateFailed, record.StateDone) {
					alive[node] = l.Heartbeats()[node]
				}
			}
			return alive
		},
		Name:  func(node int) string { return fmt.Sprint("n", node) },
		Names: func(nodes []int) string { return fmt.Sprint(nodes) },
		LinkDown: func() *health.Failure {
			if w.linkDown {
				return &health.Failure{Failure: record.Failure{Kind: health.CutOff, LostNodes: []int{0}}}
			}
			return nil
		},
		CutOff: func(string) *health.Failure {
			return &health.Failure{Failure: record.Failure{Kind: health.CutOff, LostNodes: []int{0}}}
		},
	})
	return w
}

// next passes an event on, at a time after the beginning, and describes what must be done.
func (w *lossesTest) next(at time.Duration, in health.LossInput) string {
	in.Now = w.began.Add(at)
	w.Links.RecordTick(in.Now)
	shown := signal.DirSnapshot{Names: w.names}
	in.Listing = shown.ParseListing(4)
	in.Listing.Polls, in.Listing.PolledAt = w.polls, in.Now
	in.ShareSilence, in.OutlastsShare, in.RunOver = w.share, w.outlasts, w.over
	out := w.Next(in)
	var all []string
	describe := func(order string, failures []health.ObservedFailure) {
		for _, f := range failures {
			all = append(all, fmt.Sprint(order, " ", f.Kind, f.LostNodes))
		}
	}
	describe("record", out.Record)
	describe("verify", out.Verify)
	describe("classify", out.Classify)
	if out.Complete {
		all = append(all, "complete")
	}
	return strings.Join(all, ", ")
}

// A lossStep is an event at a time, and what must be done then.
type lossStep struct {
	at   time.Duration
	do   func(w *lossesTest, at time.Duration) string
	want string
}

func passTime(w *lossesTest, at time.Duration) string { return w.next(at, health.LossInput{}) }

// poll returns the event of a poll that lists names, and new heartbeat files of nodes.
func poll(names string, beating ...int) func(w *lossesTest, at time.Duration) string {
	return func(w *lossesTest, at time.Duration) string {
		w.polls++
		w.beats++
		w.names = strings.Fields(names)
		for _, node := range beating {
			w.names = append(w.names, fmt.Sprintf("%04d.beat.%06d", node, w.beats))
		}
		return w.next(at, health.LossInput{Listed: true})
	}
}

// end returns the event of the end of the peer link to node 1.
func end(reason peerlink.CloseReason) func(w *lossesTest, at time.Duration) string {
	return func(w *lossesTest, at time.Duration) string {
		w.Links.SetDisconnected(1, reason)
		return w.next(at, health.LossInput{Ended: true, Node: 1, Reason: reason})
	}
}

// heartbeat returns the event that nodes have sent heartbeats.
func heartbeat(shareUnresponsive bool, nodes ...int) func(w *lossesTest, at time.Duration) string {
	return func(w *lossesTest, at time.Duration) string {
		for _, node := range nodes {
			w.Links.RecordHeartbeat(node, shareUnresponsive, w.began.Add(at))
		}
		return w.next(at, health.LossInput{})
	}
}

// set returns the event of a change.
func set(change func(w *lossesTest)) func(w *lossesTest, at time.Duration) string {
	return func(w *lossesTest, _ time.Duration) string {
		change(w)
		return ""
	}
}

// fail returns the event of a failure that ends the run, seen now.
func fail(f record.Failure) func(w *lossesTest, at time.Duration) string {
	return func(w *lossesTest, at time.Duration) string {
		w.over = true
		seen := health.ObservedFailure{Failure: f, ObservedAt: w.began.Add(at)}
		return w.next(at, health.LossInput{Failed: []health.ObservedFailure{seen}})
	}
}

// hold returns the event that node 1 has failed a check of the environment.
func hold(w *lossesTest, at time.Duration) string {
	f := record.Failure{Kind: health.CheckEnvironment, Header: record.Header{NodeIndex: 1}}
	return fmt.Sprint("held: ", w.Hold(health.ObservedFailure{Failure: f, ObservedAt: w.began.Add(at)}))
}

// await returns the event that a verdict waits for evidence, at most for a time since the beginning.
func await(wait health.EvidenceWait, until time.Duration) func(w *lossesTest, at time.Duration) string {
	return func(w *lossesTest, at time.Duration) string {
		wait.Until = w.began.Add(until)
		return w.next(at, health.LossInput{Wait: &wait})
	}
}

// TestLosses verifies what follows from each sequence of events.
func TestLosses(t *testing.T) {
	const second = time.Second
	polled := func(from, to time.Duration, names string, beating ...int) (steps []lossStep) {
		for at := from; at < to; at += second {
			steps = append(steps, lossStep{at, poll(names, beating...), ""})
		}
		return steps
	}
	hearing := func(from, to time.Duration, nodes ...int) (steps []lossStep) {
		for at := from; at < to; at += second {
			steps = append(steps, lossStep{at, heartbeat(false, nodes...), ""})
		}
		return steps
	}
	isOver := lossStep{0, set(func(w *lossesTest) { w.over = true }), ""}
	unreachable := lossStep{0, set(func(w *lossesTest) { w.silent = true }), ""}
	runs := lossStep{0, set(func(w *lossesTest) { w.Links.SetRunning(true) }), ""}
	shareSilent := func(silent time.Duration) lossStep {
		return lossStep{0, set(func(w *lossesTest) { w.share = silent }), ""}
	}
	outlasts := lossStep{0, set(func(w *lossesTest) { w.outlasts = true }), ""}
	spare := lossStep{0, set(func(w *lossesTest) { w.spare[1] = true }), ""}
	all := []int{1, 2, 3}
	symptom := record.Failure{Kind: health.RankFailed, WorldRank: &record.WorldRank{Symptom: "lost its connection"}}
	peers, causes := health.EvidenceWait{Peers: true}, health.EvidenceWait{Causes: true}
	for _, tc := range []struct {
		name   string
		linked []int
		steps  [][]lossStep
	}{
		{"a closed link", all, [][]lossStep{{{second, end(peerlink.Closed), "record daemon-died[1]"}}}},
		{"a closed link of a node that is done", all, [][]lossStep{{{0, poll("0001.done"), ""},
			{second, end(peerlink.Closed), ""}}}},
		{"a closed link of a node that has failed", all, [][]lossStep{{{0, poll("0001.failed"), ""},
			{second, end(peerlink.Closed), ""}}}},
		{"a closed link of a node without its file system", all, [][]lossStep{{{0, heartbeat(true, 1), ""},
			{second, end(peerlink.Closed), "record host-hangs[1]"}}}},
		{"a broken link", all, [][]lossStep{{{second, end(peerlink.Broken), ""}, {second, poll("", 2, 3), ""}}}},
		{"a goodbye, and the end in the first poll", all, [][]lossStep{{{0, end(peerlink.Goodbye), ""},
			{second, poll("0001.done"), ""}, {2 * second, poll("0001.done"), ""}}}},
		{"a goodbye, and the end in the second poll", all, [][]lossStep{{{0, end(peerlink.Goodbye), ""},
			{second, poll(""), ""}, {2 * second, poll("0001.failed"), ""}}}},
		{"a goodbye, and two polls without the end", all, [][]lossStep{{{0, end(peerlink.Goodbye), ""},
			{second, poll(""), ""}, {2 * second, poll(""), "record host-hangs[1]"}, {3 * second, poll(""), ""}}}},
		{"a goodbye, and no second poll in time", all, [][]lossStep{{{0, end(peerlink.Goodbye), ""},
			{second, poll(""), ""}, {silence, passTime, ""}, {silence + second, poll("", all...), ""}}}},
		{"a goodbye while the job can do without files", all, [][]lossStep{{outlasts,
			{0, end(peerlink.Goodbye), ""}, shareSilent(silence / 2), {second, passTime, ""},
			shareSilent(silence/2 + 1), {2 * second, passTime, "record host-hangs[1]"}, {3 * second, passTime, ""}}}},
		{"a goodbye while it needs files", all, [][]lossStep{{{0, end(peerlink.Goodbye), ""},
			shareSilent(silence/2 + 1), {second, passTime, ""}, {2 * second, poll("", all...), ""},
			{3 * second, poll("", all...), ""}}}},

		{"heartbeat files", nil, [][]lossStep{polled(0, 20*second, "", all...)}},
		{"heartbeats on links", all, [][]lossStep{hearing(0, second, all...), polled(second, silence, ""),
			hearing(silence, silence+second, all...), polled(silence+second, 2*silence, "")}},
		{"no files of one node", nil, [][]lossStep{polled(0, silence, "", 2, 3),
			{{silence, poll("", 2, 3), "verify peer-lost[1]"}, {silence + second, poll("", 2, 3), ""}}}},
		{"no files of any", nil, [][]lossStep{polled(0, silence, ""),
			{{silence, poll(""), "verify peer-lost[1 2 3]"}}}},
		{"a lost host", all, [][]lossStep{{unreachable}, polled(0, silence, "", 2, 3),
			{{silence, poll("", 2, 3), "record host-lost[1]"}}}},
		{"a host that hangs", all, [][]lossStep{polled(0, silence, "", 2, 3),
			{{silence, poll("", 2, 3), "record host-hangs[1]"}}}},
		{"a daemon with a broken link", all, [][]lossStep{{{0, end(peerlink.Broken), ""}},
			polled(0, silence, "", 2, 3), {{silence, poll("", 2, 3), "record daemon-died[1]"}}}},
		{"a lost host, and one that was never connected", []int{1, 2}, [][]lossStep{{unreachable},
			polled(0, silence, "", 2), {{silence, poll("", 2), "verify host-lost[1], verify peer-lost[3]"}}}},
		{"two hosts of three", all, [][]lossStep{{unreachable}, polled(0, silence, "", 3),
			{{silence, poll("", 3), "record host-lost[1 2]"}}}},
		{"all hosts", all, [][]lossStep{{unreachable}, polled(0, silence, ""),
			{{silence, poll(""), "verify cut-off[0]"}}}},
		{"the only host", all, [][]lossStep{{unreachable}, polled(0, silence, "0002.done 0003.done"),
			{{silence, poll("0002.done 0003.done"), "verify host-lost[1]"}}}},
		{"a lost host while the interface is down", all, [][]lossStep{{unreachable,
			{0, set(func(w *lossesTest) { w.linkDown = true }), ""}}, polled(0, silence, "", 2, 3),
			{{silence, poll("", 2, 3), "record cut-off[0]"}}}},
		{"a spare", nil, [][]lossStep{{spare}, polled(0, 8*silence, "", 2, 3),
			{{8 * silence, poll("", 2, 3), "verify peer-lost[1]"}}}},
		{"a spare at the end", nil, [][]lossStep{{spare}, polled(0, 8*silence, "", 2, 3), {isOver,
			{8 * silence, poll("", 2, 3), ""}}}},
		{"a silent node at the end", all, [][]lossStep{{isOver}, polled(0, silence+second, "", 2, 3)}},
		{"a silent node with a broken link at the end", all, [][]lossStep{{{0, end(peerlink.Broken), ""}, isOver},
			polled(0, silence, "", 2, 3), {{silence, poll("", 2, 3), "record daemon-died[1]"}}}},
		{"a silent node that a verdict awaits", all, [][]lossStep{{unreachable},
			polled(0, silence, "", 2, 3), {isOver, {silence, await(peers, 2*silence), ""},
				{silence, poll("", 2, 3), "record host-lost[1]"}}}},
		{"a silent node that a verdict has awaited", all, [][]lossStep{{unreachable},
			polled(0, silence, "", 2, 3), {isOver, {silence, await(peers, silence), "complete"},
				{silence, poll("", 2, 3), ""}}}},
		{"a silent node while a verdict awaits a listing", all, [][]lossStep{{unreachable},
			polled(0, silence, "", 2, 3), {isOver,
				{silence, await(health.EvidenceWait{Polls: 99}, 2*silence), ""}, {silence, poll("", 2, 3), ""}}}},

		{"one silent link without files", all, [][]lossStep{{runs, shareSilent(peerTimeout + 1)},
			hearing(0, silence, 2, 3), {{silence, heartbeat(false, 2, 3), "record host-hangs[1]"}}}},
		{"all links without files", all, [][]lossStep{{runs, shareSilent(peerTimeout + 1)},
			{{0, heartbeat(false, all...), ""}, {silence, passTime, ""}}}},
		{"a silent link before the file system is too", all, [][]lossStep{{runs, shareSilent(peerTimeout)},
			hearing(0, 2*silence, 2, 3)}},
		{"a silent link before the job runs", all, [][]lossStep{{shareSilent(peerTimeout + 1)},
			hearing(0, 2*silence, 2, 3)}},
		{"a silent link at the end", all, [][]lossStep{{runs, isOver, shareSilent(peerTimeout + 1)},
			hearing(0, 2*silence, 2, 3)}},

		{"a failed check, and nothing of the others", nil, [][]lossStep{{{0, hold, "held: true"},
			{second, poll("", all...), ""}}, polled(2*second, 30*second, "", all...),
			{{30 * second, poll("", all...), "classify check-environment[]"}}}},
		{"a failed check that another node passes", nil, [][]lossStep{{{0, hold, "held: true"},
			{second, poll("0002.checked"), "classify check-environment[]"}, {2 * second, poll("0002.checked"), ""}}}},
		{"a failed check, and a verdict", nil, [][]lossStep{{{0, hold, "held: true"},
			{second, await(causes, 0), ""}, {2 * second, hold, "held: false"},
			{29 * second, await(causes, 0), ""}, {30 * second, await(causes, 0), "complete"},
			{31 * second, poll("0002.checked"), ""}}}},

		{"a verdict that waits for a listing", nil, [][]lossStep{{{0, poll(""), ""},
			{0, await(health.EvidenceWait{Polls: 2}, second), ""}, {0, poll(""), ""},
			{0, await(health.EvidenceWait{Polls: 2}, second), ""}, {0, poll(""), ""},
			{0, await(health.EvidenceWait{Polls: 2}, second), "complete"}}}},
		{"no listing in time", nil, [][]lossStep{{{0, await(health.EvidenceWait{Polls: 2}, second), ""},
			{second, await(health.EvidenceWait{Polls: 2}, second), "complete"}}}},
		{"a verdict that waits for peers", all, [][]lossStep{{{0, await(peers, silence), "complete"}},
			hearing(second, 5*second, 2, 3), {{5 * second, await(peers, silence), ""},
				{6 * second, heartbeat(false, 1, 2, 3), ""}, {6 * second, await(peers, silence), "complete"}}}},
		{"a peer that is lost", all, [][]lossStep{hearing(0, 5*second, 2, 3),
			{{5 * second, await(peers, silence), ""},
				{5 * second, fail(record.Failure{Kind: health.HostLost, LostNodes: []int{1}}), ""},
				{5 * second, await(peers, silence), "complete"}}}},
		{"a peer that does not answer in time", all, [][]lossStep{hearing(0, 5*second, 2, 3),
			{{5 * second, await(peers, silence), ""}, {silence, await(peers, silence), "complete"}}}},
		{"no links", nil, [][]lossStep{{{5 * second, await(peers, silence), "complete"}}}},
		{"a cause", nil, [][]lossStep{{{0, fail(record.Failure{Kind: health.ServiceDied}), ""},
			{0, await(causes, 0), "complete"}}}},
		{"a symptom, whose cause may follow", nil, [][]lossStep{{{0, fail(symptom), ""},
			{0, await(causes, 0), ""}, {second, await(causes, 0), "complete"}}}},
		{"a symptom, and its cause", nil, [][]lossStep{{{0, fail(symptom), ""}, {0, await(causes, 0), ""},
			{0, fail(record.Failure{Kind: health.ServiceDied}), ""}, {0, await(causes, 0), "complete"}}}},
	} {
		w := newLossesTest(tc.linked...)
		for i, step := range slices.Concat(tc.steps...) {
			if got := step.do(w, step.at); got != step.want {
				t.Errorf("%s: step %d at %s: %q, want %q", tc.name, i, step.at, got, step.want)
			}
		}
	}
}

// TestSilentAtEnd verifies that silence alone is no loss at the end, but is known.
func TestSilentAtEnd(t *testing.T) {
	w := newLossesTest(1, 2, 3)
	w.over = true
	for at := time.Duration(0); at <= silence; at += time.Second {
		if got := poll("", 2, 3)(w, at); got != "" {
			t.Errorf("%s after the beginning: %s", at, got)
		}
	}
	if !slices.Equal(w.SilentAtEnd, []int{1}) {
		t.Errorf("%v are silent, want node 1", w.SilentAtEnd)
	}
}

// TestLossDelay verifies that a loss counts from the first sign of it.
func TestLossDelay(t *testing.T) {
	w := newLossesTest(1, 2, 3)
	verify := func(name string, losses []health.ObservedFailure, at, delay time.Duration) {
		if len(losses) != 1 || losses[0].RecordDelay != delay || !losses[0].ObservedAt.Equal(w.began.Add(at)) {
			t.Errorf("%s: %+v", name, losses)
		}
	}
	closed := health.LossInput{Ended: true, Node: 1, Reason: peerlink.Closed, Now: w.began}
	verify("a closed link", w.Next(closed).Record, 0, peerlink.ReconnectTimeout)
	w.Links.SetRunning(true)
	w.Links.RecordHeartbeat(2, false, w.began.Add(silence))
	w.Links.RecordHeartbeat(1, false, w.began.Add(silence))
	for at := time.Second; at <= silence; at += time.Second {
		w.Links.RecordTick(w.began.Add(at))
	}
	quiet := health.LossInput{Now: w.began.Add(silence), ShareSilence: peerTimeout + 1}
	verify("silence", w.Next(quiet).Record, silence, silence-2*time.Second)
}

func TestLossWaitTime(t *testing.T) {
	const silence, heartbeat = 5 * time.Second, time.Second
	for kind, want := range map[health.Kind]time.Duration{
		health.ServiceDied: silence, health.SandboxDied: silence,
		health.RankFailed: silence, health.RankAborted: silence,
		health.HostLost: heartbeat, health.DaemonDied: heartbeat,
		health.Terminated: heartbeat, health.Interrupted: heartbeat, health.JobDeadlinePassed: heartbeat,
		health.Signalled: heartbeat,
		health.Launch:    0, health.CheckFailed: 0, health.DeadlinePassed: 0,
	} {
		if got := health.LossWaitTime(kind, silence, heartbeat); got != want {
			t.Errorf("the verdict on %s waits %s, want %s", kind, got, want)
		}
	}
}
