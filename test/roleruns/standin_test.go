package roleruns

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	ossignal "os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// dirVariable names the directory of a run. It also marks all processes of the run.
	dirVariable = "ROLERUNS_DIR"
	// programVariable is the program of all roles.
	programVariable = "ROLERUNS_PROGRAM"
	// printVariable makes a process print something all the time.
	printVariable = "ROLERUNS_PRINT"
)

// The directories and files of a run, in the directory of dirVariable.
const (
	locksDir      = "locks"  // held by the processes that run
	startsDir     = "starts" // what each process knows of itself
	upDir         = "up"     // processes that are ready, for exec probes
	ordersDir     = "orders" // the code with which a process ends at SIGUSR1
	badStartsDir  = "bad"    // the code with which a process ends before it is ready
	stubbornDir   = "stubborn"
	endsName      = "ends"       // lines: term or end, and the process
	violationName = "violations" // a line for each second copy
)

// delayName returns the name of the file with the time that the servers of a role take for an answer.
func delayName(role string) string { return "delay-" + role }

// startFacts is what a process publishes when it has started.
type startFacts struct {
	PID, Parent, Node int
	At                time.Time
	Planned           map[string]string // planned endpoints of each role
	Files             map[string]string // file of the ready endpoints of each role
}

// standIn is a process of an instance.
type standIn struct {
	dir, role, process, name string // the name has role, index, rank and generation
	notified                 chan os.Signal
	server                   *http.Server // nil while its port is closed
}

// newStandIn returns the process that this one is.
func newStandIn(dir string) *standIn {
	role := os.Getenv("BRINGUPD_ROLE")
	process := fmt.Sprintf("%s.%s.%s", role, os.Getenv("BRINGUPD_ROLE_INDEX"), os.Getenv("BRINGUPD_INSTANCE_RANK"))
	return &standIn{dir: dir, role: role, process: process, name: process + ".g" +
		os.Getenv("BRINGUPD_GENERATION"), notified: make(chan os.Signal, 8)}
}

// run is the program. It returns its exit code.
func (s *standIn) run() int {
	started := time.Now()
	ossignal.Notify(s.notified, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1,
		syscall.SIGUSR2)
	if err := s.lock(); err != nil {
		s.append(violationName, "%s: %v", s.name, err)
		return 99
	}
	// A oneshot role ends by itself.
	if code, given := s.order(badStartsDir); given {
		s.publishStart(started)
		return code
	}
	if os.Getenv("BRINGUPD_ROLE") == setupName {
		s.publishStart(started)
		return 0
	}
	if !s.togglePort() {
		return 98
	}
	if os.Getenv(printVariable) != "" {
		go func() {
			for range time.Tick(hangTimeout / 30) {
				fmt.Println("works")
			}
		}()
	}
	s.write(upDir, nil)
	s.publishStart(started)
	return s.awaitEnd()
}

// togglePort opens the port of this process or closes it, and reports whether that has worked.
func (s *standIn) togglePort() bool {
	if s.server != nil {
		_ = s.server.Close()
		s.server = nil
		return true
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", os.Getenv("BRINGUPD_PORT")))
	if err != nil {
		s.append(violationName, "%s: %v", s.name, err)
		return false
	}
	ok := func(w http.ResponseWriter, _ *http.Request) {
		text, _ := os.ReadFile(filepath.Join(s.dir, delayName(s.role)))
		delay, _ := time.ParseDuration(string(text))
		time.Sleep(delay)
		w.WriteHeader(http.StatusOK)
	}
	server := &http.Server{Handler: http.HandlerFunc(ok)}
	s.server = server
	go func() { _ = server.Serve(listener) }()
	return true
}

// awaitEnd waits for an order or a signal to end.
func (s *standIn) awaitEnd() int {
	_, err := os.Stat(filepath.Join(s.dir, stubbornDir, s.role))
	for sig := range s.notified {
		if sig == syscall.SIGUSR2 {
			s.togglePort()
			continue
		}
		if sig == syscall.SIGUSR1 {
			code, _ := s.order(ordersDir)
			return code
		}
		s.append(endsName, "term %s", s.name)
		if err == nil {
			continue // it is stubborn
		}
		time.Sleep(time.Duration(os.Getpid()%7) * 10 * time.Millisecond)
		s.append(endsName, "end %s", s.name)
		return 0
	}
	return 0
}

// lock takes the lock of this process, and fails if another generation of it, or of another process
// of its instance, still runs.
func (s *standIn) lock() error {
	own, err := os.OpenFile(filepath.Join(s.dir, locksDir, s.name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(own.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("a second copy of the same generation runs: %w", err)
	}
	keptLock = own
	instance := s.process[:strings.LastIndex(s.process, ".")]
	generation := s.name[strings.LastIndex(s.name, "."):]
	others, err := filepath.Glob(filepath.Join(s.dir, locksDir, instance+".*"))
	for _, other := range others {
		if strings.HasSuffix(other, generation) {
			continue
		}
		if held, failure := isHeld(other); held || failure != nil {
			return fmt.Errorf("%s still runs: %v", filepath.Base(other), failure)
		}
	}
	return err
}

// keptLock keeps the lock of this process open.
var keptLock *os.File

// isHeld reports whether a process holds a lock.
func isHeld(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// order returns the code that is ordered for this process in a directory.
func (s *standIn) order(dir string) (code int, given bool) {
	text, err := os.ReadFile(filepath.Join(s.dir, dir, s.name))
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscan(string(text), &code)
	return code, err == nil
}

// publishStart publishes what this process knows.
func (s *standIn) publishStart(at time.Time) {
	facts := startFacts{PID: os.Getpid(), Parent: os.Getppid(), At: at,
		Planned: make(map[string]string), Files: make(map[string]string)}
	facts.Node, _ = strconv.Atoi(os.Getenv("BRINGUPD_LAUNCH_RANK"))
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if file, is := strings.CutPrefix(name, "BRINGUPD_ENDPOINTS_FILE_"); is {
			facts.Files[file] = value
		}
		if rest, is := strings.CutPrefix(name, "BRINGUPD_ROLE_"); is && strings.HasSuffix(rest, "_ENDPOINTS") {
			facts.Planned[strings.TrimSuffix(rest, "_ENDPOINTS")] = value
		}
	}
	text, _ := json.Marshal(facts)
	s.write(startsDir, text)
}

// write writes a file with the name of this process, completely or not at all.
func (s *standIn) write(dir string, text []byte) {
	path := filepath.Join(s.dir, dir, s.name)
	err := os.WriteFile(path+"~", text, 0o600)
	if err == nil {
		err = os.Rename(path+"~", path)
	}
	if err != nil {
		s.append(violationName, "%s: %v", s.name, err)
	}
}

// append appends a line to a file of the run.
func (s *standIn) append(name, format string, args ...any) {
	file, err := os.OpenFile(filepath.Join(s.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, format+"\n", args...)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
