package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// judgeLaunch judges what the launcher has started.
func judgeLaunch(c scene) []Finding {
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

// ours turns a launch error's line that starts a job into one that starts the doctor.
func ours(mend string) string { return strings.ReplaceAll(mend, "bringupd …", "bringupd doctor …") }

// alone tells how to look at all nodes instead of this one alone.
func alone(c scene) string {
	mend, _, _ := strings.Cut(c.Alone.Mend, ", or on this")
	return ours(mend)
}

// slowTrip is a round trip of two records that makes a bring-up, which has a
// dozen of them one after the other, take a minute more.
const slowTrip = 5 * time.Second

// judgeMeeting judges whether the nodes have met on the share, and how soon they see what others write.
func judgeMeeting(c scene) []Finding {
	seen := c.seen()
	seen.Source = c.LogDir
	switch {
	case c.ShareErr != nil:
		return whole(seen)
	case seen.Verdict != check.Pass:
		return append([]Finding{c.about(seen, c.NotSeen)}, c.silent()...)
	default:
		return slices.Concat(whole(seen), c.silent(), judgeTrips(c))
	}
}

// seen tells whether all nodes were seen on the share.
func (c scene) seen() check.Finding {
	const id = line("share.seen")
	kind := ""
	if len(c.Facts) > 0 && c.Facts[0].Share.FileSystem != "" {
		kind = " (" + c.Facts[0].Share.FileSystem + ")"
	}
	wrong, isDir := c.ShareErr.(*signal.DirError)
	switch {
	case isDir:
		return id.fail(check.User, fmt.Sprintf("%s can't be used on %s: %s", wrong.Path, wrong.Host, wrong.Seen), "", wrong.Mend)
	case c.ShareErr != nil:
		return id.fail(check.User, c.ShareErr.Error(), "", "give a --log-dir that all nodes share and you can write to")
	case c.Alone != nil || c.Mistake != nil || c.Size == 1:
		return id.pass(fmt.Sprintf("%s%s can be written; whether other nodes see it is not known", c.LogDir, kind))
	case len(c.NotSeen) > 0:
		return id.fail(check.User, fmt.Sprintf("%d of %d nodes were not seen in %s%s for %s: %s",
			len(c.NotSeen), c.Size, c.LogDir, kind, c.Waited.Round(time.Second/10), c.hosts(c.NotSeen)), "a record of each node",
			"see whether the same file system is mounted there (findmnt -T "+c.LogDir+
				"), whether their tasks have started, or give a --log-dir that all nodes share")
	default:
		return id.pass(fmt.Sprintf("all %d nodes see and write %s%s", c.Size, c.LogDir, kind))
	}
}

// silent tells of nodes that were seen, and never told their facts.
func (c scene) silent() []Finding {
	if len(c.Silent) == 0 {
		return nil
	}
	return []Finding{c.about(line("node.answer").fail(check.Node,
		"no facts came from "+c.hosts(c.Silent), "an answer of each node that was seen",
		"see whether a GPU's driver, a disk or the share hangs there; what their tasks said is on standard error"), c.Silent)}
}

// judgeTrips tells how long a record and its answer take.
func judgeTrips(c scene) []Finding {
	const id = line("share.delay")
	ranks := slices.Sorted(maps.Keys(c.Trips))
	ranks = slices.DeleteFunc(ranks, func(rank int) bool { return rank == 0 }) // the head answers itself
	if len(ranks) == 0 {
		return nil
	}
	slowest := slices.MaxFunc(ranks, func(a, b int) int { return cmp.Compare(c.Trips[a], c.Trips[b]) })
	observed := fmt.Sprintf("a record of the head was answered within %s, last by %s", prose.Span(c.Trips[slowest], time.Minute), c.host(slowest))
	late := slices.DeleteFunc(ranks, func(rank int) bool { return c.Trips[rank] <= slowTrip })
	if len(late) == 0 {
		return whole(id.pass(observed))
	}
	return []Finding{c.about(id.warn(check.Node, observed+"; too late by "+c.hosts(late), "an answer within "+slowTrip.String(),
		"see the mount's options for how long a directory is cached (acdirmax, actimeo), and the load of its server"), late)}
}

// several tells whether other nodes are asked.
func (c scene) several() bool { return c.Alone == nil && c.Mistake == nil && c.Size > 1 }

// apart tells whether the nodes should be different machines.
func (c scene) apart() bool { return c.several() && c.Launcher != roles.Local }
