package pmi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestEveryRankSeesWhatAllHavePut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := serveJob(t.Context(), t, newHall(), job(0, 0, 1, 1, 2))
		for turn := range 3 {
			w.each(t, func(rank int, c *client) error {
				return c.put(t.Context(), fmt.Sprintf("of-%d", rank), fmt.Sprintf("a card, %d = %d", turn, rank))
			})
			w.each(t, func(_ int, c *client) error { return c.barrier(t.Context()) })
			w.each(t, func(_ int, c *client) error {
				for of := range w.ranks {
					want := fmt.Sprintf("a card, %d = %d", turn, of)
					if got, err := c.get(t.Context(), fmt.Sprintf("of-%d", of)); err != nil || got != want {
						return fmt.Errorf("it gets %q of rank %d, not %q: %v", got, of, want, err)
					}
				}
				return nil
			})
		}
		w.each(t, func(_ int, c *client) error { return c.finalize(t.Context()) })
		for rank, p := range w.end() {
			if p != (SessionState{Initialized: true, Finalized: true}) {
				t.Errorf("rank %d has parted as %+v", rank, p)
			}
		}
		slices.Sort(w.entered)
		if entered := slices.Compact(slices.Clone(w.entered)); len(w.entered) != 15 ||
			len(entered) != 5 || entered[4] != "MPI barrier by 4" {
			t.Errorf("these have entered barriers: %q", w.entered)
		}
	})
}

// talk sends the commands of rank 1 of 3 on two nodes to its server at once, and returns the
// answers.
func talk(t *testing.T, h *hall, j *Job, says string) (hears string, parting SessionState, aborts []aborted) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		space := h.open(j, func(a aborted) { aborts = append(aborts, a) })[j.Nodes[1]]
		ours, theirs := net.Pipe()
		var heard bytes.Buffer
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = io.Copy(&heard, theirs)
		}()
		served := make(chan SessionState, 1)
		go func() { served <- space.ServeRank(t.Context(), 1, ours) }()
		_, _ = io.WriteString(theirs, says)
		synctest.Wait()
		_ = theirs.Close()
		<-done
		hears, parting = heard.String(), <-served
	})
	return hears, parting, aborts
}

var update = flag.Bool("update", false, "write the answers in testdata/commands.txt anew")

// TestCommands compares the answers to the commands of a rank in testdata/commands.txt, followed by how
// it parts, its aborts and its spawn. A line that ends with \ has no line end.
func TestCommands(t *testing.T) {
	const path = "testdata/commands.txt"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		block, _, _ = strings.Cut(block, "\n> ")
		_, says, _ := strings.Cut(block+"\n", "\n")
		var spawned []SpawnRequest
		h := newHall()
		h.spawn = func(_ *hall, s SpawnRequest) (string, error) {
			spawned = append(spawned, s)
			if s.Commands[0].Argv[0] == "/no/such" {
				return "", errors.New("cannot start /no/such: there is none")
			}
			return "job.1", nil
		}
		j := job(0, 0, 2)
		j.Apps, j.Preput = []int{0, 1, 1}, map[string]string{"PARENT_ROOT_PORT_NAME": "tag#0$ x"}
		hears, parting, aborts := talk(t, h, j, strings.ReplaceAll(says, "\\\n", ""))
		answer := fmt.Sprintf("%s%+v %v", hears, parting, aborts)
		for _, s := range spawned {
			answer += fmt.Sprintf("\nspawn by %v with %q", s.Requester, s.Preput)
			for _, c := range s.Commands {
				answer += fmt.Sprintf("\n%d of %q in %q with %q", c.Ranks, c.Argv, c.Dir, c.Info)
			}
		}
		got = append(got, block+"\n> "+strings.ReplaceAll(answer, "\n", "\n> "))
	}
	all := strings.Join(got, "\n\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(text), all); diff != "" {
		t.Errorf("the answers are others (-update writes them):\n%s", diff)
	}
}

// TestPutsAreShort verifies the limits of one key and one value.
func TestPutsAreShort(t *testing.T) {
	for says, answer := range map[string]string{
		"key=K value=" + strings.Repeat("v", 1025):    "a_value_must_have_at_most_1024_bytes",
		"key=" + strings.Repeat("k", 65) + " value=1": "a_key_must_have_1_to_64_bytes",
	} {
		hears, _, _ := talk(t, newHall(), job(0, 0), "cmd=put kvsname=job "+says+"\n")
		if want := "cmd=put_result rc=-1 msg=" + answer + "\n"; hears != want {
			t.Errorf("it hears %q, not %q", hears, want)
		}
	}
}

// TestRefusedRank verifies that a rank whose node cannot reach the others is refused and does not
// count as started.
func TestRefusedRank(t *testing.T) {
	space := NewPMI1Server(PMI1Config{
		Job: job(0, 0), Log: zap.NewNop(),
		Handlers: Handlers{Peers: newHall(), AwaitLink: func(context.Context,
			ProcID) error {
			return errors.New("there is no link")
		}},
	})
	ours, theirs := net.Pipe()
	var heard string
	go func() {
		_, _ = io.WriteString(theirs, "cmd=init pmi_version=1 pmi_subversion=1\n")
		heard, _ = bufio.NewReader(theirs).ReadString('\n')
		_ = theirs.Close()
	}()
	parting := space.ServeRank(t.Context(), 1, ours)
	const refusal = "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n"
	if heard != refusal || parting != (SessionState{}) || space.HasInitialized(1) {
		t.Errorf("it hears %q and parts as %+v", heard, parting)
	}
}

func TestLinesAreBounded(t *testing.T) {
	for _, tc := range []struct{ name, says, error string }{
		{"a line", "cmd=put key=K value=" + strings.Repeat("v", 200_000) + "\n", "longer"},
		{"a line without an end", strings.Repeat("v", 200_000), "longer"},
		{"a spawn", "mcmd=spawn\n" + strings.Repeat("arg="+strings.Repeat("v", 100_000)+"\n", 800), "bytes"},
		{"a spawn of what is none", "mcmd=spawn\ntotspawns=2\nendcmd\ncmd=get_maxes\n", "instead of"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			space := NewPMI1Server(PMI1Config{Job: job(0), Handlers: Handlers{Peers: newHall()}, Log: zap.New(core)})
			ours, theirs := net.Pipe()
			go func() { _, _ = io.WriteString(theirs, tc.says) }()
			if parting := space.ServeRank(t.Context(), 0, ours); parting != (SessionState{}) {
				t.Errorf("it parts as %+v", parting)
			}
			if said := fmt.Sprint(logs.All()); logs.FilterLevelExact(zap.ErrorLevel).Len() != 1 ||
				!strings.Contains(said, tc.error) {
				t.Errorf("the log has %v", said)
			}
		})
	}
}

// TestDeathInABarrier verifies that the end of a rank that dies in a barrier is seen at once, and
// that the others still wait: another component ends them.
func TestDeathInABarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, last := range []bool{false, true} {
			w := serveJob(t.Context(), t, newHall(), job(0, 0, 1))
			wait, giveUp := context.WithCancelCause(t.Context())
			others := make(chan error, 2)
			enter := func(rank int, to chan<- error) { go func() { to <- w.ranks[rank].barrier(wait) }() }
			died := make(chan error, 1)
			if last {
				enter(1, others)
				synctest.Wait()
			}
			enter(0, died) // with rank 1 before it, this completes the node's part
			synctest.Wait()
			w.ranks[0].close()
			if err := <-died; err == nil {
				t.Error("a rank that has closed its connection is through the barrier")
			}
			synctest.Wait()
			if last {
				enter(2, others)
				for range 2 {
					if err := <-others; err != nil {
						t.Errorf("the last of its node has come and died: %v", err)
					}
				}
			} else {
				enter(2, others)
				synctest.Wait()
				giveUp(errors.New("enough"))
				if err := <-others; err == nil || err.Error() != "enough" {
					t.Errorf("a barrier that one has not come to ends with %v", err)
				}
			}
			giveUp(nil)
			if parting := w.end(); parting[0] != (SessionState{Initialized: true}) {
				t.Errorf("it has parted as %+v", parting[0])
			}
		}
	})
}

func TestServeEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := serveJob(ctx, t, newHall(), job(0, 1))
		ended := make(chan error)
		go func() { ended <- w.ranks[0].barrier(t.Context()) }() // the last of its node: the nodes synchronise
		time.Sleep(time.Hour)
		cancel()
		w.serving.Wait()
		if err := <-ended; err == nil {
			t.Error("it is through the barrier")
		}
		w.end()
	})
}

func TestBarrierOfWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, spoil := range map[string]func([]byte) []byte{
			"nothing":       func([]byte) []byte { return nil },
			"one node less": func(data []byte) []byte { return data[:len(encodeValues(map[string]string{"of": "1"}))] },
			"cut off":       func(data []byte) []byte { return data[:len(data)-1] },
			"foreign":       func([]byte) []byte { return []byte("{\"what\":\"is this\"}") },
		} {
			h := newHall()
			h.spoil = spoil
			w := serveJob(t.Context(), t, h, job(0, 1))
			w.each(t, func(rank int, c *client) error {
				if err := c.put(t.Context(), "of", fmt.Sprint(rank)); err != nil {
					return err
				}
				if err := c.barrier(t.Context()); err == nil || !strings.Contains(err.Error(), "a barrier") {
					return fmt.Errorf("it is through a barrier whose data is spoiled (%s): %v", name, err)
				}
				return nil
			})
			w.end()
		}
	})
}

func TestMapping(t *testing.T) {
	ragged := make([]int, 0, 2000)
	for node := range 200 {
		for range 1 + node%3*2 {
			ragged = append(ragged, node)
		}
	}
	for _, tc := range []struct {
		name  string
		nodes []int
		want  string
	}{
		{"one rank", []int{0}, "(vector,(0,1,1))"},
		{"as many everywhere", []int{0, 0, 1, 1, 2, 2}, "(vector,(0,3,2))"},
		{"fewer on the last", []int{0, 0, 1, 1, 2}, "(vector,(0,2,2),(2,1,1))"},
		{"in turns", []int{0, 1, 0, 1}, "(vector,(0,2,1),(0,2,1))"},
		{"not on the first node", []int{3, 3, 1}, "(vector,(0,1,2),(1,1,1))"},
		{"too long", ragged, ""},
		{"nobody", nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ProcessMapping(tc.nodes); got != tc.want {
				t.Errorf("it is %s, not %s", got, tc.want)
			}
		})
	}
}

func TestEnviron(t *testing.T) {
	j := job(1, 0, 1)
	j.Parent = &ProcID{Job: "before", Rank: 2}
	want := map[string]string{
		"PMI_FD": "3", "PMI_RANK": "2", "PMI_SIZE": "3", "PMI_SPAWNED": "1",
		"PMI_HOSTNAME": "host1", "MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1",
		"MPIR_CVAR_PMI_VERSION": "1", "I_MPI_PMI": "pmi1", "I_MPI_SPAWN": "on",
	}
	if diff := cmp.Diff(want, PMI1Environ(j, 2, 3)); diff != "" {
		t.Error(diff)
	}
}

func TestSweep(t *testing.T) {
	was := sharedMemoryDir
	t.Cleanup(func() { sharedMemoryDir = was })
	sharedMemoryDir = t.TempDir()
	for _, name := range []string{"mpich_shm_ddd42fdc_1", "mpich_vci_ddd42fdc_1",
		"mpich_shm_ddd42fdc_0", "mpich_shm_ddd42fdd_1"} {
		if err := os.WriteFile(filepath.Join(sharedMemoryDir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	space := NewPMI1Server(PMI1Config{Job: job(1, 1, 0), Handlers: Handlers{Peers: newHall()}, Log: zap.NewNop()})
	for range 2 {
		if err := space.RemoveSharedMemory(); err != nil {
			t.Error(err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(sharedMemoryDir, "*"))
	if len(left) != 2 || filepath.Base(left[0]) != "mpich_shm_ddd42fdc_0" ||
		filepath.Base(left[1]) != "mpich_shm_ddd42fdd_1" {
		t.Errorf("these are left: %v", left)
	}
}

func TestDelta(t *testing.T) {
	one, other := map[string]string{"a": "1", "": "", "b": "x\n\x00y"},
		map[string]string{"c": strings.Repeat("z", 1000)}
	got, err := decodeValues(slices.Concat(encodeValues(other), encodeValues(nil), encodeValues(one)), 3)
	want := map[string]string{"a": "1", "": "", "b": "x\n\x00y", "c": other["c"]}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	whole := encodeValues(one)
	for size := 1; size < len(whole); size++ {
		if got, err := decodeValues(whole[:size], 1); err == nil {
			t.Errorf("the first %d bytes of %d are taken for %v", size, len(whole), got)
		}
	}
}

// FuzzServe lets a rank send anything: the server ends with it, and clients can parse every line of
// its answers.
func FuzzServe(f *testing.F) {
	f.Add("cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=put kvsname=job key=K " +
		"value=V\ncmd=barrier_in\ncmd=finalize\n")
	f.Add("mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=2\narg1=\nendcmd\n" +
		"mcmd=spawn\nnprocs=3\nexecname=y\ninfo_key_0=wd\ninfo_val_0=/\nendcmd\n")
	f.Add("cmd=publish_name service=s port=p\ncmd=lookup_name service=s\ncmd=abort exitcode=x error_msg=a b\n")
	h := newHall()
	h.spawn = func(*hall, SpawnRequest) (string, error) { return "job.1", nil }
	f.Fuzz(func(t *testing.T, says string) {
		space := h.open(job(0), func(aborted) {})[0]
		conn := &script{Reader: strings.NewReader(says)}
		space.ServeRank(t.Context(), 0, conn)
		lines := newLineScanner(&conn.heard)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "cmd=put_ranks2hosts") {
				return // does not have that form
			}
			if m, err := parseMessage(lines.Text()); err != nil || m.fields["rc"] == "" {
				t.Errorf("it answers %q: %v", lines.Text(), err)
			}
		}
	})
}

// script is a connection to a rank whose commands are given.
type script struct {
	io.Reader
	heard bytes.Buffer
}

func (s *script) Write(p []byte) (int, error) { return s.heard.Write(p) }
func (s *script) Close() error                { return nil }
