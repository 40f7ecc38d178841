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

// ringVariable has the test binary be a rank, and names the directory where the
// ranks of a ring find each other.
const ringVariable = "BRINGUPD_TEST_RING"

// The orders that a rank takes, from the file of that name, by SIGUSR1.
const (
	orderName  = "order"
	orderExit  = "exit" // with a code
	orderCrash = "crash"
	orderGrow  = "grow"  // until there is no memory left in this cgroup
	orderAbort = "abort" // with a code
)

func fileOf(dir, what string, rank int) string {
	return filepath.Join(dir, what+"."+strconv.Itoa(rank))
}

// runRank is one rank of a ring: it holds a connection to the next and to the one
// before, tells when it has begun and when it has both, and goes on until it is told
// to end, or has lost one.
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

// tell writes a rank's pid where the test looks for it.
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
			_, err := conn.Read(make([]byte, 1)) // nobody writes
			ends <- err
		}()
	}
	return <-ends
}

// bemoan is what a rank does of which a neighbour is gone: programs raise, are ended
// by their libraries, take their time, or do not notice. It returns the exit code; 0
// where the rank goes on.
func bemoan(rank int, lost error) int {
	switch rank % 4 {
	case 0:
		fmt.Fprintf(os.Stderr, "Traceback (most recent call last):\n  File \"train.py\", line 210, in <module>\nConnectionResetError: [Errno 104] Connection reset by peer (%v)\n", lost)
		return 1
	case 1:
		fmt.Fprintf(os.Stderr, "terminate called after throwing an instance of 'gloo::IoException'\n  what():  [pair.cc:598] Connection closed by peer [127.0.0.1]:1\n")
		return 128 + int(syscall.SIGABRT)
	case 2:
		time.Sleep(20 * time.Millisecond)
		fmt.Fprintf(os.Stderr, "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n")
		return 3
	default:
		return 0
	}
}

// obey does what the test has the rank do by itself.
func obey(dir string) {
	order, err := os.ReadFile(filepath.Join(dir, orderName))
	if err != nil {
		panic(err)
	}
	what, argument, _ := strings.Cut(string(order), " ")
	switch what {
	case orderExit:
		fmt.Fprintf(os.Stderr, "Traceback (most recent call last):\n  File \"train.py\", line 211, in <module>\nValueError: the loss is not a number\n")
		code, _ := strconv.Atoi(argument)
		os.Exit(code)
	case orderCrash:
		// The Go runtime would make an exit of the signal. The connections end before
		// the process does, as those of a program do that writes a core file.
		panic(syscall.Exec("/bin/sh", []string{"sh", "-c", "kill -SEGV $$"}, os.Environ()))
	case orderGrow:
		grow(argument)
	case orderAbort:
		out, err := exec.Command(os.Getenv("BRINGUPD_TEST_PROGRAM"), "kv", "abort", argument, "the loss is not a number").CombinedOutput()
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
	default:
		panic(errors.New("no such order: " + what))
	}
}

// mostGrown is what a rank that grows has at most: the kernel has long ended it.
const mostGrown = 8 * memoryLimit

// grow moves this process into a cgroup that has a limit, and exceeds it.
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

// write writes a number into a file of the kernel's. It makes none: where the kernel
// has no such file, a plain one would limit nothing.
func write(path string, number int) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(file, number)
	return errors.Join(err, file.Close())
}
