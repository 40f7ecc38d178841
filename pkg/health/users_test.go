package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/users"
)

// TestWaitElsewhere is not a test: it is the job of the tests below. It waits, as its user, for a
// probe of a port on which it listens itself at the given address, if any, and prints the outcome
// of the wait.
func TestWaitElsewhere(t *testing.T) {
	probe := os.Getenv("HEALTH_TEST_PROBE")
	if probe == "" {
		return
	}
	if address := os.Getenv("HEALTH_TEST_SERVICE"); address != "" {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // the garbage collector would close it during the wait
	}
	timeout := time.Minute // this process may start on a busy machine
	if os.Getenv("HEALTH_TEST_SHORT") != "" {
		timeout = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	p := parse(t, probe)
	port, _ := p.LocalPort()
	err := WaitReady(ctx, p.Try, WaitOptions{
		Ports: []int{port}, OwnsProcess: func(pid int) bool { return pid == os.Getpid() },
		AcceptsBeside: os.Getenv("HEALTH_TEST_BESIDE") != "",
	})
	fmt.Printf("the wait ended: %v.\n", err)
}

// TestTryElsewhere is not a test: it is a service of the job's user, at the given address, which is
// tried by a probe until it answers.
func TestTryElsewhere(t *testing.T) {
	probe := os.Getenv("HEALTH_TEST_TRY")
	if probe == "" {
		return
	}
	network, address := "tcp", os.Getenv("HEALTH_TEST_SERVICE")
	if strings.HasPrefix(address, "0.0.0.0:") {
		network = "tcp4" // otherwise it listens on all of IPv6, too
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(listener) }()
	port := listener.Addr().(*net.TCPAddr).Port
	for range 30 { // an attempt is short: on a busy machine the service may not answer in time
		err = parse(t, probe).Try(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "no response from ") {
			break
		}
	}
	strangers, findErr := FindStrangers(port)
	fmt.Printf("the wait ended: %v, %v, %d strangers.\n", err, findErr, len(strangers))
}

// TestProbeBesideStranger verifies that a probe reaches the service although another user listens on
// another address of its port, that this listener is found, and that it receives no data. The name
// localhost has both addresses there.
func TestProbeBesideStranger(t *testing.T) {
	users.Need(t)
	program := users.Public(t, os.Args[0])
	become := jobWithFile(t, "/etc/hosts", "::1 localhost\n127.0.0.1 localhost\n")
	for _, tc := range []struct{ stranger, service, probe string }{
		{"[::1]", "0.0.0.0", "http://localhost:%d/"},
		{"[::1]", "127.0.0.1", "tcp:%d"},
		{"127.0.0.1", "[::1]", "http://localhost:%d/"},
		{"127.0.0.2", "127.0.0.1", "tcp://127.0.0.1:%d"},
	} {
		t.Run(tc.probe+" with "+tc.stranger, func(t *testing.T) {
			t.Parallel()
			port, received := listenerAs(t, program, users.Stranger, tc.stranger+":0")
			cmd := users.Job.Command(t.Context(), users.Job.Dir(t), become[0],
				append(slices.Clone(become[1:]), program, "-test.run=^TestTryElsewhere$")...)
			cmd.SysProcAttr.Credential = nil
			cmd.Env = append(cmd.Env, "HEALTH_TEST_TRY="+fmt.Sprintf(tc.probe, port),
				fmt.Sprintf("HEALTH_TEST_SERVICE=%s:%d", tc.service, port), "GORACE=atexit_sleep_ms=0")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "the wait ended: <nil>, <nil>, 1 strangers.") {
				t.Errorf("%v: %s", err, out)
			}
			if text, err := os.ReadFile(received); err == nil {
				t.Errorf("the stranger has received %q", text)
			}
		})
	}
}

// waitAs runs TestWaitElsewhere as the job's user, by a command that runs it, and returns the
// outcome of its wait. program is a public copy of this test.
func waitAs(t *testing.T, program, service, probe string, command ...string) string {
	t.Helper()
	return waitWith(t, nil, program, service, probe, command...)
}

// waitWith does the same with more variables.
func waitWith(t *testing.T, env []string, program, service, probe string, command ...string) string {
	t.Helper()
	command = append(command, program, "-test.run=^TestWaitElsewhere$")
	cmd := users.Job.Command(t.Context(), users.Job.Dir(t), command[0], command[1:]...)
	if command[0] == "unshare" && command[1] == "--mount" { // it changes to the job's user by itself
		cmd.SysProcAttr.Credential = nil
	}
	cmd.Env = append(cmd.Env, "HEALTH_TEST_PROBE="+probe, "HEALTH_TEST_SERVICE="+service, "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	_, said, found := strings.Cut(string(out), "the wait ended: ")
	if !found {
		t.Fatalf("%v: %s", err, out)
	}
	said, _, _ = strings.Cut(said, ".\n")
	return said
}

// listenerAs starts a listener of another user, and returns its port and the file with the data it
// receives.
func listenerAs(t *testing.T, program string, user users.User, address string) (port int, received string) {
	t.Helper()
	dir := user.Dir(t)
	file := filepath.Join(dir, "port")
	cmd := user.Command(t.Context(), dir, program, "-test.run=^TestListenElsewhere$")
	_, port = listenerBy(t, cmd, file, address)
	return port, file + ".received"
}

// waitBeside waits for a service of the job's user, if it has an address, beside a listener of another
// user, which must receive nothing. It returns the port and the outcome of the wait.
func waitBeside(t *testing.T, program, stranger, service, probe string, env ...string) (port int, said string) {
	t.Helper()
	t.Parallel()
	port, received := listenerAs(t, program, users.Stranger, stranger+":0")
	if service != "" {
		service += fmt.Sprintf(":%d", port)
	}
	said = waitWith(t, env, program, service, fmt.Sprintf(probe, port))
	if text, err := os.ReadFile(received); err == nil {
		t.Errorf("the stranger has received %q", text)
	}
	return port, said
}

// TestWaitReadyStranger verifies that another user's listener on the service's port, on any
// address, is never taken for the service and receives no data.
func TestWaitReadyStranger(t *testing.T) {
	users.Need(t)
	program := users.Public(t, os.Args[0])
	for _, tc := range []struct{ stranger, service, probe string }{
		{"0.0.0.0", "", "tcp:%d"},
		{"0.0.0.0", "", "http://localhost:%d/"},
		{"127.0.0.1", "", "tcp://127.0.0.1:%d"},
		{"[::1]", "", "http://localhost:%d/"},
		{"[::1]", "127.0.0.1", "tcp:%d"},
		{"[::1]", "127.0.0.1", "http://127.0.0.1:%d/"},
		{"127.0.0.1", "[::1]", "tcp://localhost:%d"},
		{"[::]", "", "tcp:%d"},
	} {
		t.Run(tc.probe+" with "+tc.stranger, func(t *testing.T) {
			port, said := waitBeside(t, program, tc.stranger, tc.service, tc.probe)
			want := fmt.Sprintf("port %d of %s is held by a process of user %d", port,
				strings.Trim(tc.stranger, "[]"), users.Stranger.ID)
			ofJob := fmt.Sprintf("the job runs as user %d", users.Job.ID)
			if !strings.Contains(said, want) || !strings.Contains(said, ofJob) {
				t.Errorf("it says %q, not %q", said, want)
			}
		})
	}
}

// TestWaitReadyBeside verifies that a service that may be beside another user's listener is ready only
// if it listens itself, and that this listener receives nothing.
func TestWaitReadyBeside(t *testing.T) {
	users.Need(t)
	program := users.Public(t, os.Args[0])
	for _, tc := range []struct {
		stranger, service, probe string
		isReady                  bool
	}{
		{"[::1]", "127.0.0.1", "tcp:%d", true},
		{"127.0.0.1", "[::1]", "tcp:%d", true},
		{"127.0.0.1", "[::1]", "tcp://127.0.0.1:%d", false},
		{"127.0.0.1", "", "http://127.0.0.1:%d/", false},
		{"0.0.0.0", "", "tcp:%d", false},
	} {
		t.Run(tc.probe+" with "+tc.stranger, func(t *testing.T) {
			env := []string{"HEALTH_TEST_BESIDE=1"}
			if !tc.isReady {
				env = append(env, "HEALTH_TEST_SHORT=1")
			}
			_, said := waitBeside(t, program, tc.stranger, tc.service, tc.probe, env...)
			if (said == "<nil>") != tc.isReady {
				t.Errorf("it says %q", said)
			}
		})
	}
}

// TestWaitReadyFlicker verifies that a port that another user keeps opening and closing may be hit
// by an attempt, but that the check of the listeners afterwards still detects it.
func TestWaitReadyFlicker(t *testing.T) {
	users.Need(t)
	program := users.Public(t, os.Args[0])
	port := unusedPort(t)
	ctx, cancel := context.WithCancel(t.Context())
	stranger := users.Stranger.Command(ctx, users.Stranger.Dir(t), program, "-test.run=^TestFlickerElsewhere$")
	stranger.Env = append(stranger.Env, fmt.Sprintf("HEALTH_TEST_FLICKER=127.0.0.1:%d", port))
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Wait() }()
	defer cancel()
	for range 5 {
		said := waitWith(t, []string{"HEALTH_TEST_SHORT=1"}, program, "", fmt.Sprintf("tcp:%d", port))
		if said == "<nil>" {
			t.Fatal("the stranger was taken for the service")
		}
	}
}

// jobWithFile returns the beginning of a command that root starts, and that runs the rest as the job's
// user, with another content of a system file.
func jobWithFile(t *testing.T, path, content string) []string {
	t.Helper()
	dir := users.Job.Dir(t)
	file := filepath.Join(dir, filepath.Base(path))
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(file, []byte(content), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return []string{"unshare", "--mount", "sh", "-c",
		`mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", file, path,
		"setpriv", fmt.Sprintf("--reuid=%d", users.Job.ID), fmt.Sprintf("--regid=%d", users.Job.ID), "--clear-groups"}
}

// TestStrangersOfChildren verifies that a user is no stranger whose process this one has started, as
// by sudo.
func TestStrangersOfChildren(t *testing.T) {
	users.Need(t)
	port, _ := listenerAs(t, users.Public(t, os.Args[0]), users.Stranger, "127.0.0.1:0")
	if found, err := FindStrangers(port); err != nil || len(found) > 0 {
		t.Errorf("its listener is a stranger's: %v, %v", found, err)
	}
}

// TestWaitReadyContainer verifies that root and the user's subordinate IDs may listen for the
// service, as container engines do.
func TestWaitReadyContainer(t *testing.T) {
	users.Need(t)
	program := users.Public(t, os.Args[0])
	become := jobWithFile(t, "/etc/subuid", fmt.Sprintf("%d:%d:65536\n", users.Job.ID, 700000))
	for _, tc := range []struct {
		name    string
		user    users.User
		command []string
		want    string
	}{
		{"root", users.User{}, nil, "<nil>"},
		{"a subordinate id", users.User{ID: 700005}, become, "<nil>"},
		{"an id above the range", users.User{ID: 765536}, become, "held by a process of user 765536"},
		{"a stranger, seen from a user namespace", users.Stranger,
			[]string{"unshare", "--user", "--map-root-user"},
			"in this user namespace (a container) that may be any user"},
		{"a stranger, whose processes root sees", users.Stranger, []string{"unshare", "--mount"}, " is held by pid "},
		{"root, seen from a user namespace", users.User{},
			[]string{"unshare", "--user", "--map-root-user"},
			"in this user namespace (a container) that may be any user"},
		{"the job's user, seen from a user namespace", users.Job,
			[]string{"unshare", "--user", "--map-root-user"}, "<nil>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			port, _ := listenerAs(t, program, tc.user, "127.0.0.1:0")
			if said := waitAs(t, program, "", fmt.Sprintf("tcp:%d", port),
				tc.command...); !strings.Contains(said, tc.want) {
				t.Errorf("it says %q, not %q", said, tc.want)
			}
		})
	}
}
