package schedules

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// TestRules verifies that the rules detect violations: each row is applied to a run of three nodes
// whose head has created its directory, which node 1 has found.
func TestRules(t *testing.T) {
	const run = logDir + "/17.0"
	rows := []struct {
		name string
		do   func(head, worker *client)
		rule int // 0: no violation
	}{
		{"a record is renamed into place", func(_, worker *client) {
			worker.publish(run+"/nodes/", "0001.joined", worker.record(1))
		}, 0},
		{"a name that says all is made empty", func(_, worker *client) {
			_ = worker.WriteFile(run+"/nodes/0001.up", nil, false)
		}, 0},
		{"a beat is renamed", func(_, worker *client) {
			_ = worker.WriteFile(run+"/nodes/0001.beat.000001", nil, false)
			_ = worker.ChangeName(signal.RenamePath, run+"/nodes/0001.beat.000001", run+"/nodes/0001.beat.000002")
		}, 0},
		{"the head lists nodes", func(head, _ *client) { _, _ = head.ListDir(run+"/nodes", nil) }, 0},
		{"what a listing has shown is read", func(head, worker *client) {
			head.publish(run+"/control/", "head", head.record(0))
			_, _ = worker.ListDir(run+"/control", nil)
			_, _ = worker.ReadFile(run + "/control/head")
		}, 0},
		{"a worker notes its run's bad nodes", func(_, worker *client) {
			_ = worker.ChangeName(signal.MakeDir, "", logDir+"/bad-nodes")
			_ = worker.WriteFile(logDir+"/bad-nodes/.17.0.tag", []byte("n0\n"), true)
			_ = worker.ChangeName(signal.MakeLink, logDir+"/bad-nodes/.17.0.tag", logDir+"/bad-nodes/17.0")
			_ = worker.ChangeName(signal.RemoveTree, "", logDir+"/bad-nodes/.17.0.tag")
		}, 0},
		{"a worker notes another run's bad nodes", func(_, worker *client) {
			_ = worker.ChangeName(signal.MakeDir, "", logDir+"/bad-nodes")
			_ = worker.WriteFile(logDir+"/bad-nodes/.17.0-r1.tag", []byte("n0\n"), true)
		}, 5},
		{"a record is written under its name", func(_, worker *client) {
			_ = worker.WriteFile(run+"/nodes/0001.joined", worker.record(1), false)
		}, 2},
		{"a record is renamed before it is closed", func(_, worker *client) {
			go func() { _ = worker.WriteFile(run+"/nodes/.0001.joined.tmp", worker.record(1), false) }()
			for !worker.sees(run + "/nodes/.0001.joined.tmp") {
				time.Sleep(time.Microsecond)
			}
			_ = worker.ChangeName(signal.RenamePath, run+"/nodes/.0001.joined.tmp", run+"/nodes/0001.joined")
		}, 2},
		{"a name is written twice", func(head, _ *client) {
			head.publish(run+"/control/", "drain", head.record(0))
			head.publish(run+"/control/", "drain", head.record(0))
		}, 2},
		{"a name is taken away", func(_, worker *client) {
			_ = worker.WriteFile(run+"/nodes/0001.up", nil, false)
			_ = worker.ChangeName(signal.RemoveTree, "", run+"/nodes/0001.up")
		}, 2},
		{"a name is renamed that is no beat", func(_, worker *client) {
			_ = worker.WriteFile(run+"/nodes/0001.up", nil, false)
			_ = worker.ChangeName(signal.RenamePath, run+"/nodes/0001.up", run+"/nodes/0001.done")
		}, 2},
		{"a record is cut short", func(_, worker *client) {
			worker.publish(run+"/nodes/", "0001.joined", worker.record(1)[:20])
		}, 2},
		{"a name is read that no listing has shown", func(_, worker *client) { _, _ = worker.ReadFile(run + "/control/head") }, 3},
		{"a name is looked at that no listing has shown", func(_, worker *client) { _, _ = worker.Stat(run + "/control/go") }, 3},
		{"a worker writes another's name", func(_, worker *client) { _ = worker.WriteFile(run+"/nodes/0002.up", nil, false) }, 5},
		{"a worker writes the head's name", func(_, worker *client) { _ = worker.WriteFile(run+"/control/go", nil, false) }, 5},
		{"a worker writes a team", func(_, worker *client) { worker.publish(run+"/control/", "team.0000", worker.record(1)) }, 5},
		{"a worker makes a run", func(_, worker *client) { _ = worker.ChangeName(signal.MakeDir, "", logDir+"/.new-1") }, 5},
		{"a record bears another's rank", func(_, worker *client) {
			worker.publish(run+"/nodes/", "0001.joined", worker.record(2))
		}, 5},
		{"a worker lists nodes", func(_, worker *client) { _, _ = worker.ListDir(run+"/nodes", nil) }, 6},
		{"another attempt's record is read", func(head, _ *client) { _, _ = head.ReadFile(logDir + "/17.0-r7/control/go") }, 7},
		{"another attempt's name is written", func(head, _ *client) { _ = head.WriteFile(logDir+"/17.0-r7/control/go", nil, false) }, 7},
		{"a record bears another nonce", func(_, worker *client) {
			worker.publish(run+"/nodes/", "0001.joined", []byte(`{"v":2,"nonce":"another","rank":1}`+"\n"))
		}, 7},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(plan{Seed: 1})
				p := plan{Size: 3, Moods: make([]mood, 3), Attempts: []attemptPlan{{}}}
				var machines []*machine
				for i := range p.Size {
					machines = append(machines, newMachine(i, mood{Latency: time.Microsecond}))
				}
				a := newAttempt(w, p, 0, machines)
				head, worker := a.daemons[0].client, a.daemons[1].client
				head.makeRun(run)
				w.Put(logDir+"/17.0-r7", memory.NewDir(nil))
				w.Put(logDir+"/17.0-r7/control", memory.NewDir(nil))
				for _, c := range []*client{head, worker} {
					_ = c.ChangeName(signal.MakeDir, "", logDir)
					_, _ = c.ListDir(logDir, nil)
				}
				row.do(head, worker)
				time.Sleep(time.Second)
				broken := slices.ContainsFunc(w.breaches, func(b breach) bool { return b.rule == row.rule })
				if broken != (row.rule > 0) || row.rule == 0 && len(w.breaches) > 0 {
					t.Errorf("the breaches are %v, and one of rule %d was to be seen", w.breaches, row.rule)
				}
			})
		})
	}
}

// makeRun creates a run directory as the head does.
func (c *client) makeRun(run string) {
	hidden := logDir + "/.new-1"
	_ = c.ChangeName(signal.MakeDir, "", logDir)
	_ = c.ChangeName(signal.MakeDir, "", hidden)
	for _, sub := range []string{signal.ControlDir, signal.NodesDir, signal.LogsDir, signal.EventsDir} {
		_ = c.ChangeName(signal.MakeDir, "", hidden+"/"+sub)
	}
	_ = c.WriteFile(hidden+"/control/job", []byte(`{"v":2,"nonce":"drawn","rank":0}`+"\n"), false)
	_ = c.ChangeName(signal.RenamePath, hidden, run)
}

func (c *client) sees(p string) bool {
	c.world.Lock()
	defer c.world.Unlock()
	return c.world.Find(p) != nil
}

func (c *client) publish(dir, name string, data []byte) {
	_ = c.WriteFile(dir+"."+name+".tmp", data, false)
	_ = c.ChangeName(signal.RenamePath, dir+"."+name+".tmp", dir+name)
}

// record returns a record of this attempt.
func (c *client) record(node int) []byte {
	return encoded(record.Joined{
		Header: record.Header{Version: record.FormatVersion, Nonce: c.attempt.nonce, NodeIndex: node}, JobNonce: c.attempt.nonce,
	})
}
