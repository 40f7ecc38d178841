package exec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// TestNodeIsLost loses one of two nodes while the run, which has spares, continues: before the
// other node has answered, and after. The output of the other one has several parts.
func TestNodeIsLost(t *testing.T) {
	t.Parallel()
	for name, lostFirst := range map[string]bool{"before the other answers": true, "after the other has answered": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), ceiling)
			defer cancel()
			head, err := signal.CreateRun(ctx, signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 3, Host: "n0"}, record.Job{})
			if err != nil {
				t.Fatal(err)
			}
			dir, job, err := signal.OpenExisting(ctx, head.Path(), "login")
			if err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			times := Timeouts{Accept: ceiling, AfterRun: ceiling, AfterCancel: time.Second, HeartbeatInterval: time.Second}
			c := New(dir, job, Request{Argv: []string{"hostname"}, Nodes: []string{"1", "2"}}, peerlink.TCP{}, times, &out, &errs)
			publish := func(what string, rec record.Record) {
				t.Helper()
				if err := head.PublishRecord(ctx, signal.ExecDir, c.id.fileName(what), rec, false); err != nil {
					t.Error(err)
				}
			}
			type ended struct {
				answers []Result
				err     error
			}
			answer := make(chan ended, 1)
			go func() {
				answers, err := c.Execute(ctx, nil)
				answer <- ended{answers, err}
			}()
			for {
				if names, err := head.ListNames(ctx, signal.ControlDir); err == nil && slices.Contains(names, callPrefix+string(c.id)) {
					break
				} else if ctx.Err() != nil {
					t.Fatalf("there is no request: %v, %v", names, err)
				}
				time.Sleep(time.Millisecond)
			}
			publish(acceptedSuffix, &acceptedRecord{Nodes: []Result{{NodeIndex: 1, Host: "n1"}, {NodeIndex: 2, Host: "n2"}}})
			steps := []func(){
				func() {
					lost := &Exit{Code: 76, Exit: "lost", Failed: "the node is lost"}
					publish(endSuffix(head, 2), &outputRecord{Output: Output{End: lost}})
				},
				func() {
					pieces := []Piece{{Stream: 1, Data: []byte("n1\n")}}
					for part := range 2 {
						publish(partSuffix(head, 1, part), &outputRecord{Output: Output{Pieces: pieces}})
					}
					last := Output{Pieces: pieces, End: &Exit{Code: 3, Exit: "exit code 3", Parts: 2}}
					publish(endSuffix(head, 1), &outputRecord{Output: last})
				},
			}
			if !lostFirst {
				slices.Reverse(steps)
			}
			for _, step := range steps {
				step()
				time.Sleep(10 * time.Millisecond) // so that usually a poll comes between them
			}
			got := <-answer
			want := []Result{
				{NodeIndex: 1, Host: "n1", Answered: true, Exit: Exit{Code: 3, Exit: "exit code 3", Parts: 2}},
				{NodeIndex: 2, Host: "n2", Answered: true, Exit: Exit{Code: 76, Exit: "lost", Failed: "the node is lost"}},
			}
			printed := strings.Repeat("n1: n1\n", 3)
			if got.err != nil || !slices.Equal(got.answers, want) || out.String() != printed || errs.Len() > 0 {
				t.Errorf("it came to %+v, out %q, errors %q", got, out.String(), errs.String())
			}
		})
	}
}

// TestCallerWaitsForLongCommand verifies that a caller waits for a command as long as the run
// lasts, and for a while after that.
func TestCallerWaitsForLongCommand(t *testing.T) {
	for name, ends := range map[string]bool{"the command ends": false, "the run ends before": true} {
		synctest.Test(t, func(t *testing.T) {
			dir := newRun(t, 2)
			var out bytes.Buffer
			times := Timeouts{
				Accept: time.Minute, AfterRun: time.Second, AfterCancel: time.Second,
				HeartbeatInterval: time.Minute,
			}
			c := New(dir, record.Job{}, Request{Argv: []string{"sleep"}}, peerlink.TCP{}, times, &out, &out)
			answer := make(chan error, 1)
			go func() {
				_, err := c.Execute(t.Context(), nil)
				answer <- err
			}()
			time.Sleep(time.Second)
			accepted := &acceptedRecord{Nodes: []Result{{NodeIndex: 1, Host: "n1"}}}
			publish := func(what string, rec record.Record) error {
				return dir.PublishRecord(t.Context(), signal.ExecDir, c.id.fileName(what), rec, false)
			}
			err := publish(acceptedSuffix, accepted)
			time.Sleep(time.Minute)
			var want error
			if ends {
				want = ErrRunOver
				err = cmp.Or(err, dir.WriteMark(t.Context(), signal.ControlDir, signal.NameOrderlyEnd))
			} else {
				last := &outputRecord{Output: Output{End: new(Exit)}}
				err = cmp.Or(err, publish(endSuffix(dir, 1), last))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := <-answer; !errors.Is(got, want) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		})
	}
}
