package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const (
	fell    = "4,8,8000000,c;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python3, GPU has fallen off the bus.\n"
	fellToo = "4,9,9000000,c;NVRM: Xid (PCI:0000:3b:00): 79, pid=2, name=python3, GPU has fallen off the bus!\n"
	pcie    = "4,7,7000000,-,caller=T5;pcieport 0000:00:02.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:02.0\n"
	first   = "5,0,0,-;Linux version 6.12.0\n"
	forged  = "12,10,1,-;NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n"
)

var (
	seenXid  = CountedEvent{Event{Kind: KindXid, Number: 79, Bus: "0000:3b:00.0", Detail: "GPU has fallen off the bus!", Since: 9 * time.Second}, 2}
	seenPCIe = CountedEvent{Event{Kind: KindAER, Bus: "0000:00:02.0", Severity: Corrected, Detail: "pcieport: Data Link Layer", Since: 7 * time.Second}, 1}
)

// answers is a log that returns one text or error per read.
type answers struct {
	texts []any // a string or an error
	end   error
}

func (a *answers) read(buffer []byte) (int, error) {
	if len(a.texts) == 0 {
		return 0, a.end
	}
	next := a.texts[0]
	a.texts = a.texts[1:]
	if err, is := next.(error); is {
		return -1, err
	}
	return copy(buffer, next.(string)), nil
}

func TestReader(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken")
	long := strings.Repeat("x", bufferSize-len(first)-len("6,1,1,-;NVRM: Xid"))
	for _, tc := range []struct {
		name  string
		reads []any
		end   error
		want  Log
		err   string
	}{
		{"a record a read", []any{first, pcie, fell, fellToo, forged}, syscall.EAGAIN, Log{[]CountedEvent{seenXid, seenPCIe}, 0, true}, ""},
		{"a file", []any{first + pcie + fell + fellToo + forged}, nil, Log{[]CountedEvent{seenXid, seenPCIe}, 0, true}, ""},
		{"a file that takes two reads", []any{first + "6,1,1,-;" + long + "\n4,2,1,-;", "NVRM: Xid (PCI:0000:3b:00): 79, x\n"}, nil,
			Log{[]CountedEvent{{Event{Kind: KindXid, Number: 79, Bus: "0000:3b:00.0", Detail: "x", Since: time.Microsecond}, 1}}, 0, true}, ""},
		{"a line without end is the last of its read", []any{first, "6,1,1,-;cut", fell, fellToo}, syscall.EAGAIN, Log{[]CountedEvent{seenXid}, 0, true}, ""},
		{"overwritten meanwhile", []any{first, syscall.EPIPE, fell, fellToo}, syscall.EAGAIN, Log{[]CountedEvent{seenXid}, 0, false}, ""},
		{"overwritten before", []any{pcie}, syscall.EAGAIN, Log{[]CountedEvent{seenPCIe}, 7 * time.Second, false}, ""},
		{"a signal", []any{first, syscall.EINTR, pcie}, syscall.EAGAIN, Log{[]CountedEvent{seenPCIe}, 0, true}, ""},
		{"nothing of interest", []any{first}, syscall.EAGAIN, Log{nil, 0, true}, ""},
		{"no log", nil, nil, Log{}, "it has no records"},
		{"another file", []any{"not\na log\n"}, nil, Log{}, "it has no records"},
		{"an error", []any{first}, errBroken, Log{}, "broken"},
	} {
		got, err := (&recordReader{read: (&answers{tc.reads, tc.end}).read}).readAll()
		if diff := cmp.Diff(tc.want, got); diff != "" || fmt.Sprint(err) != fmt.Sprint(errOr(tc.err)) {
			t.Errorf("%s: %v, (-want +got)\n%s", tc.name, err, diff)
		}
	}
}

func errOr(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// TestReadIsBounded verifies that reading ends if the log grows faster than it is read.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	reads := 0
	log, err := (&recordReader{read: func(buffer []byte) (int, error) {
		reads++
		return copy(buffer, first), nil
	}}).readAll()
	if err != nil || log.Complete || reads > maxReads {
		t.Errorf("%+v, %v after %d reads", log, err, reads)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := ReadLog(standing(t, first+pcie+fell+fellToo))
	if diff := cmp.Diff(Log{[]CountedEvent{seenXid, seenPCIe}, 0, true}, got); diff != "" || err != nil {
		t.Errorf("%v, (-want +got)\n%s", err, diff)
	}
	if _, err := ReadLog(empty(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a log: %v", err)
	}
}

// unprivileged calls f without the capabilities of root.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	root := standing(t, first)
	if err := os.Chmod(logPath(root), 0); err != nil {
		t.Fatal(err)
	}
	unprivileged(t, func() {
		if _, err := ReadLog(root); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("reading it: %v", err)
		}
		if err := FollowEvents(t.Context(), root, func(e Event) { t.Errorf("told %+v", e) }); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("following it: %v", err)
		}
	})
}

// pipe returns a root directory with a pipe in place of the kernel's log.
func pipe(t *testing.T) (root string, write *os.File) {
	t.Helper()
	root = empty(t)
	if err := syscall.Mkfifo(logPath(root), 0o600); err != nil {
		t.Fatal(err)
	}
	write, err := os.OpenFile(logPath(root), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { write.Close() })
	return root, write
}

const soon = 10 * time.Second // far longer than any step here takes

func TestFollow(t *testing.T) {
	t.Parallel()
	root, write := pipe(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told, ended := make(chan Event, 3), make(chan error, 1)
	go func() { ended <- FollowEvents(ctx, root, func(e Event) { told <- e }) }()
	for _, text := range []string{first, forged, fell, pcie} {
		if _, err := io.WriteString(write, text); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []Kind{KindXid, KindAER} {
		select {
		case e := <-told:
			if e.Kind != want {
				t.Errorf("told %+v, want the %s", e, want)
			}
		case <-time.After(soon):
			t.Fatalf("the %s was not told", want)
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil || len(told) > 0 {
			t.Errorf("it ended with %v and %d more", err, len(told))
		}
	case <-time.After(soon):
		t.Fatal("it goes on after its context")
	}
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	tell := func(Event) {}
	if err := FollowEvents(t.Context(), standing(t, first), tell); !errors.Is(err, io.EOF) {
		t.Errorf("a file in the log's place: %v", err)
	}
	if err := FollowEvents(t.Context(), empty(t), tell); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a log: %v", err)
	}
}

// TestMachine reads this machine's own log if that is permitted, follows it, and writes to it if
// that is permitted. Otherwise it expects an error with a text.
func TestMachine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log, err := ReadLog("")
	if err != nil {
		follows := FollowEvents(ctx, "", func(Event) {})
		if follows == nil || errors.Is(err, fs.ErrPermission) != errors.Is(follows, fs.ErrPermission) {
			t.Errorf("reading says %v, and following %v", err, follows)
		}
		t.Logf("the log of this machine can't be read: %v", err)
		return
	}
	if log.Oldest < 0 || log.Complete && log.Oldest > time.Hour {
		t.Errorf("the log begins at %s after boot: whole is %t", log.Oldest, log.Complete)
	}
	mine := fmt.Sprintf("bringupd test %d %d", os.Getpid(), time.Now().UnixNano())
	came, ended := make(chan logRecord, 1), make(chan error, 1)
	go func() {
		ended <- followRecords(ctx, "", func(r logRecord) {
			if r.text == mine {
				came <- r
			}
		})
	}()
	if write, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		defer write.Close()
		awaitMine(t, write, mine, came)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(soon):
		t.Fatal("it goes on after its context")
	}
}

// awaitMine writes a line until it arrives: the follower may have just begun.
func awaitMine(t *testing.T, write io.Writer, mine string, came <-chan logRecord) {
	t.Helper()
	for deadline := time.Now().Add(soon); time.Now().Before(deadline); {
		if _, err := io.WriteString(write, "<0>"+mine+"\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-came:
			if r.fromKernel || r.sinceBoot <= 0 {
				t.Errorf("a line that we have written is %+v", r)
			}
			return
		case <-time.After(time.Second / 2):
		}
	}
	t.Error("a line that we have written was not told")
}

func BenchmarkReader(b *testing.B) {
	r := &recordReader{read: func(buffer []byte) (int, error) { return copy(buffer, fell), nil }}
	for b.Loop() {
		records, err := r.nextRecords()
		if _, is := records[0].toEvent(); err != nil || !is {
			b.Fatal(err)
		}
	}
}
