package schedules

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// longest bounds a schedule, counted from the last planned event.
const longest = time.Minute

// lingering is the time within which activities that a daemon does not wait for must end after its
// return.
const lingering = 10 * time.Second

// verdict is the outcome of a schedule.
type verdict struct {
	plan     plan
	breaches []breach
	steps    int
	ended    time.Duration
}

// bad reports whether a rule was broken.
func (v verdict) bad() bool { return len(v.breaches) > 0 }

// stage runs schedules, one after the other.
type stage struct {
	t       *testing.T
	tempDir string   // node-local, for all nodes
	jobDir  string   // for the probes of roles
	said    *os.File // the daemons' standard error
	tracing bool
}

// play runs a schedule.
func (s stage) play(p plan) (v verdict) {
	if s.said != os.Stderr {
		_ = s.said.Truncate(0)
		_, _ = s.said.Seek(0, io.SeekStart)
		fmt.Fprintf(s.said, "seed %d\n", p.Seed)
	}
	synctest.Test(s.t, func(*testing.T) {
		w := newWorld(p)
		w.tracing = s.tracing
		w.furnish(p)
		machines := make([]*machine, p.Size)
		for i := range machines {
			machines[i] = newMachine(i, p.Moods[i])
		}
		var all sync.WaitGroup
		var attempts []*attempt
		var last time.Duration
		for i, a := range p.Attempts {
			attempts = append(attempts, newAttempt(w, p, i, machines))
			if p.Job != nil {
				attempts[i].roles = newJobRun(attempts[i], p.Job, s.jobDir)
			}
			last = max(last, a.Start+a.After+slices.Max(a.Late))
		}
		for _, a := range attempts {
			a.start(&all, s.tempDir, s.said)
		}
		deadline := time.After(last + longest)
		for _, a := range attempts {
			a.await(deadline)
		}
		v = w.close(p, attempts)
		for _, a := range attempts {
			a.tearDown()
		}
		all.Wait()
		time.Sleep(lingering)
	})
	return v
}

// close ends the shared file system and checks the outcome of the attempts.
func (w *world) close(p plan, attempts []*attempt) verdict {
	w.Lock()
	defer w.Unlock()
	for _, a := range attempts {
		a.check()
	}
	close(w.over)
	return verdict{plan: p, breaches: w.breaches, steps: w.steps, ended: w.Now()}
}

// tearDown ends daemons that have crashed or hang.
func (a *attempt) tearDown() {
	for range 2 {
		for _, d := range a.daemons {
			select {
			case d.signals <- syscall.SIGTERM:
			default:
			}
		}
		time.Sleep(3 * time.Second)
	}
	for _, d := range a.daemons {
		d.leave()
	}
}

// furnish creates the initial contents of the shared file system.
func (w *world) furnish(p plan) {
	if p.Leftover == "" {
		return
	}
	w.Put(logDir, memory.NewDir(nil))
	run := logDir + "/17.0"
	if p.Leftover == "file" {
		w.Put(run+".out", &file{Data: []byte("what srun has written\n")})
		return
	}
	w.Put(run, memory.NewDir(nil))
	for _, sub := range []string{signal.ControlDir, signal.NodesDir, signal.LogsDir, signal.EventsDir} {
		w.Put(run+"/"+sub, memory.NewDir(nil))
	}
	header := record.Header{Version: record.FormatVersion, Nonce: "another launch's", Host: "n0"}
	records := map[string]any{
		signal.ControlDir + "/" + signal.NameJob: record.Job{Header: header,
			Run: "17.0", Key: "facts of another launch", Size: p.Size},
		signal.ControlDir + "/" + signal.NameGateOpen:                nil,
		signal.ControlDir + "/" + signal.NameOrderlyEnd:              record.OrderlyEnd{Header: header, Code: 3},
		signal.ControlDir + "/" + signal.AbortName(1, 4):             record.Abort{Header: header, Code: 4},
		signal.NodesDir + "/" + "0001." + string(record.StateJoined): record.Joined{Header: header},
		signal.NodesDir + "/" + "0001." + string(record.StateFailed): record.Failure{Header: header, Kind: "internal"},
		signal.NodesDir + "/" + "0001." + string(record.StateDone):   record.Done{Header: header},
		signal.ControlDir + "/" + "0000.beat.000007":                 nil,
		signal.NameResult: record.Result{Header: record.Header{Version: record.ResultVersion,
			Nonce: header.Nonce}, Code: 5},
	}
	if p.Leftover == "torn" {
		delete(records, signal.ControlDir+"/"+signal.NameJob)
	}
	for name, record := range records {
		var data []byte
		if record != nil {
			data = encoded(record)
		}
		w.Put(run+"/"+name, &file{Data: data})
	}
}

// String describes a failed schedule in full.
func (v verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", v.plan)
	for _, broken := range v.breaches[:min(len(v.breaches), 5)] {
		fmt.Fprintf(&b, "  %s\n", broken)
	}
	fmt.Fprintf(&b, "  %d steps in %v\n", v.steps, v.ended)
	return b.String()
}
