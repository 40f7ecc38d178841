package local

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// listenAs listens at an address, until the end of the test at the latest, with a socket that belongs
// to the given user.
func listenAs(t *testing.T, user users.User, address string) net.Listener {
	t.Helper()
	runtime.LockOSThread() // the socket is created on this thread
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(int(user.ID)); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setfsuid(0) }()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// TestStrangersPort checks that another user who listens on a service's port before the service
// does is not mistaken for the service: the driver must not run.
func TestStrangersPort(t *testing.T) {
	users.Need(t)
	program := users.Public(t, jobtest.Bringupd)
	for _, stranger := range []string{"127.0.0.1", "[::1]", "[::]"} {
		t.Run(stranger, func(t *testing.T) {
			t.Parallel()
			free, err := net.Listen("tcp", stranger+":0")
			if err != nil {
				t.Fatal(err)
			}
			port := free.Addr().(*net.TCPAddr).Port
			_ = free.Close()
			dir := users.Job.Dir(t)
			job := users.Job.Command(t.Context(), dir, program, "local", "--nodes=1",
				"--log-dir="+dir+"/logs",
				"--head-cmd=touch started; exec sleep 1000",
				fmt.Sprintf("--head-ready=http://localhost:%d/", port), "--", "touch",
				"driver-ran")
			var said strings.Builder
			job.Stderr = &said
			if err := job.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- job.Wait() }()
			for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatal("the head's service has not started after a minute")
				}
			}
			listenAs(t, users.Stranger, fmt.Sprintf("%s:%d", stranger, port))
			select {
			case err = <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the job has not ended after a minute")
			}
			want := fmt.Sprintf("port %d of %s is held by a process of user %d", port,
				strings.Trim(stranger, "[]"), users.Stranger.ID)
			if exit, _ := err.(*exec.ExitError); exit == nil || exit.ExitCode() != 77 ||
				!strings.Contains(said.String(), want) {
				t.Errorf("%v, and it does not say %q:\n%s", err, want, said.String())
			}
			if _, err := os.Stat(filepath.Join(dir, "driver-ran")); err == nil {
				t.Error("the driver ran")
			}
		})
	}
}
