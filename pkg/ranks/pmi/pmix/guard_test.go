//go:build linux && cgo

package pmix_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
	"github.com/bringupd/bringupd/test/users"
)

// strangerCommand makes the test binary connect to an address and print what it receives.
const strangerCommand = "greet"

func greet(address string) int {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, _ = io.WriteString(conn, "hello")
	said, err := io.ReadAll(conn)
	fmt.Printf("%s %v", said, err)
	return 0
}

// served is a child that runs as the job's user, and the connection to it.
type served struct {
	*exec.Cmd
	t    *testing.T
	in   io.Writer
	out  io.Reader
	says *bufio.Reader // standard error
	id   uint32
}

// serveAs starts a program's child as the job's user, with a library that all users can read.
func serveAs(t *testing.T, program string, library pmix.Library, env ...string) *served {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	s := &served{t: t, Cmd: users.Job.Command(ctx, users.Job.Dir(t), program, pmix.ChildCommand,
		"--pmix="+library.Path)}
	s.Env = append(s.Env, env...)
	var err error
	if s.in, err = s.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if s.out, err = s.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	said, err := s.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.says = bufio.NewReader(said)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.in.(io.Closer).Close()
		_ = s.Wait()
	})
	return s
}

// order sends an order and returns the status and the data of its answer.
func (s *served) order(op byte, fields []byte) (status int32, data []byte) {
	s.t.Helper()
	s.id++
	f := binary.BigEndian.AppendUint32([]byte{op}, s.id)
	f = append(f, fields...)
	if _, err := s.in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)); err != nil {
		s.t.Fatal(err)
	}
	for {
		var length uint32
		if err := binary.Read(s.out, binary.BigEndian, &length); err != nil {
			rest, _ := io.ReadAll(s.says)
			s.t.Fatalf("the child says no more: %v: %s", err, rest)
		}
		answer := make([]byte, length)
		if _, err := io.ReadFull(s.out, answer); err != nil {
			s.t.Fatal(err)
		}
		const done = 15
		if answer[0] == done && binary.BigEndian.Uint32(answer[1:]) == s.id {
			return int32(binary.BigEndian.Uint32(answer[5:])), answer[13:]
		}
	}
}

// text encodes a text for a frame.
func text(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

func number(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// public returns a copy of a library that all users can read.
func public(t *testing.T, library pmix.Library) pmix.Library {
	t.Helper()
	return pmix.Library{Path: users.Public(t, library.Path), Prefix: library.Prefix}
}

// testProgram returns a copy of the test binary that all users can execute.
func testProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return users.Public(t, self)
}

// TestOtherUsersCannotConnect verifies that another user's connection is closed before it can send
// data, and neither ends nor delays the listener: the job's user is served at any time.
func TestOtherUsersCannotConnect(t *testing.T) {
	users.Need(t)
	program := testProgram(t)
	s := serveAs(t, program, public(t, fake(t, listens)))
	if status, _ := s.order(1, number(0)); status != 0 {
		t.Fatalf("the start ends with %d", status)
	}
	line, err := s.says.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := "127.0.0.1:" + strings.TrimPrefix(strings.TrimSpace(line), "port ")
	hears := func(u users.User) string {
		said, err := u.Command(t.Context(), u.Dir(t), program, strangerCommand, address).CombinedOutput()
		if err != nil {
			t.Errorf("user %d: %v", u.ID, err)
		}
		return string(said)
	}
	if got := hears(users.Job); got != "welcome <nil>" {
		t.Errorf("the job's user hears %q", got)
	}
	if got := hears(users.Stranger); strings.HasPrefix(got, "welcome") {
		t.Errorf("another user hears %q", got)
	}
	// This process is root, which is another user, too. A flood of connections that their sender never
	// reads or closes does not exhaust the server: it keeps no descriptor of them.
	for range 3000 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if got := hears(users.Job); got != "welcome <nil>" {
		t.Errorf("after 3000 connections of another user the job's user hears %q", got)
	}
	files, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(s.Process.Pid), "fd"))
	if err != nil || len(files) > 40 {
		t.Errorf("the child has %d open files, %v", len(files), err)
	}
}

// TestBrokenOrders verifies that a child treats a truncated or deeply nested order as invalid and
// continues.
func TestBrokenOrders(t *testing.T) {
	// Arrays of one info each.
	nested := bytes.Repeat(bytes.Join([][]byte{number(1), text("k"), number(39)}, nil), 1_000_000)
	node := bytes.Join([][]byte{text("w"), number(1), number(1), text("pmix.nmap"), number(0xfff0)}, nil)
	ranks := bytes.Join([][]byte{text("w"), number(1), number(1), text("pmix.pmap"), number(0xfff1)}, nil)
	s := &served{t: t, Cmd: exec.Command("/proc/self/exe", pmix.ChildCommand, "--pmix="+fake(t, prints).Path)}
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.in, s.out, s.says = in, out, bufio.NewReader(new(bytes.Buffer))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = s.Wait()
	}()
	const addJob = 2
	for name, fields := range map[string][]byte{
		"no node map":           node,
		"no rank map":           ranks,
		"an empty rank map":     bytes.Join([][]byte{ranks, text("")}, nil),
		"a rank map, cut off":   bytes.Join([][]byte{ranks, number(7), []byte("0,1")}, nil),
		"a rank map of no rank": bytes.Join([][]byte{ranks, text("0;;1")}, nil),
		"a rank map of words":   bytes.Join([][]byte{ranks, text("all")}, nil),
		"an empty node map":     bytes.Join([][]byte{node, text("n0,")}, nil),
		"nested arrays":         bytes.Join([][]byte{text("w"), number(1), nested}, nil),
		"many infos":            bytes.Join([][]byte{text("w"), number(1), number(1 << 30)}, nil),
	} {
		if status, _ := s.order(addJob, fields); status != -1 {
			t.Errorf("%s: the status is %d", name, status)
		}
	}
	if status, _ := s.order(addJob, bytes.Join([][]byte{ranks, text("0,1;2")}, nil)); status != 0 {
		t.Errorf("a whole order ends with %d", status)
	}
}
