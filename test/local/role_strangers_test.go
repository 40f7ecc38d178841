package local

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// serveVariable is the address at which a helper process answers HTTP requests.
const serveVariable = "LOCAL_TEST_SERVE"

// serve answers HTTP requests at an address, on IPv4 alone if it is one of IPv4. It returns the exit
// code of the process.
func serve(address string) int {
	network := "tcp4"
	if strings.HasPrefix(address, "[") {
		network = "tcp6"
	}
	listener, err := net.Listen(network, address)
	if err == nil {
		err = http.Serve(listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	fmt.Fprintln(os.Stderr, err)
	return 98
}

// roleJob is a job of the job's user with roles on this machine.
type roleJob struct {
	t     *testing.T
	dir   string
	ended chan struct{} // closed when it has ended
	code  int
}

// startRoles starts a job with the roles of a file, in whose commands $DIR is a directory of the job's
// user and $SERVE a helper process that serves at the address of serveVariable.
func startRoles(t *testing.T, file string) *roleJob {
	t.Helper()
	users.Need(t)
	j := &roleJob{t: t, dir: users.Job.Dir(t), ended: make(chan struct{})}
	config := filepath.Join(j.dir, "job.yaml")
	said, err := os.Create(filepath.Join(j.dir, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = said.Close() }()
	if err := os.WriteFile(config, []byte("roles:\n"+file), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := users.Job.Command(t.Context(), j.dir, users.Public(t, jobtest.Bringupd), "local",
		"--nodes=1", "--log-dir="+j.dir+"/logs", "--job-id=j", "--config="+config)
	cmd.Env = append(cmd.Env, "DIR="+j.dir, "SERVE="+users.Public(t, os.Args[0]))
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(j.ended)
		_ = cmd.Wait()
		j.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = cmd.Cancel()
		<-j.ended
	})
	return j
}

// said returns what the job has printed.
func (j *roleJob) said() string {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, "said"))
	if err != nil {
		j.t.Fatal(err)
	}
	return string(text)
}

// await waits until a condition holds, or fails the test.
func (j *roleJob) await(what string, holds func() bool) {
	j.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			j.t.Fatalf("%s: not after a minute:\n%s", what, j.said())
		}
	}
}

// awaitFile waits for a file of the job's directory, and returns its content.
func (j *roleJob) awaitFile(name string) (text string) {
	j.t.Helper()
	j.await(name, func() bool {
		data, err := os.ReadFile(filepath.Join(j.dir, name))
		text = strings.TrimSpace(string(data))
		return err == nil && text != ""
	})
	return text
}

// awaitEnd waits for the end of the job, and checks its code.
func (j *roleJob) awaitEnd(code int) {
	j.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(time.Minute):
		j.t.Fatalf("the job has not ended after a minute:\n%s", j.said())
	}
	if j.code != code {
		j.t.Errorf("the job has ended with %d, want %d:\n%s", j.code, code, j.said())
	}
}

// touch makes a file in the job's directory.
func (j *roleJob) touch(name string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, name), nil, 0o644); err != nil {
		j.t.Fatal(err)
	}
}

// TestStrangerBesideRole checks that another user who listens on another address of a role's port
// neither ends its instance, nor takes it from the list of endpoints, nor keeps it from being started
// again. The job warns of it once in each generation.
func TestStrangerBesideRole(t *testing.T) {
	j := startRoles(t, `
- name: server
  nodes: all
  env: {`+serveVariable+`: "0.0.0.0:$BRINGUPD_PORT"}
  command: echo $$ > $DIR/pid.$BRINGUPD_GENERATION; exec $SERVE
  restarts: 1
  ready: "http://localhost:$BRINGUPD_PORT/"
  alive: {probe: "http://localhost:$BRINGUPD_PORT/", after: 1s}
- name: client
  nodes: all
  primary: true
  command: |
    cp $BRINGUPD_ENDPOINTS_FILE_SERVER $DIR/port~ && mv $DIR/port~ $DIR/port
    until test -e $DIR/stranger; do sleep 0.05; done
    for i in $(seq 60); do grep -q . $BRINGUPD_ENDPOINTS_FILE_SERVER || exit 5; sleep 0.1; done
    test ! -e $DIR/pid.1 || exit 6
    kill -9 $(cat $DIR/pid.0)
    until test -e $DIR/logs/j/nodes/0000.i0000.g1.ready; do sleep 0.05; done
    until test -s $BRINGUPD_ENDPOINTS_FILE_SERVER; do sleep 0.05; done
`)
	_, port, err := net.SplitHostPort(j.awaitFile("port"))
	if err != nil {
		t.Fatal(err)
	}
	listenAs(t, users.Stranger, "[::1]:"+port)
	j.touch("stranger")
	j.awaitEnd(0)
	want := fmt.Sprintf("port %s of ::1 is held by a process of user %d", port, users.Stranger.ID)
	if got := strings.Count(j.said(), want); got < 1 || got > 2 {
		t.Errorf("it says %d times %q:\n%s", got, want, j.said())
	}
}

// TestStrangerAtUnprobedRole checks that the endpoint of a role without a probe is listed when the role
// listens there, and never while another user does. The gate does not wait for that.
func TestStrangerAtUnprobedRole(t *testing.T) {
	j := startRoles(t, `
- name: server
  nodes: all
  env: {`+serveVariable+`: "0.0.0.0:$BRINGUPD_PORT"}
  command: until test -e $DIR/listen; do sleep 0.05; done; exec $SERVE
- name: client
  nodes: all
  primary: true
  command: |
    echo $BRINGUPD_ROLE_SERVER_ENDPOINTS > $DIR/port
    until test -e $DIR/stranger; do sleep 0.05; done
    for i in $(seq 20); do test ! -s $BRINGUPD_ENDPOINTS_FILE_SERVER || exit 5; sleep 0.1; done
    echo now > $DIR/unlisted
    for i in $(seq 300); do
      grep -qxF $BRINGUPD_ROLE_SERVER_ENDPOINTS $BRINGUPD_ENDPOINTS_FILE_SERVER && exit 0
      sleep 0.1
    done
    exit 6
`)
	_, port, err := net.SplitHostPort(j.awaitFile("port"))
	if err != nil {
		t.Fatal(err)
	}
	stranger := listenAs(t, users.Stranger, "0.0.0.0:"+port)
	j.touch("stranger")
	j.awaitFile("unlisted")
	_ = stranger.Close()
	j.touch("listen")
	j.awaitEnd(0)
	if want := fmt.Sprintf("is held by a process of user %d", users.Stranger.ID); strings.Count(j.said(), want) != 1 {
		t.Errorf("it does not say once %q:\n%s", want, j.said())
	}
}

// TestKeyInProbe checks that the command of a probe has the key of its role, and that no command line,
// message or record has it, although the probe and the process print it.
func TestKeyInProbe(t *testing.T) {
	j := startRoles(t, `
- name: server
  nodes: all
  command: echo my key is $BRINGUPD_ROLE_SERVER_KEY; echo $BRINGUPD_ROLE_SERVER_KEY > $DIR/key; exec sleep 600
  ready:
    probe: >-
      exec:sh -c 'tr \\0 \\n < /proc/$$/cmdline > $DIR/probed;
      echo probed with $BRINGUPD_ROLE_SERVER_KEY; exit 1'
    timeout: 2s
`)
	key := j.awaitFile("key")
	j.awaitEnd(77)
	if !strings.Contains(j.said(), "probed with …") {
		t.Errorf("it does not say what the probe has printed:\n%s", j.said())
	}
	err := filepath.WalkDir(j.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == "key" || entry.Name() == "server-0.log" {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), key) {
			t.Errorf("%s has the key:\n%s", path, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if probed := j.awaitFile("probed"); !strings.Contains(probed, "BRINGUPD_ROLE_SERVER_KEY") {
		t.Errorf("the command line is %q", probed)
	}
}

// TestPortsOfSteps checks that the ports of a role of a further step are kept until its process starts,
// and that it listens there.
func TestPortsOfSteps(t *testing.T) {
	j := startRoles(t, `
- name: first
  nodes: all
  oneshot: true
  command: echo $BRINGUPD_ROLE_SERVER_ENDPOINTS > $DIR/port; until test -e $DIR/tried; do sleep 0.05; done
- name: server
  nodes: all
  step: other
  after: [first]
  env: {`+serveVariable+`: "0.0.0.0:$BRINGUPD_PORT"}
  command: exec $SERVE
  ready: "http://localhost:$BRINGUPD_PORT/"
- {name: client, nodes: all, primary: true, command: "true"}
`)
	_, port, err := net.SplitHostPort(j.awaitFile("port"))
	if err != nil {
		t.Fatal(err)
	}
	j.await("the daemon of the step starts its roles", func() bool {
		names, _ := filepath.Glob(filepath.Join(j.dir, "logs/j/nodes/0000-1.joined"))
		return len(names) == 1
	})
	for _, address := range []string{"127.0.0.1:", "[::1]:"} {
		if listener, err := net.Listen("tcp", address+port); err == nil {
			_ = listener.Close()
			t.Errorf("another process can listen at %s%s", address, port)
		}
	}
	j.touch("tried")
	j.awaitEnd(0)
}

// TestStrangerKeepsPort checks that the wait for a port that another user does not give back is limited.
func TestStrangerKeepsPort(t *testing.T) {
	j := startRoles(t, `
- name: server
  nodes: all
  command: "echo $BRINGUPD_PORT > $DIR/port; exec sleep 600"
  ready: {probe: "http://localhost:$BRINGUPD_PORT/", timeout: 4s}
`)
	port := j.awaitFile("port")
	listenAs(t, users.Stranger, "127.0.0.1:"+port)
	j.awaitEnd(77)
	if want := fmt.Sprintf("port %s of 127.0.0.1 is held by a process of user %d", port,
		users.Stranger.ID); !strings.Contains(j.said(), want) {
		t.Errorf("it does not say %q:\n%s", want, j.said())
	}
}

// TestStrangerTakesPort checks that an instance whose port another user has taken waits until it is free,
// and that this costs no restart.
func TestStrangerTakesPort(t *testing.T) {
	j := startRoles(t, `
- name: server
  nodes: all
  env: {`+serveVariable+`: "0.0.0.0:$BRINGUPD_PORT"}
  command: "echo $BRINGUPD_PORT > $DIR/port; until test -e $DIR/taken; do sleep 0.05; done; exec $SERVE"
  ready: "http://localhost:$BRINGUPD_PORT/"
- {name: client, nodes: all, primary: true, command: "true"}
`)
	port := j.awaitFile("port")
	stranger := listenAs(t, users.Stranger, "0.0.0.0:"+port)
	j.touch("taken")
	want := fmt.Sprintf("port %s of :: is held by a process of user %d", port, users.Stranger.ID)
	j.await("it says that it waits", func() bool {
		return strings.Contains(j.said(),
			"waiting until the port is free")
	})
	_ = stranger.Close()
	j.awaitEnd(0)
	if !strings.Contains(j.said(), want) {
		t.Errorf("it does not say %q:\n%s", want, j.said())
	}
	exits, err := filepath.Glob(filepath.Join(j.dir, "logs/j/nodes/*.exited"))
	if err != nil || len(exits) > 0 {
		t.Errorf("there are exits: %v, %v", exits, err)
	}
}
