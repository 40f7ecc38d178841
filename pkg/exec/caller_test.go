package exec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ceiling limits every wait, far above its usual duration.
const ceiling = 20 * time.Second

// TestAnswerIsUnreadable verifies that the caller fails at once if the head's answer is no file of the
// run, such as a link to another one.
func TestAnswerIsUnreadable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	at := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 3, Host: "n0"}
	head, err := signal.CreateRun(ctx, at, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	dir, job, err := signal.OpenExisting(ctx, head.Path(), "login")
	if err != nil {
		t.Fatal(err)
	}
	times := Timeouts{Accept: ceiling, AfterRun: ceiling, AfterCancel: time.Second, HeartbeatInterval: time.Second}
	c := New(dir, job, Request{Argv: []string{"hostname"}}, peerlink.TCP{}, times, io.Discard, io.Discard)
	folder := filepath.Join(head.Path(), signal.ExecDir)
	made := os.MkdirAll(folder, 0o700)
	if err := cmp.Or(made, os.Symlink("elsewhere", filepath.Join(folder, c.id.fileName(acceptedSuffix)))); err != nil {
		t.Fatal(err)
	}
	answers, err := c.Execute(ctx, nil)
	if err == nil || errors.Is(err, ErrNoAnswer) || ctx.Err() != nil || len(answers) > 0 {
		t.Errorf("it came to %+v, %v", answers, err)
	}
}

// answering is a caller whose request a test answers in the head's and the nodes' place.
type answering struct {
	*Client
	t         *testing.T
	dir       *signal.Dir // of the head
	out, errs bytes.Buffer
	cancel    context.CancelFunc
	nodes     []Result
	err       error
}

var answeringTimes = Timeouts{
	Accept: time.Minute, AfterRun: time.Second, AfterCancel: time.Second, HeartbeatInterval: 2 * time.Hour,
}

// newAnswering returns a caller of a run of size nodes.
func newAnswering(t *testing.T, size int, fs signal.SharedFS) *answering {
	t.Helper()
	place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: size, Host: "n0"}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	a := &answering{t: t, dir: dir}
	from, _, err := signal.Access{FS: fs, NoHints: true}.OpenExisting(t.Context(), dir.Path(), "login")
	if err != nil {
		t.Fatal(err)
	}
	a.Client = New(from, record.Job{}, Request{Argv: []string{"sleep"}}, peerlink.TCP{}, answeringTimes, &a.out, &a.errs)
	return a
}

// execute executes the request, which the function story answers.
func (a *answering) execute(story func()) {
	ctx, cancel := context.WithTimeout(a.t.Context(), time.Hour)
	defer cancel()
	a.cancel = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.nodes, a.err = a.Execute(ctx, nil)
	}()
	time.Sleep(time.Second)
	story()
	<-done
	time.Sleep(time.Minute) // until calls that nobody waits for any more have returned
}

// publish publishes a record of the request.
func (a *answering) publish(what string, rec record.Record) {
	a.t.Helper()
	if err := a.dir.PublishRecord(a.t.Context(), signal.ExecDir, a.id.fileName(what), rec, false); err != nil {
		a.t.Fatal(err)
	}
}

// accept removes the announcement, and answers that nodes execute the request.
func (a *answering) accept(nodes ...int) {
	a.t.Helper()
	accepted := new(acceptedRecord)
	for _, node := range nodes {
		accepted.Nodes = append(accepted.Nodes, Result{NodeIndex: node, Host: fmt.Sprintf("n%d", node)})
	}
	if err := a.dir.RemoveNames(a.t.Context(), signal.ControlDir, callPrefix+string(a.id)); err != nil {
		a.t.Fatal(err)
	}
	a.publish(acceptedSuffix, accepted)
}

// part publishes a part of a node's output.
func (a *answering) part(node, n int, text string) {
	a.t.Helper()
	a.publish(partSuffix(a.dir, node, n), &outputRecord{Output: Output{Pieces: []Piece{{Stream: 1, Data: []byte(text)}}}})
}

// last publishes the last record of a node.
func (a *answering) last(node, parts int) {
	a.t.Helper()
	pieces := []Piece{{Stream: 1, Data: []byte("end\n")}, {Stream: 2, Data: []byte("bad\n")}}
	a.publish(endSuffix(a.dir, node), &outputRecord{Output: Output{Pieces: pieces, End: &Exit{Code: 3, Parts: parts}}})
}

// endRun ends the run.
func (a *answering) endRun() {
	a.t.Helper()
	if err := a.dir.WriteMark(a.t.Context(), signal.ControlDir, signal.NameOrderlyEnd); err != nil {
		a.t.Fatal(err)
	}
}

// left returns the names of the request that are left, without its id.
func (a *answering) left() (names []string) {
	a.t.Helper()
	for _, sub := range []string{signal.ControlDir, signal.ExecDir} {
		all, err := a.dir.ListNames(a.t.Context(), sub)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, name := range all {
			if strings.Contains(name, string(a.id)) {
				names = append(names, strings.ReplaceAll(name, string(a.id), ""))
			}
		}
	}
	return names
}

// failingWriter accepts no output.
type failingWriter struct{ error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.error }

// TestCallerResult verifies what a caller returns and prints, and which files it leaves to the
// head: none after the end of the run, or if the head has not answered.
func TestCallerResult(t *testing.T) {
	full := errors.New("full")
	each := make([]bytes.Buffer, 3)
	for name, tc := range map[string]struct {
		story     func(a *answering)
		err       error
		answered  []int
		out, errs string
		left      []string
	}{
		"a long command": {func(a *answering) {
			a.accept(1)
			time.Sleep(10 * time.Minute)
			a.last(1, 0)
		}, nil, []int{1}, "end\n", "bad\n", []string{".0001.end", ".taken"}},
		"the end is listed before the other output": {func(a *answering) {
			a.accept(1, 2)
			a.last(1, 2)
			time.Sleep(time.Minute)
			a.part(1, 0, "0\n")
			time.Sleep(time.Minute)
			a.part(1, 1, "1\n")
			a.last(2, 0)
		}, nil, []int{1, 2}, "n1: 0\nn1: 1\nn1: end\nn2: end\n", "n1: bad\nn2: bad\n", []string{".0001.end", ".0002.end", ".taken"}},
		"no answer": {func(*answering) {}, ErrNoAnswer, nil, "", "", nil},
		"the run ends before the answer": {func(a *answering) {
			a.endRun()
		}, ErrRunOver, nil, "", "", nil},
		"the run ends before the last output": {func(a *answering) {
			a.accept(0, 1)
			a.part(1, 0, "0\nun")
			a.last(0, 0)
			a.publish(endSuffix(a.dir, 1), new(outputRecord)) // without an exit
			time.Sleep(time.Minute)
			a.endRun()
		}, ErrRunOver, []int{0}, "n0: end\nn1: 0\nn1: un\n", "n0: bad\n", nil},
		"the last output comes after the end of the run": {func(a *answering) {
			a.accept(1)
			a.endRun()
			time.Sleep(answeringTimes.AfterRun / 2)
			a.last(1, 0)
		}, nil, []int{1}, "end\n", "bad\n", []string{".0001.end", ".taken"}},
		"it is canceled before the answer": {func(a *answering) {
			a.cancel()
		}, context.Canceled, nil, "", "", []string{".cancel"}},
		"a refusal": {func(a *answering) {
			a.publish(acceptedSuffix, &acceptedRecord{Refused: "no"})
		}, ErrRefused, nil, "", "", []string{".taken"}},
		"a writer of each node": {func(a *answering) {
			a.SetNodeWriter(func(node int) io.Writer { return &each[node] })
			a.accept(1, 2)
			a.last(1, 0)
			a.last(2, 0)
		}, nil, []int{1, 2}, "", "n1: bad\nn2: bad\n", []string{".0001.end", ".0002.end", ".taken"}},
		"the output cannot be written": {func(a *answering) {
			a.SetNodeWriter(func(int) io.Writer { return failingWriter{full} })
			a.accept(1, 2)
			a.part(1, 0, "0\n")
		}, full, nil, "", "", []string{".0001.000000", ".taken"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAnswering(t, 3, signal.NewDiskFS(new(signal.CallMeter)))
			a.execute(func() { tc.story(a) })
			var answered []int
			for _, node := range a.nodes {
				if node.Answered && node.Exit.Code == 3 {
					answered = append(answered, node.NodeIndex)
				}
			}
			sorted := func(text string) string {
				return strings.Join(slices.Sorted(strings.SplitAfterSeq(text, "\n")), "")
			}
			if !errors.Is(a.err, tc.err) || !slices.Equal(answered, tc.answered) || sorted(a.out.String()) != tc.out || sorted(a.errs.String()) != tc.errs {
				t.Errorf("%s: %v; %v answered; out %q, errors %q", name, a.err, answered, a.out.String(), a.errs.String())
			}
			if left := a.left(); !slices.Equal(left, tc.left) {
				t.Errorf("%s: %v are left, want %v", name, left, tc.left)
			}
		})
	}
	if each[0].Len() > 0 || each[1].String() != "end\n" || each[2].String() != "end\n" {
		t.Errorf("the nodes' writers have %q, %q", each[1].String(), each[2].String())
	}
}

// slowReads is a file system with slow reads of records in exec/.
type slowReads struct {
	signal.SharedFS
	now, most *atomic.Int32 // number of present reads, and their maximum
}

// ReadFile implements [signal.SharedFS].
func (s slowReads) ReadFile(path string) ([]byte, error) {
	if strings.Contains(path, "/"+signal.ExecDir+"/") {
		if n := s.now.Add(1); n > s.most.Load() {
			s.most.Store(n)
		}
		time.Sleep(10 * time.Millisecond)
		s.now.Add(-1)
	}
	return s.SharedFS.ReadFile(path)
}

// TestCallerOfManyNodes verifies that a caller reads the output of many nodes at the same time, but
// not of all.
func TestCallerOfManyNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 50
		slow := slowReads{signal.NewDiskFS(new(signal.CallMeter)), new(atomic.Int32), new(atomic.Int32)}
		a := newAnswering(t, many, slow)
		a.execute(func() {
			var nodes []int
			for node := range many {
				a.last(node, 0)
				nodes = append(nodes, node)
			}
			a.accept(nodes...)
		})
		if lines := strings.Count(a.out.String(), "\n"); a.err != nil || lines != many {
			t.Errorf("%v, %d lines", a.err, lines)
		}
		if most := slow.most.Load(); most < 2 || most > maxConcurrentReads {
			t.Errorf("%d were read at once", most)
		}
	})
}

// TestCallerPrintsSoon verifies that the output that follows other output is printed at once, also
// if the command was silent for long.
func TestCallerPrintsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswering(t, 2, signal.NewDiskFS(new(signal.CallMeter)))
		printed := make(notifying)
		a.SetNodeWriter(func(int) io.Writer { return printed })
		a.execute(func() {
			a.accept(1)
			time.Sleep(10 * time.Minute)
			a.part(1, 0, "0\n")
			<-printed
			began := time.Now()
			a.part(1, 1, "1\n")
			<-printed
			if took := time.Since(began); took > signal.HeadPace.MaxPause/4 {
				t.Errorf("it was printed after %s", took)
			}
			a.last(1, 2)
			<-printed
		})
	})
}

// notifying is a writer that notifies of each call.
type notifying chan struct{}

func (n notifying) Write(data []byte) (int, error) {
	n <- struct{}{}
	return len(data), nil
}
