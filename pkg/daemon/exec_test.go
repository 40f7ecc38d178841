package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/exec"
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
	answers, err := exec.New(dir, about, order, j.net.Host("outside"), exec.DefaultTimeouts, &out,
		&errs).Execute(ctx, nil)
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
				{"all", "all", "echo it is $BRINGUPD_NODE_RANK; printf end; exit " +
					"$BRINGUPD_NODE_RANK", []int{0, 1, 2, 3},
					"n0: end\nn0: it is 0\nn1: end\nn1: it is 1\nn2: end\nn2: it is 2\nn3: end\nn3: it is 3\n", ""},
				{"a signal", "1,head", "kill -KILL $$", []int{137, 137}, "", ""},
				{"nothing is left behind", "1", "sleep 300 & echo", []int{0}, "\n", ""},
			} {
				got := j.exec(context.Background(), tc.nodes, tc.line)
				lines := strings.SplitAfter(got.out, "\n")
				slices.Sort(lines)
				if got.err != nil || !slices.Equal(got.codes(), tc.codes) ||
					strings.Join(lines, "") != tc.out || got.errs != tc.errs {
					t.Errorf("%s, peer link %s: %v, codes %v, out %q, errors %q", tc.name, mode,
						got.err, got.codes(), got.out, got.errs)
				}
			}
			for _, nodes := range []string{"4", "-1", "n4", "", "all,9"} {
				if got := j.exec(context.Background(), nodes, "echo"); !errors.Is(got.err,
					exec.ErrRefused) || got.out != "" {
					t.Errorf("nodes %q: %v, out %q", nodes, got.err, got.out)
				}
			}
			j.until("an empty exec and no orders", func() bool {
				return len(j.names(signal.ExecDir)) == 0 &&
					!slices.ContainsFunc(j.names(signal.ControlDir), func(name string) bool {
						return strings.HasPrefix(name, "exec.") || strings.HasPrefix(name, "call.")
					})
			})
			j.dismiss()
			j.expect(everyone(0, size)...)
		}
	})
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
	if err := dir.PublishRecord(context.Background(), signal.ControlDir, "call."+id, order, false); err != nil {
		t.Fatal(err)
	}
	return id
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
			j.share.Change(filepath.Join(j.run(), signal.ControlDir), func(f *memory.File) { f.Kind &^= fs.ModePerm })
			id := ask(t, dir, "touch "+ran, "all")
			j.share.Change(filepath.Join(j.run(), signal.ControlDir, "call."+id), spoil)
			j.untilNamed(signal.ControlDir, "exec."+id)
			taken, err := j.read(filepath.Join(j.run(), signal.ControlDir, "exec."+id))
			if err != nil || !strings.Contains(string(taken), `"refused":"`) ||
				strings.Contains(string(taken), `"nodes"`) {
				t.Errorf("%s: it was taken: %s, %v", name, taken, err)
			}
		}
		good := filepath.Join(t.TempDir(), "good")
		ask(t, dir, "touch "+good, "1")
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
		j.share.Change(filepath.Join(j.run(), signal.ControlDir), func(f *memory.File) { f.Kind |= 0o722 })
		ask(t, dir, "true", "all")
		j.until("a word of it", func() bool {
			return strings.Contains(j.said(),
				"other users could create files there")
		})
		j.dismiss()
		j.expect(0)
	})
}

// TestExecIsForgotten verifies that a node keeps no child entry of a command that has ended: a job
// may receive commands for months.
func TestExecIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := aHead(t, "unused")
		ask(t, h.node.Dir, "exit 3", "head")
		until := func(what string, so func() bool) {
			t.Helper()
			for deadline := time.Now().Add(ceiling); !so(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("there is no %s", what)
				}
			}
		}
		until("end of the command", func() bool {
			names, err := h.node.Dir.ListNames(t.Context(), signal.ExecDir)
			return err == nil && slices.ContainsFunc(names,
				func(name string) bool { return strings.HasSuffix(name, ".0000.end") })
		})
		until("head without children", func() bool { return h.node.children.Count() == 0 })
	})
}
