package process

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/test/hostile"
)

// serveMount mounts its first argument at its second, as a file system that can be made to hang.
func serveMount() error {
	return hostile.Serve(os.Args[1], os.Args[2], hostile.Knobs{}, os.Stdin, os.Stdout)
}

// lockMemory is a process that, on request, waits for its first argument, a file that does not
// answer, in the two ways that together block all access to its memory: one thread reads mapped
// data, another requests a new mapping.
func lockMemory() error {
	file, err := os.Open(os.Args[1])
	if err != nil {
		return err
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("cannot map the file: %v", err)
	}
	file.Close()
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
	go func() { _, _ = memory.ReadAt(make([]byte, 1), int64(uintptr(unsafe.Pointer(&mapped[0])))) }()
	go func() {
		for {
			const flags = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
			if more, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, flags); err == nil {
				_ = unix.Munmap(more)
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// company is a helper process that runs until the end of the test.
type company struct {
	pid int
	in  io.Writer
	out *bufio.Reader
}

func accompany(t *testing.T, name string, args ...string) company {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = childEnv(helperVariable + "=" + name)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	c := company{cmd.Process.Pid, stdin, bufio.NewReader(stdout)}
	c.answer(t)
	return c
}

// mountOf mounts a folder with one executable file of that content, and returns the process that
// serves the mount, and its path.
func mountOf(t *testing.T, content []byte) (server company, at string) {
	t.Helper()
	folder, at := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "file"), content, 0o755); err != nil {
		t.Fatal(err)
	}
	return accompany(t, "mount", folder, at), at
}

// answer waits for a line.
func (c company) answer(t *testing.T) {
	t.Helper()
	if _, err := c.out.ReadString('\n'); err != nil {
		t.Fatalf("a helper does not answer: %v", err)
	}
}

func (c company) tell(t *testing.T, line string) {
	t.Helper()
	fmt.Fprintln(c.in, line)
	c.answer(t)
}

// looking returns the number of goroutines that read an environment: each that hangs blocks a
// thread.
func looking() int {
	var stacks bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
	return strings.Count(stacks.String(), "os.ReadFile(")
}

// TestLooksThatHang verifies that an environment that does not answer blocks one thread for that
// time, however often families are inspected, and that all such environments together block at most
// the maximum.
func TestLooksThatHang(t *testing.T) {
	takesSeconds(t)
	if err := hostile.Available(); err != nil {
		t.Skip(err)
	}
	s := newSupervisor(t)
	mount, at := mountOf(t, make([]byte, 1<<20))
	s.scanner.maxHung = 2
	arg := nap(t)
	c := start(t, s, shell("exec sleep "+arg)) // began before the others: they may belong to it
	var locked []company
	for range 3 {
		locked = append(locked, accompany(t, "locked", filepath.Join(at, "file")))
	}
	t.Cleanup(func() { fmt.Fprintln(mount.in, "{}") }) // otherwise they would not end
	mount.tell(t, `{"unread": true}`)
	for i, want := range []int{1, 2, 2} {
		fmt.Fprintln(locked[i].in)
		began := time.Now()
		until(t, "look that hangs", func() (bool, any) {
			c.OwnsProcess(locked[i].pid)
			return looking() == want && (i < 2 || time.Since(began) > time.Second), looking()
		})
		for range 3 {
			c.OwnsProcess(locked[i].pid)
		}
		if got := looking(); got != want {
			t.Errorf("%d goroutines look at %d processes that do not answer, want %d", got, i+1, want)
		}
	}
	mount.tell(t, "{}")
	until(t, "end of the looks", func() (bool, any) { return looking() == 0, looking() })
	marked := exec.Command("sleep", arg)
	marked.Env = withMark(nil, c.mark, nil)
	if err := marked.Start(); err != nil {
		t.Fatal(err)
	}
	left, err := newFamilySweep(c.currentCriteria(), s.scanner).scanAndSignal(unix.SIGKILL)
	if err != nil || len(left) != 2 {
		t.Errorf("%v (%v), want the child and who bears its mark", left, err)
	}
	_ = marked.Process.Kill()
	_ = marked.Wait()
}

// TestElders verifies that a process is inspected if it has the PID of an earlier one that is known
// to be too old.
func TestElders(t *testing.T) {
	cmd := exec.Command("sleep", nap(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid := cmd.Process.Pid
	sees := func(l *procScanner, when string, want bool) {
		t.Helper()
		all, err := l.scanProcesses()
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.ContainsFunc(all, func(p procStat) bool { return p.pid == pid }); got != want {
			t.Fatalf("%s: seen: %v, want %v", when, got, want)
		}
	}
	sees(newProcScanner(bootTicks()-1000), "started after the daemon", true)
	stat, err := readStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	sees(newProcScanner(stat.start), "started within the tick of the daemon's start", true)
	l := newProcScanner(bootTicks() + 1000)
	sees(l, "started before it", false)
	known := l.excluded[pid]
	l.startTime = 0
	sees(l, "known to be too old", false)
	for what, at := range map[string]dirIdentity{
		"another inode":             {known.inode + 1, known.changed},
		"an inode of another time":  {known.inode, unix.Timespec{Sec: known.changed.Sec - 1, Nsec: known.changed.Nsec}},
		"what could not be told of": {},
	} {
		l.excluded[pid] = at
		sees(l, what, true)
	}
}

// TestReadSelf verifies that a /proc of another PID namespace is refused.
func TestReadSelf(t *testing.T) {
	link := filepath.Join(t.TempDir(), "self")
	if err := os.Symlink("12345678", link); err != nil {
		t.Fatal(err)
	}
	if _, err := verifySelf(link, os.Getpid()); err == nil || !strings.Contains(err.Error(), "12345678") {
		t.Errorf("got %v", err)
	}
}
