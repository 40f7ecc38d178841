package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// judgeLaunch judges what the launcher has started.
func judgeLaunch(c Case) []Finding {
	f := check.Finding{ID: "launch", Class: check.User}
	switch {
	case c.Mistake != nil:
		f.Verdict, f.Observed, f.Hint = check.Fail, c.Mistake.Problem, ours(c.Mistake.Mend)
	case c.Alone != nil:
		f.Verdict, f.Class = check.Skip, ""
		f.Observed = "this node alone: what needs several (the ways between them, whether they share " + c.LogDir + ") is not looked at; " + alone(c)
		return []Finding{{Finding: f}}
	default:
		f.Verdict, f.Class = check.Pass, ""
		f.Observed = fmt.Sprintf("%s, one daemon on each of %d nodes", c.Launcher, c.Size)
		if c.Size == 1 {
			f.Observed = fmt.Sprintf("%s, one daemon on one node", c.Launcher)
		}
	}
	return []Finding{{Finding: f}}
}

// ours is what a launch error says of how to start a daemon.
func ours(mend string) string { return strings.ReplaceAll(mend, "bringupd …", "bringupd doctor …") }

// alone is how all nodes would be looked at.
func alone(c Case) string {
	mend, _, _ := strings.Cut(c.Alone.Mend, ", or on this")
	return ours(mend)
}

// slowTrip is a round trip of two records that makes a bring-up, which has a
// dozen of them one after the other, take a minute more.
const slowTrip = 5 * time.Second

// judgeMeeting judges whether the nodes have met on the share, and how soon they
// see what others write.
func judgeMeeting(c Case) []Finding {
	if c.ShareErr != nil {
		return []Finding{{Finding: shareError(c)}}
	}
	kind := ""
	if len(c.Facts) > 0 && c.Facts[0].Share.FileSystem != "" {
		kind = " (" + c.Facts[0].Share.FileSystem + ")"
	}
	f := check.Finding{ID: "share.seen", Verdict: check.Pass, Source: c.LogDir}
	switch {
	case c.Alone != nil || c.Mistake != nil || c.Size == 1:
		f.Observed = fmt.Sprintf("%s%s can be written; whether other nodes see it is not known", c.LogDir, kind)
	case len(c.NotSeen) > 0:
		return append([]Finding{c.notSeen(f, kind)}, c.silent()...)
	default:
		f.Observed = fmt.Sprintf("all %d nodes see and write %s%s", c.Size, c.LogDir, kind)
	}
	return append(append([]Finding{{Finding: f}}, c.silent()...), judgeTrips(c)...)
}

func shareError(c Case) check.Finding {
	f := check.Finding{
		ID: "share.seen", Verdict: check.Fail, Class: check.User, Source: c.LogDir,
		Observed: c.ShareErr.Error(), Hint: "give a --log-dir that all nodes share and you can write to",
	}
	if wrong, ok := c.ShareErr.(*signal.DirError); ok {
		f.Observed = fmt.Sprintf("%s can't be used on %s: %s", wrong.Path, wrong.Host, wrong.Seen)
		f.Hint = wrong.Mend
	}
	return f
}

func (c Case) notSeen(f check.Finding, kind string) Finding {
	f.Verdict, f.Class = check.Fail, check.User
	f.Observed = fmt.Sprintf("%d of %d nodes were not seen in %s%s for %s: %s",
		len(c.NotSeen), c.Size, c.LogDir, kind, c.Waited.Round(time.Second/10), c.hosts(c.NotSeen))
	f.Expected = "a record of each node"
	f.Hint = "see whether the same file system is mounted there (findmnt -T " + c.LogDir +
		"), whether their tasks have started, or give a --log-dir that all nodes share"
	return c.about(f, c.NotSeen)
}

// silent tells of nodes that were seen, and never told their facts.
func (c Case) silent() []Finding {
	if len(c.Silent) == 0 {
		return nil
	}
	return []Finding{c.about(check.Finding{
		ID: "node.answer", Verdict: check.Fail, Class: check.Node,
		Observed: "no facts came from " + c.hosts(c.Silent), Expected: "an answer of each node that was seen",
		Hint: "see whether a GPU's driver, a disk or the share hangs there; what their tasks said is on standard error",
	}, c.Silent)}
}

// judgeTrips tells how long a record and its answer take.
func judgeTrips(c Case) []Finding {
	if len(c.Trips) == 0 || c.Size == 1 {
		return nil
	}
	slowest := -1
	var late []int
	for rank := range c.Size {
		trip, known := c.Trips[rank]
		if !known || rank == 0 { // the head answers itself
			continue
		}
		if slowest < 0 || trip > c.Trips[slowest] {
			slowest = rank
		}
		if trip > slowTrip {
			late = append(late, rank)
		}
	}
	if slowest < 0 {
		return nil
	}
	f := check.Finding{
		ID: "share.delay", Verdict: check.Pass,
		Observed: fmt.Sprintf("a record of the head was answered within %s, last by %s", prose.Span(c.Trips[slowest], time.Minute), c.host(slowest)),
	}
	if len(late) == 0 {
		return []Finding{{Finding: f}}
	}
	f.Verdict, f.Class, f.Expected = check.Warn, check.Node, "an answer within "+slowTrip.String()
	f.Observed += "; too late by " + c.hosts(late)
	f.Hint = "see the mount's options for how long a directory is cached (acdirmax, actimeo), and the load of its server"
	return []Finding{c.about(f, late)}
}

// several tells whether other nodes are asked.
func (c Case) several() bool { return c.Alone == nil && c.Mistake == nil && c.Size > 1 }

// apart tells whether the nodes should be different machines.
func (c Case) apart() bool { return c.several() && c.Launcher != roles.Local }
