package worlds

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ringVariable makes the test binary a rank. Its value is the rendezvous directory of the ranks of
// a ring.
const ringVariable = "BRINGUPD_TEST_RING"

// The orders that a rank executes on SIGUSR1. It reads them from the file orderName.
const (
	orderName  = "order"
	orderExit  = "exit" // has an exit code as its argument
	orderCrash = "crash"
	orderGrow  = "grow"  // allocates memory until the limit of the given cgroup is exceeded
	orderAbort = "abort" // has an exit code as its argument
)

func fileOf(dir, what string, rank int) string {
	return filepath.Join(dir, what+"."+strconv.Itoa(rank))
}

// runRank is the main function of a rank in a ring. The rank holds a connection to the next and to
// the previous rank, reports when it has started and when both connections exist, and runs until it
// receives TERM or has lost a connection.
func runRank(dir string) int {
	rank, size := number("BRINGUPD_RANK"), number("BRINGUPD_RANKS")
	orders, terms := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(orders, syscall.SIGUSR1)
	signal.Notify(terms, syscall.SIGTERM)
	lost := make(chan error, 3)
	go func() { lost <- hold(dir, rank, size) }()
	if err := tell(dir, "begun", rank); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	for {
		select {
		case <-terms:
			return 0
		case <-orders:
			obey(dir)
		case err := <-lost:
			if code := bemoan(rank, err); code > 0 {
				return code
			}
			lost = nil
		}
	}
}

func number(variable string) int {
	n, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		panic(variable + " is no number: " + os.Getenv(variable))
	}
	return n
}

// tell writes a rank's pid to a file for the test.
func tell(dir, what string, rank int) error {
	temp := fileOf(dir, "."+what, rank)
	if err := os.WriteFile(temp, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, fileOf(dir, what, rank))
}

// hold makes the rank's two connections, and returns when one of them has ended.
func hold(dir string, rank, size int) error {
	listener, err := net.Listen("unix", fileOf(dir, "ring", rank))
	if err != nil {
		return err
	}
	var next net.Conn
	for next == nil {
		if next, err = net.Dial("unix", fileOf(dir, "ring", (rank+1)%size)); err != nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
	before, err := listener.Accept()
	if err != nil {
		return err
	}
	if err := tell(dir, "up", rank); err != nil {
		return err
	}
	ends := make(chan error, 2)
	for _, conn := range []net.Conn{next, before} {
		go func() {
			_, err := conn.Read(make([]byte, 1)) // the peer never writes
			ends <- err
		}()
	}
	return <-ends
}

// bemoan simulates the typical reactions of programs to the loss of a neighbour: they raise an
// exception, are ended by a library, take some time, or do not notice it. It returns the exit code,
// or 0 if the rank continues.
func bemoan(rank int, lost error) int {
	switch rank % 4 {
	case 0:
		fmt.Fprintf(os.Stderr,
			"Traceback (most recent call last):\n  File \"train.py\", line 210, in "+
				"<module>\nConnectionResetError: [Errno 104] Connection reset by peer (%v)\n", lost)
		return 1
	case 1:
		fmt.Fprintf(os.Stderr,
			"terminate called after throwing an instance of 'gloo::IoException'\n  what():  "+
				"[pair.cc:598] Connection closed by peer [127.0.0.1]:1\n")
		return 128 + int(syscall.SIGABRT)
	case 2:
		time.Sleep(20 * time.Millisecond)
		fmt.Fprintf(os.Stderr,
			"ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n")
		return 3
	default:
		return 0
	}
}

// obey executes the order of the test.
func obey(dir string) {
	order, err := os.ReadFile(filepath.Join(dir, orderName))
	if err != nil {
		panic(err)
	}
	what, argument, _ := strings.Cut(string(order), " ")
	switch what {
	case orderExit:
		fmt.Fprintf(os.Stderr,
			"Traceback (most recent call last):\n  File \"train.py\", line 211, in "+
				"<module>\nValueError: the loss is not a number\n")
		code, _ := strconv.Atoi(argument)
		os.Exit(code)
	case orderCrash:
		// The Go runtime would turn the signal into an exit, so execute a shell. The connections end
		// before the process does, as with a program that writes a core file.
		panic(syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -SEGV $$"}, os.Environ()))
	case orderGrow:
		grow(argument)
	case orderAbort:
		out, err := exec.Command(os.Getenv("BRINGUPD_TEST_PROGRAM"), "kv", "abort", argument,
			"the loss is not a number").CombinedOutput()
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
	default:
		panic(errors.New("no such order: " + what))
	}
}

// mostGrown is the maximum memory of a rank that allocates memory. The kernel ends it long before.
const mostGrown = 8 * memoryLimit

// grow moves this process into a cgroup with a limit, and exceeds the limit.
func grow(cgroup string) {
	if err := write(filepath.Join(cgroup, "cgroup.procs"), os.Getpid()); err != nil {
		panic(err)
	}
	all := make([]byte, mostGrown)
	for at := 0; at < len(all); at += 4096 {
		all[at] = 1
	}
	panic(fmt.Sprintf("%d bytes are allowed in %s", mostGrown, cgroup))
}

// write writes a number into a file of the kernel. It does not create the file: if the kernel does
// not have it, a regular file would limit nothing.
func write(path string, number int) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(file, number)
	return errors.Join(err, file.Close())
}
