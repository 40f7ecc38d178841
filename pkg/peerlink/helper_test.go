package peerlink

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// helperVariable makes the test binary a helper: a head, or a worker of the head at the
// address.
const helperVariable = "LIFELINE_TEST_HELPER"

// help runs a helper until it is killed or its standard input ends. It prints the port on which it
// listens.
func help(what string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		cancel()
	}()
	if what != "head" {
		NewWorker(slowConfig(), 1, TCP{}, []string{what}, workerNews{newNews()}, well).Run(ctx)
		return 0
	}
	listener, err := TCP{}.Listen()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	NewHead(slowConfig(), listener, headNews{newNews()}).Run(ctx)
	return 0
}

// helper is a separate process that is one side of a link.
type helper struct {
	cmd     *exec.Cmd
	address string // of a head
}

func startHelper(t testing.TB, what string) *helper {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"="+what)
	cmd.Stderr = os.Stderr
	// A pipe without a writer, which closes when this process ends.
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &helper{cmd: cmd}
	t.Cleanup(h.kill)
	if what == "head" {
		line, err := bufio.NewReader(out).ReadString('\n')
		port, convErr := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || convErr != nil {
			t.Fatalf("the helper said %q", line)
		}
		h.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return h
}

// kill kills the process if it still runs, and waits for its end.
func (h *helper) kill() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}
