package roleruns

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/test/jobtest"
)

// topologies is where the files of published jobs are.
const topologies = "../../pkg/roles/rolefile/testdata/topologies"

// What the files have that these tests leave out: all nodes are this machine, in one component, so
// that fixed ports are planned ones here, group is removed, and a cluster of Ray is a program that
// serves.
var leftOut = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?m)^  group: .*\n`), ""},
	{regexp.MustCompile(` (group|segment): [a-z0-9]+,`), ""},
	{regexp.MustCompile(`, segment: 16`), ""},
	{regexp.MustCompile(`spares: \{0: 1\}`), "spares: 1"},
	{regexp.MustCompile(`(?m)^  framework: ray.*\n`), ""},
	{regexp.MustCompile(`framework: ray`), "command: serve $$BRINGUPD_PORT"},
	{regexp.MustCompile(`((?:http|rpc|meta|client|peer|monarch): )\d+`), "${1}auto"},
	{regexp.MustCompile(`serve \d+`), "serve $$BRINGUPD_PORT"},
	{regexp.MustCompile(`"tcp:\d+"`), `"tcp:$$BRINGUPD_PORT"`},
}

// topology is a published job.
type topology struct {
	file        string
	nodes, gpus int
	servers     string // the roles whose processes must serve before its client ends
	endpoints   int    // of these roles
	stop        bool   // it has no primary role, and is stopped
}

// allTopologies lists the published jobs, with the nodes and GPUs of each.
var allTopologies = []topology{
	{"01-nemo-rl", 7, 0, "rl sandbox genrm genrm-lb", 1 + 2 + 4 + 1, false},
	{"02-prime-rl", 3, 8, "infer router envs", 8 + 1 + 1, false},
	{"03-prefill-decode", 6, 8, "store cache prefill decode sidecar router", 1 + 6 + 8 + 16 + 4 + 1, true},
	{"04-dynamo", 2, 8, "etcd nats prefill decode frontend nginx", 1 + 1 + 6 + 2 + 2 + 1, false},
	{"05-trtllm", 8, 2, "gen router", 2 + 1, true},
	{"06-ray-pool", 2, 0, "train watcher", 1 + 2, false},
	{"07-shadow-engines", 4, 8, "gms engine standby", 8 + 8 + 8, false},
	{"08-evaluation", 3, 0, "model judge", 1 + 1, false},
	{"09-rl-with-cpu-nodes", 5, 2, "rollout reward replay data", 2 + 1 + 1 + 1, false},
	{"10-monarch", 8, 0, "trainer generator", 4 + 4, false},
	{"11-torchft", 4, 2, "lighthouse", 1, false},
	{"12-areal", 6, 8, "server", 8, false},
}

// topologyPrograms are the stand-ins for the programs of the files.
var topologyPrograms = map[string]func(s *standIn) error{
	"serve": (*standIn).serve, "follow": (*standIn).serve, "watch": (*standIn).serve,
	"route": (*standIn).route, "balance": (*standIn).balance,
	"drive": (*standIn).drive, "measure": (*standIn).drive, "evaluate": (*standIn).drive,
	"train": (*standIn).train,
}

// serversVariable has the names of the roles that must serve, and the number of their endpoints.
const serversVariable = "ROLERUNS_SERVERS"

// TestTopologies runs twelve published jobs with stand-ins for their programs: routers connect to all
// planned endpoints, clients to all that are ready, ranks meet at their rendezvous, and everything
// ends in an orderly way.
func TestTopologies(t *testing.T) {
	turns := make(chan struct{}, *sideFlag)
	for _, tc := range allTopologies {
		t.Run(tc.file, func(t *testing.T) {
			t.Parallel()
			turns <- struct{}{}
			defer func() { <-turns }()
			tc.run(t)
		})
	}
}

func (tc topology) run(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(topologies, tc.file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := string(text)
	for _, left := range leftOut {
		file = left.pattern.ReplaceAllString(file, left.with)
	}
	j := newJob(t, schedule{}, tc.file)
	programs := filepath.Join(j.Dir, "bin")
	if err := os.Mkdir(programs, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range topologyPrograms {
		if err := os.Symlink(self, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	j.start(file, []string{"PATH=" + programs + ":" + os.Getenv("PATH"),
		fmt.Sprintf("%s=%d %s", serversVariable, tc.endpoints, tc.servers)},
		fmt.Sprintf("--nodes=%d", tc.nodes), fmt.Sprintf("--gpus-per-node=%d", tc.gpus), "--gpu-check=off")
	if tc.stop {
		j.stopWhenServing(tc)
	}
	if !j.awaitEnd() {
		t.Fatalf("%s\n%s", strings.Join(j.wrong, "\n"), &j.Said)
	}
	got := j.observe()
	if got.code != 0 || len(got.left) > 0 || len(got.second) > 0 || got.result == nil || got.result.Cause != nil {
		t.Errorf("code %d, left %v, wrong: %v\n%s\n%s", got.code, got.left, got.second, file, &j.Said)
	}
}

// stopWhenServing stops the run when all processes serve.
func (j *job) stopWhenServing(tc topology) {
	j.T.Helper()
	var missing error
	serves := j.Until(func() bool {
		starts, _ := os.ReadDir(filepath.Join(j.Dir, startsDir))
		for _, start := range starts {
			if facts := j.facts(start.Name()); facts != nil {
				missing = checkServers(strings.Fields(tc.servers), tc.endpoints, facts.Files)
				return missing == nil
			}
		}
		return false
	})
	if !serves {
		j.T.Errorf("not all processes serve: %v\n%s", missing, &j.Said)
	}
	stop := exec.Command(jobtest.Bringupd, "stop", filepath.Join(j.Logs, j.Name))
	if out, err := stop.CombinedOutput(); err != nil {
		j.T.Errorf("cannot stop the run: %v: %s", err, out)
	}
}

// runTopologyProgram runs a stand-in, and returns its exit code.
func (s *standIn) runTopologyProgram(program func(s *standIn) error) int {
	started := time.Now()
	ossignal.Notify(s.notified, syscall.SIGTERM)
	err := s.lock()
	if err == nil {
		s.publishStart(started)
		err = program(s)
	}
	if err != nil {
		s.append(violationName, "%s: %v", s.name, err)
		fmt.Fprintln(os.Stderr, err)
		return 97
	}
	return 0
}

// serve listens on all ports of the process until it is told to stop.
func (s *standIn) serve() error {
	if len(os.Args) > 1 && os.Args[1] == "" {
		return fmt.Errorf("an argument is empty: %q", os.Args)
	}
	for _, entry := range os.Environ() {
		name, port, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "BRINGUPD_PORT_") {
			continue
		}
		listener, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		go answer(listener)
	}
	<-s.notified
	return nil
}

// answer answers each connection as HTTP servers do.
func answer(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = fmt.Fprint(conn, "HTTP/1.0 200 OK\r\n\r\n")
		_ = conn.Close()
	}
}

// dialAll connects to all endpoints, and waits for those that do not listen yet.
func dialAll(endpoints []string) error {
	for _, endpoint := range endpoints {
		deadline := time.Now().Add(jobtest.Ceiling)
		for {
			conn, err := net.DialTimeout("tcp", endpoint, time.Second)
			if err == nil {
				_ = conn.Close()
				break
			}
			if time.Now().After(deadline) {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// route serves when all planned endpoints that it was given listen.
func (s *standIn) route() error {
	var all []string
	for _, list := range os.Args[1:] {
		all = append(all, strings.Split(list, ",")...)
	}
	if len(all) == 0 {
		return fmt.Errorf("the router has no endpoints")
	}
	if err := dialAll(all); err != nil {
		return err
	}
	return s.serve()
}

// balance serves the endpoints of a file.
func (s *standIn) balance() error {
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	if err := dialAll(strings.Fields(string(text))); err != nil {
		return err
	}
	return s.serve()
}

// drive is a client: it ends when all servers are in their files of endpoints, and listen.
func (s *standIn) drive() error {
	names := strings.Fields(os.Getenv(serversVariable))
	count, err := strconv.Atoi(names[0])
	if err != nil {
		return err
	}
	files := make(map[string]string)
	for _, name := range names[1:] {
		files[roles.VariableName(name)] = os.Getenv("BRINGUPD_ENDPOINTS_FILE_" + roles.VariableName(name))
	}
	deadline := time.Now().Add(jobtest.Ceiling)
	for {
		err := checkServers(names[1:], count, files)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// checkServers checks that the files of these roles have so many endpoints, and that all listen.
func checkServers(names []string, count int, files map[string]string) error {
	var all []string
	for _, name := range names {
		text, err := os.ReadFile(files[roles.VariableName(name)])
		if err != nil {
			return err
		}
		all = append(all, strings.Fields(string(text))...)
	}
	if len(all) != count {
		return fmt.Errorf("%v have %d endpoints: %v", names, len(all), all)
	}
	return dialAll(all)
}

// train is a rank: all ranks of its world meet, and end.
func (s *standIn) train() error {
	meeting := net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT"))
	size, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil {
		return err
	}
	if os.Getenv("RANK") != "0" {
		return s.meet(meeting)
	}
	listener, err := net.Listen("tcp", meeting)
	if err != nil {
		return err
	}
	var others []net.Conn
	for len(others) < size-1 {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		others = append(others, conn)
	}
	for _, conn := range others {
		if _, err := fmt.Fprintln(conn, "all are there"); err != nil {
			return err
		}
	}
	return nil
}

// meet waits for the word of rank 0.
func (s *standIn) meet(meeting string) error {
	deadline := time.Now().Add(jobtest.Ceiling)
	for {
		conn, err := net.DialTimeout("tcp", meeting, time.Second)
		if err == nil {
			_, err = bufio.NewReader(conn).ReadString('\n')
			return err
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestTopologiesAreComplete checks that no published job is left out.
func TestTopologiesAreComplete(t *testing.T) {
	files, err := filepath.Glob(topologies + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("cannot find the files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if !slices.ContainsFunc(allTopologies, func(tc topology) bool { return tc.file == name }) {
			t.Errorf("no test runs %s", name)
		}
	}
}
