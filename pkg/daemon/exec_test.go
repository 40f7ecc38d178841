package daemon

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// outside opens the job's run directory as a process that does not belong to the job.
func (j *job) outside() (*signal.Dir, record.Job) {
	j.t.Helper()
	j.untilNamed(signal.ControlDir, signal.NameGateOpen)
	dir, about, err := j.through(signal.Access{}).OpenExisting(context.Background(), j.run(), "outside")
	if err != nil {
		j.t.Fatal(err)
	}
	return dir, about
}

// answer is the outcome of a request.
type answer struct {
	nodes     []exec.Result
	err       error
	out, errs string
}

func (a answer) codes() (codes []int) {
	for _, node := range a.nodes {
		codes = append(codes, node.Exit.Code)
	}
	return codes
}

// exec runs a line of shell on nodes, until ctx ends.
func (j *job) exec(ctx context.Context, nodes, line string) answer {
	j.t.Helper()
	dir, about := j.outside()
	var out, errs bytes.Buffer
	order := exec.Request{Argv: service.ShellCommand(line), Nodes: strings.Split(nodes, ",")}
	ctx, cancel := context.WithTimeoutCause(ctx, ceiling, errCeiling)
	defer cancel()
	answers, err := exec.New(dir, about, order, j.net.Host("outside"), exec.DefaultTimeouts, &out, &errs).Execute(ctx, nil)
	return answer{answers, err, out.String(), errs.String()}
}

// dismiss ends the job in good order.
func (j *job) dismiss() {
	j.t.Helper()
	dir, _ := j.outside()
	if err := dir.RequestStop(context.Background()); err != nil {
		j.t.Fatal(err)
	}
}

func TestExec(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 4
		for _, mode := range []config.LinkMode{config.LinkAuto, config.LinkOff} {
			j := newJob(t, size, "").all(func(c *deps.Config) { c.Lifeline = mode }).start()
			// Before the gate opens, the hosts of the membership are unknown.
			j.untilNamed(signal.ControlDir, signal.NameGateOpen)
			for _, tc := range []struct {
				name, nodes, line string
				codes             []int
				out, errs         string // lines in any order
			}{
				{"one node", "2", "printf 'no end'; echo other >&2", []int{0}, "no end", "other\n"},
				{"the head", "head", "echo $BRINGUPD_LAUNCH_RANK $BRINGUPD_HOSTS", []int{0}, "0 n0,n1,n2,n3\n", ""},
				{"a host, twice", "n3,3", "echo $BRINGUPD_NODE_HOST $BRINGUPD_RUN; exit 3", []int{3}, "n3 17.0\n", ""},
				{"all", "all", "echo it is $BRINGUPD_NODE_RANK; printf end; exit $BRINGUPD_NODE_RANK", []int{0, 1, 2, 3},
					"n0: end\nn0: it is 0\nn1: end\nn1: it is 1\nn2: end\nn2: it is 2\nn3: end\nn3: it is 3\n", ""},
				{"a signal", "1,head", "kill -KILL $$", []int{137, 137}, "", ""},
				{"nothing is left behind", "1", "sleep 300 & echo", []int{0}, "\n", ""},
			} {
				got := j.exec(context.Background(), tc.nodes, tc.line)
				lines := strings.SplitAfter(got.out, "\n")
				slices.Sort(lines)
				if got.err != nil || !slices.Equal(got.codes(), tc.codes) || strings.Join(lines, "") != tc.out || got.errs != tc.errs {
					t.Errorf("%s, peer link %s: %v, codes %v, out %q, errors %q", tc.name, mode, got.err, got.codes(), got.out, got.errs)
				}
			}
			for _, nodes := range []string{"4", "-1", "n4", "", "all,9"} {
				if got := j.exec(context.Background(), nodes, "echo"); !errors.Is(got.err, exec.ErrRefused) || got.out != "" {
					t.Errorf("nodes %q: %v, out %q", nodes, got.err, got.out)
				}
			}
			j.until("an empty exec and no orders", func() bool {
				return len(j.names(signal.ExecDir)) == 0 && !slices.ContainsFunc(j.names(signal.ControlDir), func(name string) bool {
					return strings.HasPrefix(name, "exec.") || strings.HasPrefix(name, "call.")
				})
			})
			j.dismiss()
			j.expect(everyone(0, size)...)
		}
	})
}

// TestExecMany runs many callers at once, none of which may be lost. The testbed, where the test
// runs alone, uses a hundred.
func TestExecMany(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, callers = 2, 40
		j := newJob(t, size, "").start()
		answers := make([]answer, callers)
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i] = j.exec(context.Background(), "all", fmt.Sprintf("echo %d; exit %d", i, i)) })
		}
		all.Wait()
		for i, got := range answers {
			lines := strings.Split(got.out, "\n")
			slices.Sort(lines)
			want := []string{"", fmt.Sprintf("n0: %d", i), fmt.Sprintf("n1: %d", i)}
			if got.err != nil || !slices.Equal(lines, want) || !slices.Equal(got.codes(), everyone(i, size)) {
				t.Errorf("caller %d: %v, codes %v, out %q", i, got.err, got.codes(), got.out)
			}
		}
		j.dismiss()
		j.expect(everyone(0, size)...)
	})
}

// TestExecOutput runs a command with more output than fits into a few records.
func TestExecOutput(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "").start()
		const lines = 200_000
		got := j.exec(context.Background(), "1", fmt.Sprintf("seq %d", lines))
		var want strings.Builder
		for i := range lines {
			fmt.Fprintln(&want, i+1)
		}
		if got.err != nil || got.out != want.String() {
			t.Errorf("%v: %d bytes have come, of %d", got.err, len(got.out), want.Len())
		}
		j.dismiss()
		j.expect(0, 0)
	})
}

// TestExecStream verifies that output arrives before the command's end.
func TestExecStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "").start()
		dir, about := j.outside()
		mark := filepath.Join(t.TempDir(), "seen")
		order := exec.Request{Argv: service.ShellCommand("echo first; until test -e " + mark + "; do sleep 0.02; done; echo second"), Nodes: []string{"1"}}
		out := &waker{line: "first\n", wake: func() { _ = os.WriteFile(mark, nil, 0o600) }}
		answers, err := exec.New(dir, about, order, j.net.Host("outside"), exec.DefaultTimeouts, out, out).Execute(context.Background(), nil)
		if err != nil || len(answers) != 1 || !answers[0].Answered || out.String() != "first\nsecond\n" {
			t.Errorf("%v, %+v, out %q", err, answers, out.String())
		}
		j.dismiss()
		j.expect(0, 0)
	})
}

// waker calls a function when a line has arrived.
type waker struct {
	bytes.Buffer
	line string
	wake func()
}

func (w *waker) Write(data []byte) (int, error) {
	n, err := w.Buffer.Write(data)
	if strings.HasPrefix(w.String(), w.line) {
		w.wake()
	}
	return n, err
}

// ask publishes a request without waiting for the answer, and returns the prefix of its names.
func ask(t *testing.T, dir *signal.Dir, line string, nodes ...string) (id string) {
	t.Helper()
	id = fmt.Sprintf("%016x", rand.Uint64())
	if err := dir.EnsureSubdir(context.Background(), signal.ExecDir); err != nil {
		t.Fatal(err)
	}
	order := &struct {
		record.Header
		Argv  []string `json:"argv"`
		Nodes []string `json:"nodes"`
	}{Argv: service.ShellCommand(line), Nodes: nodes}
	if err := dir.PublishRecord(context.Background(), signal.ExecDir, id+".request", order, false); err != nil {
		t.Fatal(err)
	}
	return id
}

func call(t *testing.T, dir *signal.Dir, id string) {
	t.Helper()
	if err := dir.WriteMark(context.Background(), signal.ControlDir, "call."+id); err != nil {
		t.Fatal(err)
	}
}

func TestExecForeign(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ran := filepath.Join(t.TempDir(), "ran")
		j := newJob(t, 2, "").start()
		dir, _ := j.outside()
		rows := map[string]func(f *memory.File){
			"others may write to it": func(f *memory.File) { f.Kind |= 0o622 },
			"a link to one":          func(f *memory.File) { f.Kind, f.Target = fs.ModeSymlink, "/elsewhere/request" },
			"a directory":            func(f *memory.File) { *f = *memory.NewDir(nil) },
			"no record":              func(f *memory.File) { f.Data = []byte("{}\n") },
			"another user's":         func(f *memory.File) { f.Owner = 65534 },
			"of another attempt": func(f *memory.File) {
				f.Data = bytes.Replace(f.Data, []byte(dir.Nonce()), []byte(strings.Repeat("0", len(dir.Nonce()))), 1)
			},
		}
		for name, spoil := range rows {
			id := ask(t, dir, "touch "+ran, "all")
			j.share.Change(filepath.Join(j.run(), signal.ExecDir, id+".request"), spoil)
			call(t, dir, id)
			j.untilNamed(signal.ExecDir, id+".taken")
			taken, err := j.read(filepath.Join(j.run(), signal.ExecDir, id+".taken"))
			if err != nil || !strings.Contains(string(taken), `"refused":"`) || strings.Contains(string(taken), `"nodes"`) {
				t.Errorf("%s: it was taken: %s, %v", name, taken, err)
			}
		}
		good := filepath.Join(t.TempDir(), "good")
		call(t, dir, ask(t, dir, "touch "+good, "1"))
		j.untilFile(good)
		if _, err := os.Stat(ran); err == nil {
			t.Error("what was refused has run")
		}
		j.dismiss()
		j.expect(0, 0)
	})
}

// TestExecUnsafeDirectory uses a directory in which other users could create names.
func TestExecUnsafeDirectory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 1, "").start()
		dir, _ := j.outside()
		id := ask(t, dir, "true", "all")
		j.share.Change(filepath.Join(j.run(), signal.ExecDir), func(f *memory.File) { f.Kind |= 0o722 })
		call(t, dir, id)
		j.until("a word of it", func() bool { return strings.Contains(j.said(), "other users could create files there") })
		j.share.Change(filepath.Join(j.run(), signal.ExecDir), func(f *memory.File) { f.Kind &^= fs.ModePerm })
		j.untilNamed(signal.ExecDir, id+".0000.end")
		j.dismiss()
		j.expect(0)
	})
}

// TestExecCallerGone verifies that a command ends if its caller stops its heartbeats after the
// command has begun.
func TestExecCallerGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		place := t.TempDir()
		j := newJob(t, 2, "").start()
		dir, about := j.outside()
		line := func(name string) string {
			return "trap 'touch " + place + "/" + name + ".ended.$BRINGUPD_NODE_RANK; exit' TERM; touch " + place + "/" + name + ".began.$BRINGUPD_NODE_RANK; while :; do sleep 0.05; done"
		}
		untilBoth := func(name string, beat func()) {
			t.Helper()
			last := time.Now()
			for _, rank := range []string{"0", "1"} {
				j.until(name+" on rank "+rank, func() bool {
					if now := time.Now(); now.Sub(last) > 200*time.Millisecond {
						last = now
						beat()
					}
					_, err := os.Stat(filepath.Join(place, name+"."+rank))
					return err == nil
				})
			}
		}
		silent := func() {}
		// The first caller sends its heartbeats, if any, by files.
		id := ask(t, dir, line("files"), "all")
		call(t, dir, id)
		untilBoth("files.began", func() { _ = dir.WriteNamedHeartbeat(context.Background(), signal.ExecDir, id+".beat") })
		untilBoth("files.ended", silent)
		// The second caller has a connection, whose end shows that the caller is gone.
		id = ask(t, dir, line("guest"), "all")
		var raw peerlink.ClientID
		_, _ = hex.Decode(raw[:], []byte(id))
		guest := peerlink.ConnectClient(context.Background(), dir.DeriveSecret(peerlink.SecretName), raw, j.net.Host("outside"), about.LinkAddresses)
		guest.RequestPoll()
		untilBoth("guest.began", func() { guest.SendHeartbeat() })
		guest.Disconnect()
		untilBoth("guest.ended", silent)
		j.dismiss()
		j.expect(0, 0)
	})
}

// TestExecIsForgotten verifies that a node keeps no child entry of a command that has ended: a job
// may receive commands for months.
func TestExecIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := aHead(t, "unused")
		call(t, h.Dir, ask(t, h.Dir, "exit 3", "head"))
		until := func(what string, so func() bool) {
			t.Helper()
			for deadline := time.Now().Add(ceiling); !so(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("there is no %s", what)
				}
			}
		}
		until("end of the command", func() bool {
			names, err := h.Dir.ListNames(t.Context(), signal.ExecDir)
			return err == nil && slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".0000.end") })
		})
		until("head without children", func() bool { return h.children.Count() == 0 })
	})
}

// TestExecCanceled cancels a request because the caller has seen enough.
func TestExecCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 3, "").start()
		began := filepath.Join(t.TempDir(), "began")
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		go func() {
			for _, rank := range []string{".0", ".1", ".2"} {
				j.untilFile(began + rank)
			}
			cancel(enough)
		}()
		got := j.exec(ctx, "all", "touch "+began+".$BRINGUPD_NODE_RANK; exec sleep 300")
		if !errors.Is(got.err, enough) || !slices.Equal(got.codes(), everyone(143, 3)) {
			t.Errorf("%v, codes %v", got.err, got.codes())
		}
		j.dismiss()
		j.expect(0, 0, 0)
	})
}

// TestExecRunEnds verifies that the nodes report the end of a run that ends while a command runs.
func TestExecRunEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, line string
		code       int
		gone       bool // the command has ended before the run
	}{
		{"before the command", "exec sleep 300", 143, false},
		{"while another keeps the command's output open", "sleep 300 & exit 3", 3, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				j := newJob(t, 2, "").start()
				began := filepath.Join(t.TempDir(), "began")
				await := j.untilFile
				if tc.gone {
					await = j.untilGone
				}
				go func() {
					await(began + ".0")
					await(began + ".1")
					j.dismiss()
				}()
				path := began + ".$BRINGUPD_NODE_RANK"
				got := j.exec(context.Background(), "all", "echo $$ >"+path+".new; mv "+path+".new "+path+"; "+tc.line)
				if got.err != nil || !slices.Equal(got.codes(), everyone(tc.code, 2)) {
					t.Errorf("%v, codes %v", got.err, got.codes())
				}
				j.expect(0, 0)
			})
		})
	}
}

// TestExecNoAnswer sends a request to nodes and a head that do not answer.
func TestExecNoAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "").start()
		dir, about := j.outside()
		j.dismiss()
		j.expect(0, 0)
		times := exec.Timeouts{Accept: 300 * time.Millisecond, AfterRun: 30 * time.Second, AfterCancel: time.Second, HeartbeatInterval: time.Second}
		caller := exec.New(dir, about, exec.Request{Argv: service.ShellCommand("true"), Nodes: []string{"all"}}, j.net.Host("outside"), times, os.Stderr, os.Stderr)
		if answers, err := caller.Execute(context.Background(), nil); !errors.Is(err, exec.ErrNoAnswer) || len(answers) > 0 {
			t.Errorf("%v, %+v", err, answers)
		}
		if left := j.names(signal.ExecDir); len(left) > 0 {
			t.Errorf("this is left: %v", left)
		}
	})
}

// TestExecHangs sends a request to a node that takes part in the run and never answers.
func TestExecHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "").start()
		dir, about := j.outside()
		began := filepath.Join(t.TempDir(), "began")
		times := exec.DefaultTimeouts
		times.AfterCancel = 200 * time.Millisecond
		// The command ignores SIGTERM: the caller stops waiting, and the node's grace period ends the
		// command.
		order := exec.Request{Argv: service.ShellCommand("trap '' TERM; touch " + began + "; while :; do sleep 0.1; done"), Nodes: []string{"all"}}
		ctx, cancel := context.WithCancelCause(context.Background())
		go func() {
			j.untilFile(began)
			cancel(exec.ErrCancelTimeout)
		}()
		answers, err := exec.New(dir, about, order, j.net.Host("outside"), times, os.Stderr, os.Stderr).Execute(ctx, nil)
		if !errors.Is(err, exec.ErrCancelTimeout) || len(answers) != 2 {
			t.Errorf("%v, %+v", err, answers)
		}
		j.until("the end of the command", func() bool {
			return !slices.ContainsFunc(j.processes(), func(line string) bool { return strings.Contains(line, began) })
		})
		j.dismiss()
		j.expect(0, 0)
	})
}
