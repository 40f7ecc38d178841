package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// traced leaves a trace of a record that was published. What comes after the
// trail has been written for good leaves none: it would cost every node of
// thousands one more write, and the records tell the same.
func (n *node) traced(name string, publish func() error) error {
	began := time.Now()
	err := publish()
	last := name == signal.NodeName(n.id.Rank, n.id.Size, signal.Done)
	if err == nil && !last {
		n.trail.published(name, began)
	}
	return err
}

// published notes that a record is there for all to see, and since when it may
// have been.
func (t *trail) published(name string, began time.Time) {
	t.event(signal.EventTold, zap.String("record", name), zap.Int64("took_ns", time.Since(began).Nanoseconds()))
}

// sightings returns what takes in a look at Control, and notes what of the
// head's it shows for the first time.
func (t *trail) sightings() func(l signal.Listing, size int) {
	seen := make(map[string]bool)
	return func(l signal.Listing, size int) {
		names := []string{signal.NameHead, signal.NameGo, signal.NameDrain}
		if newest := l.Team(); newest >= 0 {
			names = append(names, signal.TeamName(newest))
		}
		for _, rank := range l.Aborts() {
			names = append(names, signal.AbortName(rank, size))
		}
		for _, name := range names {
			if !seen[name] && l.Has(name) {
				seen[name] = true
				t.event(signal.EventSaw, zap.String("record", name))
			}
		}
	}
}

// musters returns what takes in the head's look at Nodes, and notes which ranks
// it shows in a state for the first time.
func (t *trail) musters() func(l signal.Listing) {
	known := make(map[string][]int)
	return func(l signal.Listing) {
		for _, state := range l.States() {
			ranks := l.Ranks(state)
			if len(ranks) == len(known[state]) {
				continue
			}
			fresh := without(ranks, known[state])
			known[state] = ranks
			t.event(signal.EventReached, zap.String("state", state), zap.String("ranks", check.Ranges(fresh)))
		}
	}
}

const (
	// mostProbes bounds how often a service's probe leaves a trace: what it sees
	// may be something else each time.
	mostProbes = 10
	// longestSeen bounds in bytes what a probe saw.
	longestSeen = 300
)

// probed returns a look that notes when it sees something else than before.
func (t *trail) probed(child string, look func(context.Context) error) func(context.Context) error {
	told, traces := "", 0
	return func(ctx context.Context) error {
		err := look(ctx)
		if ctx.Err() != nil {
			return err
		}
		if err == nil {
			t.event(signal.EventProbe, zap.String("child", child), zap.Bool("ok", true))
			return nil
		}
		if seen := err.Error(); seen != told && traces < mostProbes {
			told, traces = seen, traces+1
			t.event(signal.EventProbe, zap.String("child", child), zap.Bool("ok", false), zap.String("seen", seen[:min(len(seen), longestSeen)]))
		}
		return err
	}
}

// exited notes once how a child has ended.
func (t *trail) exited(child *process.Child) {
	key := fmt.Sprint(child.Name(), " ", child.Pid())
	t.mu.Lock()
	told := t.exits[key]
	t.exits[key] = true
	t.mu.Unlock()
	if !told {
		t.event(signal.EventExit, zap.String("child", child.Name()), zap.Int("pid", child.Pid()), zap.String("exit", child.Exit().String()))
	}
}

// longestHosts bounds in bytes the names of all hosts in the job's record, which
// every node reads.
const longestHosts = 128 << 10

// hostList is the hosts of all ranks in their order, as short as it can be;
// empty where the launcher does not tell, or it would be too long.
func hostList(hosts []string) string {
	list := roles.CompactNodeList(hosts)
	if back, err := roles.ExpandNodeList(list, len(hosts)); err != nil || !slices.Equal(back, hosts) {
		list = strings.Join(hosts, ",")
	}
	if len(list) > longestHosts || slices.Contains(hosts, "") {
		return ""
	}
	return list
}
