package signal

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestFinderWaitsForTheHead(t *testing.T) {
	p := newPlace(t)
	p.LogDir = filepath.Join(p.LogDir, "deeper") // the worker makes it, because it is the first
	worker := p
	worker.NodeIndex, worker.Host = 1, "n1"
	looked := make(chan struct{})
	worker.FS = &faulty{onList: func(string) ([]string, error) {
		select {
		case looked <- struct{}{}:
			return []string{}, nil
		default:
			return nil, nil
		}
	}}
	type found struct {
		dir *Dir
		job record.Job
		err error
	}
	answers := make(chan found, 1)
	finder := NewFinder(worker)
	go func() {
		dir, job, err := finder.AwaitRun(within(t))
		answers <- found{dir, job, err}
	}()
	<-looked
	d := create(t, p)
	got := <-answers
	if got.err != nil || got.dir.Path() != d.Path() || got.dir.Nonce() != d.Nonce() || got.job.Size != p.Size {
		t.Errorf("found %+v", got)
	}
	if got.dir.NodeName(1, record.StateServiceUp) != "0001.up" || got.dir.FileSystem() != d.FileSystem() {
		t.Errorf("found %+v", got.dir)
	}
	if kind := finder.FileSystem(within(t)); kind != d.FileSystem() {
		t.Errorf("it lies on %v", kind)
	}
}

// TestFinderLooksAgain verifies that temporary errors of the shared file system are tolerated.
func TestFinderLooksAgain(t *testing.T) {
	p := newPlace(t)
	create(t, p)
	answers := []error{syscall.ESTALE, syscall.EIO, syscall.ENOENT, nil, syscall.ESTALE}
	answer := func(string) error {
		if len(answers) == 0 {
			return nil
		}
		next := answers[0]
		answers = answers[1:]
		return next
	}
	p.FS = &faulty{onLook: answer, onList: func(path string) ([]string, error) { return nil, answer(path) }}
	if _, _, err := NewFinder(p).AwaitRun(within(t)); err != nil || len(answers) != 0 {
		t.Errorf("got %v with %d answers left", err, len(answers))
	}
}

func TestFinderGivesUp(t *testing.T) {
	over := errors.New("over")
	for _, tc := range []struct {
		name  string
		fails error
		says  string
	}{
		{"nothing is there", nil, "over"},
		{"the last look failed", syscall.ESTALE, syscall.ESTALE.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := Location{LogDir: "/logs", Run: "123.0"}
				p.FS = &faulty{
					onChange: func(Op, string, string) error { return os.ErrExist },
					onList:   func(string) ([]string, error) { return []string{"122.0"}, tc.fails },
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, over)
				defer cancel()
				_, _, err := NewFinder(p).AwaitRun(ctx)
				if !errors.Is(err, over) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

func TestStepFinder(t *testing.T) {
	p := newPlace(t)
	step := func(run string, steps ...string) *Dir {
		q := p
		q.Run, q.Key = run, run
		d, err := CreateRun(within(t), q, record.Job{Steps: steps})
		must(t, err)
		return d
	}
	step("124.0", "judge")
	step("123.0", "sandbox")
	publish(t, step("123.1", "judge"), ControlDir, NameOrderlyEnd, &record.OrderlyEnd{})
	publish(t, step("123.2", "judge"), ControlDir, AbortName(1, 4), &record.Abort{})
	publish(t, step("123.3", "judge"), ControlDir, NameHeadFinished, &record.Mark{})
	step("123.4-r1", "judge")
	put(t, filepath.Join(p.LogDir, "123.out"), "Slurm's own output")
	mkdir(t, filepath.Join(p.LogDir, "123.results"), dirMode)
	put(t, filepath.Join(p.LogDir, "123"), "")
	p.Run = "123.out" // names that must not count
	wanted := step("123.5", "sandbox", "judge")
	isFirst := func(name string) bool { return strings.HasPrefix(name, "123.") && !strings.HasSuffix(name, "-r1") }
	for _, tc := range []struct {
		name    string
		key     string
		matches func(name string) bool
		want    string
	}{
		{"the first start", "", isFirst, wanted.Name()},
		{"a restart", "", func(name string) bool { return strings.HasSuffix(name, "-r1") }, "123.4-r1"},
		{"the same launch, which is over", "123.2", isFirst, "123.2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p.Key = cmp.Or(tc.key, "another launch")
			d, _, err := NewStepFinder(p, tc.matches, "judge").AwaitRun(within(t))
			if err != nil || d.Name() != tc.want {
				t.Errorf("found %v, %v; want %s", d, err, tc.want)
			}
		})
	}
}
