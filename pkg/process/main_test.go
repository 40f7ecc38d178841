package process

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/test/twin"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

// helperVariable makes the test binary one of the helpers.
const helperVariable = "PROCESS_TEST_HELPER"

func TestMain(m *testing.M) {
	twin.Main()
	name := os.Getenv(helperVariable)
	if name == "" {
		goleak.VerifyTestMain(m)
		return
	}
	helpers := map[string]func() error{
		"daemon": standIn, "blob": writeBlobs, "locked": lockMemory, "mount": serveMount, "giveup": giveUp,
		"hide": hidePlace, "hidden": hiddenLife, "files": tellFiles,
	}
	if err := helpers[name](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// takesSeconds excludes a test that waits for seconds from "make quick".
func takesSeconds(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes seconds")
	}
}

// ownVariable makes the stand-in daemon make a directory with its value as path, and own it.
const ownVariable = "PROCESS_TEST_OWN"

// holdVariable makes the stand-in daemon leave its end of the guard's pipe to an unrelated process,
// which sleeps for its value.
const holdVariable = "PROCESS_TEST_HOLD"

// silenceVariable makes the stand-in daemon's guard end its children if it is silent for its value.
const silenceVariable = "PROCESS_TEST_SILENCE"

// endIfSilent calls EndIfSilent. A daemon that runs again starts one more child, and says how it
// has ended.
func endIfSilent(s *Supervisor, limit string) {
	within, err := time.ParseDuration(limit)
	if err != nil {
		return
	}
	s.EndIfSilent(within, sync.OnceFunc(func() {
		go func() {
			c, err := s.Start(context.Background(),
				Spec{Name: "late", Argv: []string{"sleep", "3600"}, Env: childEnv()})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			<-c.Ended()
			fmt.Fprintln(os.Stderr, "the late child:", c.Exit())
		}()
	}))
}

// holdPipe simulates a fork whose exec hangs.
func holdPipe(s *Supervisor) error {
	fd, err := unix.FcntlInt(uintptr(s.guardLink.pipeFD), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	stranger := exec.Command("sleep", os.Getenv(holdVariable))
	stranger.ExtraFiles = []*os.File{os.NewFile(uintptr(fd), "the guard's pipe")}
	return stranger.Start()
}

// standIn is a daemon: it starts one child that runs its argument as a shell script, prints its
// identity, and waits for the command that says how to end.
func standIn() error {
	s, err := NewSupervisor(launcher.JobVariables())
	if err != nil {
		return err
	}
	s.AdoptOrphans()
	if path := os.Getenv(ownVariable); path != "" {
		dir, err := files.MakeOwnedDir(path)
		if err != nil {
			return err
		}
		s.OwnPath(dir.Owned())
	}
	endIfSilent(s, os.Getenv(silenceVariable))
	c, err := s.Start(context.Background(), shell(os.Args[1]))
	if err == nil && os.Getenv(holdVariable) != "" {
		err = holdPipe(s)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%s %d\n", s.markPrefix, c.PID())
	word, _ := io.ReadAll(os.Stdin)
	switch string(word) {
	case "exit":
		os.Exit(0)
	case "panic":
		go panic("as a bug would")
		select {}
	case "close":
		return s.Close(context.Background())
	}
	return nil
}

// blob returns the text that the helper of that name prints to one of its streams.
func blob(stream, size int) []byte {
	out := make([]byte, size)
	source := rand.NewChaCha8([32]byte{byte(stream)})
	source.Read(out)
	return out
}

func writeBlobs() error {
	size, _ := strconv.Atoi(os.Args[1])
	var writes errgroup.Group
	for i, file := range []*os.File{os.Stdout, os.Stderr} {
		writes.Go(func() error {
			_, err := file.Write(blob(i, size))
			return err
		})
	}
	return writes.Wait()
}

// childEnv returns an environment for children: that of the tests, without the variable that makes
// a test binary a helper.
func childEnv(more ...string) []string {
	env := os.Environ()
	env = append(env, helperVariable+"=")
	return append(env, more...)
}

// helper returns a Spec that runs a helper of this binary.
func helper(name string, args ...string) Spec {
	return Spec{Name: name, Argv: append([]string{"/proc/self/exe"}, args...),
		Env: childEnv(helperVariable + "=" + name)}
}

// shell returns a Spec that runs a script.
func shell(script string) Spec {
	return Spec{Name: "script", Argv: []string{"/bin/sh", "-c", script}, Env: childEnv()}
}

func newSupervisor(t testing.TB) *Supervisor {
	t.Helper()
	s, err := NewSupervisor(launcher.JobVariables())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeSupervisor(t, s)
		if s.guardLink.starts > 1 {
			t.Errorf("%d guards were started: one was lost", s.guardLink.starts)
		}
	})
	return s
}

func closeSupervisor(t testing.TB, s *Supervisor) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func start(t testing.TB, s *Supervisor, spec Spec) *Child {
	t.Helper()
	c, err := s.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*Child)
}

// finished waits for the end of the child itself.
func finished(t testing.TB, c Handle) Exit {
	t.Helper()
	if !ctxutil.AwaitDoneFor(c.Done(), ceiling) {
		t.Fatalf("%s (pid %d) is not done after %v; last lines: %q", c.Name(), c.PID(), ceiling, c.LastLines())
	}
	return c.Exit()
}

// until waits for a condition; on failure it prints the observed value instead.
func until(t testing.TB, what string, condition func() (ok bool, saw any)) {
	t.Helper()
	deadline := time.Now().Add(ceiling)
	for {
		ok, saw := condition()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v; saw %v", what, ceiling, saw)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// nap returns an argument for sleep that no other process has and by which sleeping processes are
// found. Those that are left at the end of a test that has failed are killed.
func nap(t testing.TB) string {
	arg := fmt.Sprintf("3600.%d%09d", os.Getpid(), rand.IntN(1e9))
	t.Cleanup(func() {
		for _, p := range naps(t, arg) {
			_ = signalProcess(p, unix.SIGKILL)
		}
	})
	return arg
}

// naps returns the live processes that have arg in their command line, as a whole argument or in a
// script.
func naps(t testing.TB, arg string) []procStat {
	t.Helper()
	all, err := newProcScanner(0).scanProcesses()
	if err != nil {
		t.Fatal(err)
	}
	var found []procStat
	for _, p := range all {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "cmdline"))
		if err == nil && !p.dead && p.pid != os.Getpid() && bytes.Contains(line, []byte(arg)) {
			found = append(found, p)
		}
	}
	return found
}

// sleepers waits until exactly n processes sleep for arg.
func sleepers(t testing.TB, arg string, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d sleepers", n), func() (bool, any) {
		found := naps(t, arg)
		count := 0
		for _, p := range found {
			if p.name == "sleep" {
				count++
			}
		}
		return count == n, found
	})
}

func noneLeft(t testing.TB, arg string) {
	t.Helper()
	until(t, "end of all", func() (bool, any) {
		left := naps(t, arg)
		return len(left) == 0, left
	})
}

// guards returns the PIDs of the guards of the daemon whose marks begin with mark.
func guards(t testing.TB, mark string) []int {
	t.Helper()
	var pids []int
	for _, p := range naps(t, mark) {
		line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "cmdline"))
		if strings.HasPrefix(string(line), guardName+"\x00") {
			pids = append(pids, p.pid)
		}
	}
	return pids
}
