package schedules

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// breach is the violation of a rule; a rule has the number of the invariant that it checks.
type breach struct {
	rule int
	at   time.Duration
	step int
	what string
}

func (b breach) String() string {
	return fmt.Sprintf("rule %d, step %d at %v: %s", b.rule, b.step, b.at, b.what)
}

// broke records a violation; c has made the step.
func (w *world) broke(rule int, c *client, format string, args ...any) {
	what := c.name() + " " + fmt.Sprintf(format, args...)
	w.breaches = append(w.breaches, breach{rule, w.Now(), w.steps, what})
}

// spot is a path, split into parts: logDir/run/sub/name. The files and directories in the run
// directory itself have no sub.
type spot struct{ run, sub, name string }

func spotOf(p string) spot {
	rest := strings.TrimPrefix(strings.TrimPrefix(p, logDir), "/")
	run, rest, _ := strings.Cut(rest, "/")
	sub, name, deep := strings.Cut(rest, "/")
	if !deep {
		return spot{run, "", sub}
	}
	return spot{run, sub, name}
}

// runOf returns the run directory that contains p, or nil if p is in none.
func (w *world) runOf(p string) *file {
	if s := spotOf(p); s.run != "" && (s.sub != "" || s.name != "") {
		return w.Find(logDir + "/" + s.run)
	}
	return nil
}

// own reports whether p is in a run that this attempt's head has made.
func (c *client) own(p string) bool {
	run := c.world.runOf(p)
	return run != nil && maker(run) != nil && maker(run).attempt == c.attempt
}

// mustHaveSeen checks rule 3: no name is opened or inspected before a listing has shown it. A run
// directory appears complete, so its parts are shown with it; the log directory is made by the
// first daemon that needs it; a daemon knows its own names.
func (w *world) mustHaveSeen(c *client, what, p string) {
	m, s := c.machine, spotOf(p)
	switch {
	case p == logDir && c.came, m.shown[p], c.made[p]:
		return
	case m.shown[logDir+"/"+s.run] && (s.sub == "" && isPart(s.name) ||
		s.sub == signal.ControlDir && (s.name == signal.NameJob || s.name == signal.SeriesPlan.Name(0))):
		return
	case c.rank == 0 && c.own(p) && (s.sub == "" && isPart(s.name)):
		return
	}
	w.broke(3, c, "wants to %s %s, which no listing has shown it", what, p)
}

func isPart(name string) bool {
	return slices.Contains([]string{signal.ControlDir, signal.NodesDir, signal.LogsDir, signal.EventsDir}, name)
}

// mayList checks rule 6: only the head lists directories with names of every node, to which a run
// directory itself does not belong. It also checks rule 7.
func (w *world) mayList(c *client, p string) {
	s := spotOf(p)
	if p == logDir+"/"+signal.BadNodesDir {
		return
	}
	run := s.run != "" && s.sub == "" && s.name == ""
	if p != logDir && !c.own(p) && (!run || !c.own(p+"/"+signal.ControlDir)) {
		w.broke(7, c, "lists %s, which is of another attempt", p)
	}
	if c.rank != 0 && p != logDir && !run && (s.sub != "" || s.name != signal.ControlDir) {
		w.broke(6, c, "lists %s", p)
	}
}

// mayRead checks rule 7: of another attempt only the job record is read, to distinguish it from the
// own one.
func (w *world) mayRead(c *client, p string) {
	if s := spotOf(p); !c.own(p) && (s.sub != signal.ControlDir || s.name != signal.NameJob) {
		w.broke(7, c, "reads %s, which is of another attempt", p)
	}
}

// mustBeWhole checks rule 2 for the reader.
func (w *world) mustBeWhole(c *client, p string, f *file) {
	if f.Open {
		w.broke(2, c, "reads %s, of which only %d bytes are there yet", p, len(f.Data))
	}
}

// mayCreate checks rule 2 for a name that is not renamed into place, and rule 5.
func (w *world) mayCreate(c *client, p string, empty bool) {
	w.mustOwn(c, "makes", p)
	old := w.Find(p)
	switch {
	case !hidden(p) && !empty:
		w.broke(2, c, "makes %s, which others may read before all of it is there", p)
	case !hidden(p) && old != nil && (maker(old) != c || len(old.Data) > 0):
		w.broke(2, c, "writes over %s", p)
	case old != nil && maker(old) != c:
		w.broke(5, c, "writes over the temporary %s of another", p)
	}
}

func isBeat(p string) bool {
	return strings.Contains(path.Base(p), "."+string(record.StateHeartbeat)+".")
}

// mayExtend checks that only logs are appended to, and never records.
func (w *world) mayExtend(c *client, p string) {
	w.mustOwn(c, "appends to", p)
	if s := spotOf(p); s.sub != signal.LogsDir && s.sub != signal.EventsDir {
		w.broke(2, c, "appends to %s, which is no log", p)
	}
	if old := w.Find(p); old != nil && maker(old) != c {
		w.broke(5, c, "appends to %s, which another has made", p)
	}
}

// mayRename checks rule 2: only heartbeats are renamed away, and no file is renamed over another
// name.
func (w *world) mayRename(c *client, from, to string, f *file) {
	counts := isBeat(from) && isBeat(to) && path.Dir(from) == path.Dir(to)
	if !hidden(from) && !counts {
		w.broke(2, c, "renames %s away", from)
	}
	w.mustOwn(c, "renames", from)
	w.mustOwn(c, "renames something to", to)
	if maker(f) != c {
		w.broke(5, c, "renames %s, which another has made", from)
	}
	if to != logDir+"/latest" && w.Find(to) != nil {
		w.broke(2, c, "renames %s over %s", from, to)
	}
	if path.Dir(to) == logDir && f.Kind.IsDir() {
		w.mustBeTree(c, to, f)
		return
	}
	w.mustBeRecord(c, from, to, f)
}

// mayLink checks rule 2 for a file that the first of several writers links into place.
func (w *world) mayLink(c *client, from, to string, f *file) {
	w.mustOwn(c, "links", to)
	if maker(f) != c {
		w.broke(5, c, "links %s, which another has made", from)
	}
	w.mustBeRecord(c, from, to, f)
}

// mayRemove checks that visible names are not removed.
func (w *world) mayRemove(c *client, p string) {
	if !hidden(p) && !c.attempt.roles.mayRemove(spotOf(p)) {
		w.broke(2, c, "removes %s", p)
	}
	w.mustOwn(c, "removes", p)
}

// mustBeTree checks that a run directory appears with all parts that other daemons need.
func (w *world) mustBeTree(c *client, to string, f *file) {
	for _, part := range []string{signal.ControlDir, signal.NodesDir, signal.LogsDir, signal.EventsDir} {
		if e := f.Live[part]; e == nil || !e.File.Kind.IsDir() {
			w.broke(2, c, "shows the run directory %s without %s", to, part)
			return
		}
	}
	job := f.Live[signal.ControlDir].File.Live[signal.NameJob]
	if job == nil || job.File.Open {
		w.broke(2, c, "shows the run directory %s before its job is whole", to)
	}
}

// mustBeRecord checks that a record that appears in control or nodes, or as the result, is
// complete, belongs to its writer, and is of this attempt.
func (w *world) mustBeRecord(c *client, from, to string, f *file) {
	s := spotOf(to)
	if !hidden(from) || hidden(to) || s.sub != signal.ControlDir && s.sub != signal.NodesDir &&
		s.name != signal.NameResult {
		return
	}
	if f.Open {
		w.broke(2, c, "shows %s before it is closed", to)
	}
	var rec record.Joined
	err := json.Unmarshal(f.Data, &rec)
	switch {
	case err != nil || f.Data[len(f.Data)-1] != '\n':
		w.broke(2, c, "shows %s, which is not whole: %q", to, f.Data)
	case rec.NodeIndex != c.rank:
		w.broke(5, c, "writes a record of node %d to %s", rec.NodeIndex, to)
	case rec.Nonce != c.attempt.nonce:
		w.broke(7, c, "writes a record of another attempt to %s", to)
	case strings.HasSuffix(to, "."+string(record.StateJoined)) && c.rank != 0 && rec.JobNonce != c.attempt.nonce:
		w.broke(7, c, "echoes the canary of another attempt in %s", to)
	}
}

// mustOwn checks rule 5, that each name has one writer, and rule 7, that no daemon writes into
// another attempt's run.
func (w *world) mustOwn(c *client, what, p string) {
	s := spotOf(p)
	if s.run == signal.BadNodesDir {
		w.mustNameRun(c, what, p)
		return
	}
	if s.run != "" && (s.sub != "" || s.name != "") && !c.own(p) {
		w.broke(7, c, "%s %s, which is of another attempt", what, p)
	}
	if !s.writtenBy(c.rank, c.attempt.size) && !c.attempt.roles.mayWrite(c.rank, s) {
		w.broke(5, c, "%s %s, which is not its own", what, p)
	}
}

// mustNameRun checks rule 5 for the list of bad nodes: like the result, it is written by the first
// daemon that can, and it has the run's name.
func (w *world) mustNameRun(c *client, what, p string) {
	s, run := spotOf(p), path.Base(c.attempt.run)
	name := strings.TrimPrefix(s.name, ".")
	if s.sub != "" || name != "" && name != run && !strings.HasPrefix(name, run+".") {
		w.broke(5, c, "%s %s, which is not its run's", what, p)
	}
}

// writtenBy reports whether a node may write the path.
func (s spot) writtenBy(node, size int) bool {
	head, name := node == 0, s.name
	if draft, is := strings.CutPrefix(name, "."); is { // a draft ends with a dot and a unique suffix
		name = strings.TrimSuffix(draft, path.Ext(draft))
	}
	bearing := strings.TrimSuffix(signal.NodeName(node, size, "."), ".") // for example 0007.
	switch s.sub {
	case "":
		return head || strings.HasPrefix(name, signal.NameResult)
	case signal.NodesDir, signal.EventsDir:
		return strings.HasPrefix(name, bearing)
	case signal.LogsDir:
		return strings.Contains(name, "-"+bearing) || head && (name == "head.log" || name == "driver.log")
	case signal.ControlDir:
		return name == signal.AbortName(node, size) || head && headWrites(name, bearing)
	default:
		return false
	}
}

func headWrites(name, bearing string) bool {
	switch name {
	case signal.NameJob, signal.NameHead, signal.NameGateOpen, signal.NameOrderlyEnd, signal.NameHeadFinished:
		return true
	}
	return strings.HasPrefix(name, bearing+string(record.StateHeartbeat)+".") ||
		strings.HasPrefix(name, string(signal.SeriesPlan)+".")
}
