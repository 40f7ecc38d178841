package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/test/hostile"
)

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestStartErrors(t *testing.T) {
	s := newSupervisor(t)
	dir := t.TempDir()
	write(t, dir+"/ok", "#!/bin/sh\nexit 0\n", 0o755)
	write(t, dir+"/plain", "#!/bin/sh\nexit 0\n", 0o644)
	write(t, dir+"/windows", "#!/bin/sh\r\nexit 0\r\n", 0o755)
	write(t, dir+"/lost", "#!/no/such/interpreter -x\n", 0o755)
	write(t, dir+"/noline", "exit 0\n", 0o755)
	write(t, dir+"/empty", "", 0o755)
	zeros := func(count int) string { return strings.Repeat("\x00", count) }
	write(t, dir+"/foreign", "\x7fELF\x02\x01\x01"+zeros(9)+"\x02\x00\x15\x00"+zeros(200), 0o755)
	write(t, dir+"/a/tool", "no", 0o644)
	write(t, dir+"/b/tool", "#!/bin/sh\nexit 0\n", 0o755)
	write(t, dir+"/c/dir/file", "", 0o644)
	if err := os.Symlink("/no/such/target", dir+"/dangling"); err != nil {
		t.Fatal(err)
	}
	big := make([]string, 100)
	for i := range big {
		big[i] = strings.Repeat("x", 100<<10)
	}
	for _, tc := range []struct {
		name string
		argv []string
		dir  string
		path string
		want error  // nil: neither of the two
		says string // a part of the message that a caller relies on; empty: it starts
	}{
		{"fine", []string{dir + "/ok"}, "", "", nil, ""},
		{"from its directory", []string{"./ok"}, dir, "", nil, ""},
		{"by PATH", []string{"tool"}, "", dir + "/b", nil, ""},
		{"by a PATH from its directory", []string{"tool"}, dir, "b", nil, ""},
		{"by an empty PATH entry", []string{"ok"}, dir, "/nowhere:", nil, ""},
		{"one that can't be run is passed over", []string{"tool"}, "", dir + "/a:" + dir + "/b", nil, ""},
		{"not there", []string{dir + "/nothing"}, "", "", ErrNotFound, dir + "/nothing"},
		{"beneath a file", []string{dir + "/ok/x"}, "", "", ErrNotFound, dir + "/ok/x"},
		{"not in PATH", []string{"nothing"}, "", "/one:/two", ErrNotFound, "/one:/two"},
		{"a dangling link", []string{dir + "/dangling"}, "", "", ErrNotFound, "/no/such/target"},
		{"only in the daemon's directory", []string{"./ok"}, "/", "", ErrNotFound, "/ok"},
		{"a directory", []string{dir}, "", "", ErrNotExecutable, dir},
		{"a directory in PATH", []string{"dir"}, "", dir + "/c", ErrNotExecutable, dir + "/c/dir"},
		{"not allowed", []string{dir + "/plain"}, "", "", ErrNotExecutable, "chmod +x " + dir + "/plain"},
		{"not allowed in PATH", []string{"tool"}, "", dir + "/a", ErrNotExecutable, dir + "/a/tool"},
		{"Windows line ends", []string{dir + "/windows"}, "", "", ErrNotExecutable,
			`sed -i 's/\r$//' ` + dir + "/windows"},
		{"no interpreter", []string{dir + "/lost"}, "", "", ErrNotExecutable, "/no/such/interpreter"},
		{"no first line", []string{dir + "/noline"}, "", "", ErrNotExecutable, "#!"},
		{"empty", []string{dir + "/empty"}, "", "", ErrNotExecutable, dir + "/empty"},
		{"another machine's", []string{dir + "/foreign"}, "", "", ErrNotExecutable, "ppc64le"},
		{"too long", append([]string{dir + "/ok"}, big...), "", "", ErrNotExecutable, "bytes"},
		{"no such directory", []string{"/bin/true"}, dir + "/nothing", "", nil, dir + "/nothing"},
		{"a directory that is none", []string{"/bin/true"}, dir + "/ok", "", nil, dir + "/ok"},
		{"no command", nil, "", "", nil, "empty"},
		{"a zero byte", []string{"/bin/echo", "a\x00b"}, "", "", nil, "zero byte"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := s.Start(t.Context(), Spec{Name: "driver", Argv: tc.argv, Dir: tc.dir,
				Env: []string{"PATH=" + tc.path}})
			if tc.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				if exit := finished(t, c); exit.ShellStatus() != 0 {
					t.Errorf("%+v", exit)
				}
				return
			}
			if err == nil {
				t.Fatalf("it started")
			}
			for _, class := range []error{ErrNotFound, ErrNotExecutable} {
				if errors.Is(err, class) != (class == tc.want) {
					t.Errorf("%v: is %v: %v", err, class, errors.Is(err, class))
				}
			}
			if !strings.HasPrefix(err.Error(), "cannot start driver: ") || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want one that names %q", err, tc.says)
			}
			t.Log(err)
		})
	}
}

// TestStartThatHangs verifies that a start that hangs ends with its context, does not block others,
// and leaves no child behind when it completes.
func TestStartThatHangs(t *testing.T) {
	s := newSupervisor(t)
	release := make(chan struct{})
	s.resolve = func(argv0, dir string, env []string) (Program, error) {
		if strings.HasSuffix(argv0, "slow") {
			<-release
			argv0 = "/bin/sleep"
		}
		return FindProgram(argv0, dir, env)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	arg := nap(t)
	if _, err := s.Start(ctx, Spec{Name: "driver", Argv: []string{"/slow", arg}}); err == nil {
		t.Fatal("it started")
	}
	finished(t, start(t, s, shell("exit 0")))
	close(release)
	closeSupervisor(t, s)
	if left := naps(t, arg); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestStartThatIsGivenUp verifies the same if the context ends during the fork.
func TestStartThatIsGivenUp(t *testing.T) {
	s := newSupervisor(t)
	for i := range 20 {
		arg := nap(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		c, err := s.Start(ctx, shell("sleep "+arg))
		cancel()
		if err == nil {
			c.Stop(t.Context(), 0, syscall.SIGKILL)
		}
		noneLeft(t, arg)
	}
}

// giveUp is a daemon that, on request, abandons the start of its first argument and continues.
func giveUp() error {
	s, err := NewSupervisor(launcher.JobVariables())
	if err != nil {
		return err
	}
	c, err := s.Start(context.Background(), shell("exit 0")) // so that no start waits for the guard
	if err != nil {
		return err
	}
	<-c.Done()
	fmt.Println("ready")
	_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Start(ctx, Spec{Name: "script", Argv: os.Args[1:], Env: childEnv()}); err == nil {
		return errors.New("it started")
	}
	runtime.GC() // stops all threads of Go for a moment
	fmt.Println("lives")
	return nil
}

// TestInterpreterThatHangs verifies that the wait for an interpreter on a file system that hangs
// happens before the fork, which would block the whole daemon.
func TestInterpreterThatHangs(t *testing.T) {
	if err := hostile.Available(); err != nil {
		t.Skip(err)
	}
	binary, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	mount, at := mountOf(t, binary)
	script := filepath.Join(t.TempDir(), "script")
	write(t, script, "#!"+at+"/file\n", 0o755)
	daemon := accompany(t, "giveup", script)
	t.Cleanup(func() { fmt.Fprintln(mount.in, "{}") })
	mount.tell(t, `{"unread": true}`)
	held := time.AfterFunc(ceiling/4, func() { _ = unix.Kill(daemon.pid, unix.SIGKILL) })
	defer held.Stop()
	daemon.tell(t, "")
}
