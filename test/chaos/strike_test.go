//go:build testbed

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/hostile"
	"github.com/bringupd/bringupd/test/testbed"
)

var errNothing = errors.New("there is nothing to strike any more")

// strikeAll waits for the phase and injects the faults one after the other.
func (j *job) strikeAll(ctx context.Context) error {
	for i, f := range j.s.Faults {
		if i == 0 && (!j.reach(f) || !j.beats(f)) {
			j.tell("it never came to %s", f.Phase)
			return nil
		}
		j.pause(f.After)
		j.tell("strikes node %d: %s", f.Node, f.What)
		err := j.strike(ctx, f)
		nothing := errors.Is(err, errNothing)
		switch {
		case nothing && i == 0 && f.Phase != inDrain:
			j.tell("%v", err)
			return nil
		case nothing: // the target had ended
		case err != nil:
			return fmt.Errorf("cannot strike: %v", err)
		}
		j.struck = time.Now()
	}
	return nil
}

func (j *job) pause(d time.Duration) {
	if d > 0 {
		select {
		case <-time.After(d):
		case <-j.ended:
		}
	}
}

// reach waits for the phase in which the first fault strikes.
func (j *job) reach(f fault) bool {
	// A scan of the processes can take longer than a short job, but the record of a drain stays.
	if f.Phase != inDrain && !j.await(func() bool { return j.find(f.Node, j.program) != 0 }) {
		return false
	}
	return j.await(func() bool { return j.reached(f.Phase) })
}

// beats waits until all nodes have written a first heartbeat file, if the share will be full while
// the driver runs. Only the first heartbeat needs space; later ones are renames.
func (j *job) beats(f fault) bool {
	if f.Phase != inDriver || f.What != full && f.What != fullAll || j.s.Lifeline {
		return true
	}
	return j.await(func() bool {
		for node := range j.size {
			sub := signal.NodesDir
			if node == 0 {
				sub = signal.ControlDir
			}
			if !j.has(sub, signal.NodeName(node, j.size, record.StateHeartbeat)+".*") {
				return false
			}
		}
		return true
	})
}

// has reports whether the run directory, as seen by the host, contains a name that matches the
// pattern.
func (j *job) has(sub, name string) bool {
	found, _ := filepath.Glob(filepath.Join(j.logs, "*", sub, name))
	return slices.ContainsFunc(found, func(path string) bool {
		return !strings.HasPrefix(filepath.Base(path), ".")
	})
}

// await polls frequently, because some phases are short.
func (j *job) await(holds func() bool) bool {
	deadline := time.After(reachTime)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			return false
		case <-j.ended:
			return holds() // the records of a drain stay
		}
	}
	return true
}

func (j *job) reached(p phase) bool {
	switch p {
	case beforeJoin:
		return true
	case inJoin:
		return j.has(signal.ControlDir, signal.NameJob)
	case inServices:
		return j.has(signal.ControlDir, signal.NameHead) && j.all(record.StateJoined)
	case atGate:
		return j.all(record.StateServiceUp)
	case inDriver:
		return j.find(0, "sh", "-c", j.driver()) != 0
	default:
		return j.has(signal.ControlDir, signal.NameOrderlyEnd)
	}
}

// all reports whether all nodes have published that state.
func (j *job) all(state record.State) bool {
	for node := range j.size {
		if !j.has(signal.NodesDir, signal.NodeName(node, j.size, state)) {
			return false
		}
	}
	return true
}

// find returns the oldest process of the job on a node whose command line begins with these words,
// or 0 if there is none.
func (j *job) find(node int, words ...string) (pid int) {
	all, err := j.bed.Processes(j.first + node)
	if err != nil {
		return 0
	}
	for _, p := range all {
		if !p.Infra && len(p.Args) >= len(words) && slices.Equal(p.Args[:len(words)], words) &&
			(pid == 0 || p.PID < pid) {
			pid = p.PID
		}
	}
	return pid
}

// strike injects the fault, and registers how to remove it later.
func (j *job) strike(ctx context.Context, f fault) error {
	node := j.first + f.Node
	bed := j.bed
	later := func(undo func(context.Context, int) error, nodes ...int) {
		for _, node := range nodes {
			j.undoings = append(j.undoings, func() error { return undo(ctx, node) })
		}
	}
	var all []int
	for i := range j.size {
		all = append(all, j.first+i)
	}
	switch f.What {
	case killDaemon, killTwo, killThree:
		return j.killDaemons(f.struck(j.size))
	case killService:
		return j.kill(f.Node, "sleep", workerService)
	case killSandbox:
		return j.kill(f.Node, "sleep", sandbox)
	case killDriver:
		return j.kill(f.Node, "sh", "-c", j.driver())
	case unheard:
		return nil // active since the start
	case failDriver:
		return j.kill(0, "sleep", j.work())
	case hang:
		later(bed.ResumeNode, node)
		return bed.HangNode(ctx, node)
	case pause:
		return j.meanwhile(f.For, bed.HangNode(ctx, node), func() error {
			return bed.ResumeNode(ctx, node)
		})
	case slow:
		heal := bed.SlowNode(ctx, node, 0.3)
		return j.meanwhile(f.For, nil, heal)
	case lose:
		later(bed.LinkUp, node)
		return j.lose(ctx, f.Node)
	case unplug:
		later(bed.LinkUp, node)
		return errors.Join(bed.LinkDown(ctx, node), j.turn(ctx, hostile.Knobs{Unread: true}, node))
	case glitch:
		return j.glitch(ctx, node, f.For)
	case filterAll, filterLine:
		ports, err := j.ports(f.What)
		if err != nil {
			return err
		}
		return j.meanwhile(f.For, bed.FilterTCP(ctx, node, ports...), func() error {
			return bed.UnfilterTCP(ctx, node)
		})
	case cutLines:
		ports, err := j.ports(f.What)
		if err != nil {
			return err
		}
		later(bed.UnfilterTCP, j.first)
		return bed.FilterTCP(ctx, j.first, ports...)
	case stall:
		return j.turn(ctx, hostile.Knobs{Unread: true}, node)
	case stallAll:
		return j.turn(ctx, hostile.Knobs{Unread: true}, all...)
	case hangDisk:
		later(func(ctx context.Context, node int) error {
			return bed.TurnDisk(ctx, node, hostile.Knobs{})
		}, node)
		return bed.TurnDisk(ctx, node, hostile.Knobs{Unread: true})
	case stallShort, stallLong:
		undo := func() error { return j.heal(ctx, all...) }
		return j.meanwhile(f.For, j.turn(ctx, hostile.Knobs{Unread: true}, all...), undo)
	case full:
		return j.turn(ctx, hostile.Knobs{Full: syscall.ENOSPC}, node)
	case fullAll:
		return j.turn(ctx, hostile.Knobs{Full: syscall.ENOSPC}, all...)
	case clockForward, clockBack:
		off := time.Hour
		if f.What == clockBack {
			off = -off
		}
		later(func(ctx context.Context, node int) error { return j.setClock(ctx, node, 0) }, node)
		return j.setClock(ctx, node, off)
	}
	return fmt.Errorf("unknown fault: %s", f.What)
}

func (j *job) kill(node int, words ...string) error {
	pid := 0
	find := func() bool {
		pid = j.find(node, words...)
		return pid != 0
	}
	// The service may not have started yet. Do not wait for it if the job is ending.
	if !j.await(func() bool { return find() || j.reached(inDrain) }) || pid == 0 {
		return errNothing
	}
	return kill(testbed.Process{PID: pid})
}

// killDaemons kills the daemons of all these nodes at the same moment.
func (j *job) killDaemons(nodes []int) error {
	pids := make([]int, len(nodes))
	there := func() bool {
		for i, node := range nodes {
			pids[i] = j.find(node, j.program)
		}
		return !slices.Contains(pids, 0)
	}
	if !j.await(there) {
		return errNothing
	}
	var err error
	for _, pid := range pids {
		err = errors.Join(err, kill(testbed.Process{PID: pid}))
	}
	return err
}

// meanwhile lets a fault last for the given duration, and removes it.
func (j *job) meanwhile(d time.Duration, struck error, undo func() error) error {
	j.pause(d)
	j.tell("undone")
	return errors.Join(struck, undo())
}

// lose simulates a power failure of a node, except for Slurm's own processes: it takes a minute to
// restore a complete node.
func (j *job) lose(ctx context.Context, node int) error {
	err := j.bed.LinkDown(ctx, j.first+node)
	for err == nil && len(j.looks.after(time.Now()).nodes[j.first+node]) > 0 {
		err = j.killAll(node)
	}
	return err
}

// glitch disconnects the node, and its share for a shorter time: five eighths of the peer timeout
// without heartbeats count as a loss, and this time begins with the last heartbeat.
func (j *job) glitch(ctx context.Context, node int, d time.Duration) error {
	sharesToo := min(d, 900*time.Millisecond)
	err := errors.Join(j.bed.LinkDown(ctx, node), j.turn(ctx, hostile.Knobs{Unread: true}, node))
	err = j.meanwhile(sharesToo, err, func() error { return j.heal(ctx, node) })
	return j.meanwhile(d-sharesToo, err, func() error { return j.bed.LinkUp(ctx, node) })
}

// turn sets the faults of nodes' shares until all faults are removed. A share without such settings
// fails together with the link.
func (j *job) turn(ctx context.Context, knobs hostile.Knobs, nodes ...int) (err error) {
	if !j.world.knobs {
		return nil
	}
	j.undoings = append(j.undoings, func() error { return j.heal(ctx, nodes...) })
	for _, node := range nodes {
		err = errors.Join(err, j.bed.TurnShare(ctx, node, knobs))
	}
	return err
}

func (j *job) heal(ctx context.Context, nodes ...int) (err error) {
	if !j.world.knobs {
		return nil
	}
	for _, node := range nodes {
		err = errors.Join(err, j.bed.HealShare(ctx, node))
	}
	return err
}

// ports returns the ports to filter; nil means all.
func (j *job) ports(w what) ([]int, error) {
	if w == filterAll {
		return nil, nil
	}
	found, err := filepath.Glob(filepath.Join(j.logs, "*", signal.ControlDir, signal.NameJob))
	if err != nil || len(found) == 0 {
		return nil, errNothing
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	return lifelinePorts(data)
}
