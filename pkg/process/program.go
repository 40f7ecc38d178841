package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/prose"
)

// What Start's error says of a program that can't be run; a shell has exit codes for them.
var (
	ErrNotFound      = errors.New("not found")      // 127: there is no such file
	ErrNotExecutable = errors.New("not executable") // 126: there is one, and the kernel won't run it
)

// defaultPath is searched where the child's environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// program is a file to execute, and what was seen of it.
type program struct {
	path string // as given to execve, after the change of directory
	file string // the same, as seen from here
	head []byte // its first bytes; none where it can't be read
}

// findProgram looks for argv0 as the child would, from its own directory and in its own PATH. It opens what it finds,
// and the interpreter that a script names: where a file system hangs, the caller hangs here, in a call that the rest of
// the daemon does not notice, and not in the exec, for which all of a Go program waits.
func findProgram(argv0, dir string, env []string) (program, error) {
	if err := checkDir(dir); err != nil {
		return program{}, err
	}
	if strings.Contains(argv0, "/") {
		return openProgram(argv0, dir)
	}
	path, found := LookupEnv(env, "PATH")
	if !found {
		path = defaultPath
	}
	var denied error
	for entry := range strings.SplitSeq(path, ":") {
		candidate := filepath.Join(entry, argv0)
		if candidate == argv0 {
			candidate = "./" + argv0 // an empty entry is the directory itself
		}
		p, err := openProgram(candidate, dir)
		if err == nil {
			return p, nil
		}
		// As execvp does: one that can't be run does not hide one that can, further on.
		if !errors.Is(err, ErrNotFound) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return program{}, denied
	}
	return program{}, fmt.Errorf("%q: %w in PATH (%s)", argv0, ErrNotFound, path)
}

// Find tells whether a child with this program and environment could be started: its errors are those of Start.
func Find(argv0 string, env []string) error {
	_, err := Which(argv0, env)
	return err
}

// Which returns the file that a child with this program and environment would be started from.
func Which(argv0 string, env []string) (file string, err error) {
	p, err := findProgram(argv0, "", env)
	return p.file, err
}

func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("cannot use its directory: %v", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("cannot use its directory: %s is a file", dir)
	}
	return nil
}

// openProgram looks at the file that execve(path) would run in dir.
func openProgram(path, dir string) (program, error) {
	p := program{path: path, file: path}
	if !filepath.IsAbs(path) {
		p.file = filepath.Join(dir, path)
	}
	info, err := os.Stat(p.file)
	if err != nil {
		return p, p.unseen(err)
	}
	if info.IsDir() {
		return p, p.refused("it is a directory")
	}
	if unix.Faccessat(unix.AT_FDCWD, p.file, unix.X_OK, unix.AT_EACCESS) != nil {
		return p, p.refused(fmt.Sprintf("its mode is %v, and this user (%d) may not execute it: chmod +x %s",
			info.Mode(), os.Geteuid(), prose.ShellWord(p.file)))
	}
	p.head = headOf(p.file)
	if name := p.interpreter(); name != "" {
		headOf(name)
	}
	return p, nil
}

// unseen explains why the file can't be looked at.
func (p program) unseen(err error) error {
	if target, linkErr := os.Readlink(p.file); linkErr == nil && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w: it is a symbolic link to %s, which is not there", p.file, ErrNotFound, target)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%s: %w", p.file, ErrNotFound)
	}
	return p.refused(err.Error())
}

func (p program) refused(why string) error {
	return fmt.Errorf("%s: %w: %s", p.file, ErrNotExecutable, why)
}

// headOf returns what a file begins with, nothing where it can't be read (which execve does not need to).
func headOf(path string) []byte {
	// Not blocking: what is no regular file must not hold us up.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(file, head)
	return head[:n]
}

// interpreter returns what the "#!" line names, nothing where there is none.
func (p program) interpreter() string {
	rest, isScript := bytes.CutPrefix(p.head, []byte("#!"))
	if !isScript {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	name, _, _ := strings.Cut(strings.Trim(string(line), " \t"), " ")
	return name
}

// start starts a command that is to run the program, and says what the kernel has against it.
func (p program) start(cmd *exec.Cmd) error {
	cmd.Path = p.path
	err := cmd.Start()
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return p.explain(no, cmd.Args, cmd.Env)
	}
	return err
}

// explain turns what execve said into an error for people.
func (p program) explain(err error, argv, env []string) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return p.refused(p.withoutInterpreter())
	case errors.Is(err, syscall.ENOEXEC):
		return p.refused(p.withoutFormat())
	case errors.Is(err, syscall.EACCES):
		return p.refused("permission denied: its file system may be mounted noexec, or its interpreter " +
			"or a directory on the way to it may not be executable for this user")
	case errors.Is(err, syscall.E2BIG):
		return p.refused(fmt.Sprintf("arguments (%d bytes) and environment (%d bytes) are more than the kernel takes",
			size(argv), size(env)))
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("no more processes are allowed (ulimit -u, or pids.max of the cgroup)")
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("the kernel says %v: an argument or a variable may hold a zero byte", err)
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return err // of the fork, not of the program
	}
	return p.refused(err.Error())
}

// withoutInterpreter says what is missing where the file is there and execve finds none.
func (p program) withoutInterpreter() string {
	name := p.interpreter()
	switch {
	case strings.HasSuffix(name, "\r"):
		return fmt.Sprintf("its first line ends in a carriage return, so that the interpreter is %q: "+
			`save it with Unix line ends, as by: sed -i 's/\r$//' %s`, name, prose.ShellWord(p.file))
	case name != "":
		return fmt.Sprintf("its interpreter %s (first line) is not there: name one that this node has", name)
	case bytes.HasPrefix(p.head, []byte("\x7fELF")):
		return "the loader that the binary names is not there: it was built for another system"
	}
	return "the kernel does not find it, or not what it needs"
}

// elfMachines are names for what e_machine says, for the machines that jobs run on.
var elfMachines = map[uint16]string{0x03: "386", 0x15: "ppc64le", 0x16: "s390x", 0x3e: "amd64", 0xb7: "arm64", 0xf3: "riscv64"}

// withoutFormat says what the file is, where execve knows no way to run it.
func (p program) withoutFormat() string {
	if bytes.HasPrefix(p.head, []byte("\x7fELF")) && len(p.head) >= 20 {
		machine := binary.LittleEndian.Uint16(p.head[18:])
		name, known := elfMachines[machine]
		if !known {
			name = fmt.Sprintf("machine %#x", machine)
		}
		return fmt.Sprintf("it is a binary for %s, and this node is %s", name, runtime.GOARCH)
	}
	if len(p.head) == 0 {
		return "it is empty, or can't be read"
	}
	return `it is no binary, and has no "#!" line that says what runs it: give it one ("#!/bin/sh"), ` +
		`or name its interpreter before it`
}

func size(entries []string) int {
	total := 0
	for _, entry := range entries {
		total += len(entry) + 1
	}
	return total
}

// Exec has this process become the program: it returns only where that can't be. Its
// errors are those of Start.
func Exec(argv, env []string) error {
	p, err := findProgram(argv[0], "", env)
	if err != nil {
		return err
	}
	return p.explain(syscall.Exec(p.path, argv, env), argv, env)
}
