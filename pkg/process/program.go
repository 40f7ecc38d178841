package process

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
)

// Errors for a program that cannot be run. A shell has an exit code for each.
var (
	ErrNotFound = errors.New("not found") // 127: there is no such file
	// 126: the file exists, but the kernel refuses to run it, for example a script without "#!"
	ErrNotExecutable = errors.New("not executable")
)

// maxPathLength is the maximum number of characters of PATH in an error, including the ellipsis.
const maxPathLength = 61

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// Program is an executable file and what has been found out about it.
type Program struct {
	execPath string // path for execve, after the change of directory
	file     string // the same file, relative to this process
	head     []byte // first bytes; empty if unreadable
}

// FindProgram searches for argv0 as the child would, from the child's directory and in its PATH. It opens
// the file, and the interpreter of a script. If their file system hangs, only the caller hangs here;
// if it hung in execve, the whole Go program would wait for it.
func FindProgram(argv0, dir string, env []string) (Program, error) {
	if err := checkDir(dir); err != nil {
		return Program{}, err
	}
	if strings.Contains(argv0, "/") {
		return inspectProgram(argv0, dir)
	}
	// Try the directories of PATH in order.
	path, found := envlist.Lookup(env, "PATH")
	if !found {
		path = defaultPath
	}
	var denied error
	for entry := range strings.SplitSeq(path, ":") {
		candidate := filepath.Join(entry, argv0)
		if candidate == argv0 {
			candidate = "./" + argv0 // an empty entry means the current directory
		}
		p, err := inspectProgram(candidate, dir)
		if err == nil {
			return p, nil
		}
		// A file that cannot be run does not hide one in a later directory, as in execvp.
		if !errors.Is(err, ErrNotFound) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return Program{}, denied
	}
	return Program{}, fmt.Errorf("%q: %w in PATH (%s)", argv0, ErrNotFound,
		textutil.TruncateText(path, maxPathLength))
}

// ResolveProgram returns the file that would be executed for a child with this program and
// environment. Its errors are those of [FindProgram].
func ResolveProgram(argv0 string, env []string) (file string, err error) {
	p, err := FindProgram(argv0, "", env)
	return p.file, err
}

// checkDir returns an error if dir, unless empty, is not a directory.
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

// inspectProgram inspects the file that execve(path) would run in dir.
func inspectProgram(path, dir string) (Program, error) {
	p := Program{execPath: path, file: path}
	if !filepath.IsAbs(path) {
		p.file = filepath.Join(dir, path)
	}
	info, err := os.Stat(p.file)
	if err != nil {
		return p, p.statError(err)
	}
	if info.IsDir() {
		return p, p.notExecutableError("it is a directory")
	}
	if !mayExecute(p.file) {
		return p, p.notExecutableError(cmp.Or(describeDenial(p.file), "permission denied"))
	}
	p.head = ReadHead(p.file)
	if name := p.interpreterPath(); name != "" {
		ReadHead(name)
	}
	return p, nil
}

// statError returns the error for a file that cannot be inspected.
func (p Program) statError(err error) error {
	if target, linkErr := os.Readlink(p.file); linkErr == nil && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w: it is a symbolic link to %s, which does not exist", p.file, ErrNotFound, target)
	}
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%s: %w", p.file, ErrNotFound)
	}
	if why := describeDenial(p.file); why != "" {
		return p.notExecutableError(why)
	}
	return p.notExecutableError(err.Error())
}

// notExecutableError returns an error that wraps ErrNotExecutable.
func (p Program) notExecutableError(why string) error {
	return fmt.Errorf("%s: %w: %s", p.file, ErrNotExecutable, why)
}

// ReadHead returns the first bytes of a file; nil if it is not readable. execve does not need read
// permission.
func ReadHead(path string) []byte {
	// Open without blocking: a FIFO, for example, must not block the caller.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(file, head)
	return head[:n]
}

func (p Program) interpreterPath() string {
	rest, isScript := bytes.CutPrefix(p.head, []byte("#!"))
	if !isScript {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	name, _, _ := strings.Cut(strings.Trim(string(line), " \t"), " ")
	return name
}

// Start starts cmd with the file as its executable. If execve fails, the error explains why.
func (p Program) Start(cmd *exec.Cmd) error {
	cmd.Path = p.execPath
	err := cmd.Start()
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return p.explainError(no, cmd.Args, cmd.Env)
	}
	return err
}

// explainError converts an error of execve or fork into an error message for users.
func (p Program) explainError(err error, argv, env []string) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return p.notExecutableError(p.describeMissingFile())
	case errors.Is(err, syscall.ENOEXEC):
		return p.notExecutableError(p.describeUnknownFormat())
	case errors.Is(err, syscall.EACCES):
		if name := p.interpreterPath(); name != "" {
			if why := describeDenial(name); why != "" {
				return p.notExecutableError(fmt.Sprintf("its interpreter is %s (first line): %s", name, why))
			}
		}
		// Of a file system without checks of its own, access(2) accepts every file.
		if info, err := os.Stat(p.file); err == nil && info.Mode()&0o111 == 0 {
			return p.notExecutableError(describeMode(p.file, info))
		}
		return p.notExecutableError("permission denied: its file system may be mounted noexec, or its " +
			"interpreter or a directory on its path may not be executable for this user")
	case errors.Is(err, syscall.E2BIG):
		return p.notExecutableError(fmt.Sprintf("arguments (%d bytes) and environment (%d bytes) exceed "+
			"the kernel's limit", totalSize(argv), totalSize(env)))
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("no more processes are allowed (ulimit -u, or pids.max of the cgroup)")
	case errors.Is(err, syscall.EINVAL):
		return fmt.Errorf("the kernel reports %v: an argument or a variable may contain a zero byte", err)
	case errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return err // caused by the fork, not by the program
	}
	return p.notExecutableError(err.Error())
}

// describeMissingFile explains why execve reports ENOENT for an existing file.
func (p Program) describeMissingFile() string {
	name := p.interpreterPath()
	switch {
	case strings.HasSuffix(name, "\r"):
		return fmt.Sprintf("its first line ends in a carriage return, so that the interpreter is %q: "+
			`save it with Unix line endings, for example by: sed -i 's/\r$//' %s`,
			name, textutil.QuoteShellWord(p.file))
	case name != "":
		return fmt.Sprintf("its interpreter %s (first line) does not exist: use one that this node has", name)
	case bytes.HasPrefix(p.head, []byte("\x7fELF")):
		return "the loader that the binary names does not exist: it was built for another system"
	}
	return "the kernel does not find it, or a file that it needs"
}

// elfMachines maps e_machine of an ELF header to the names of the architectures that jobs run on.
var elfMachines = map[uint16]string{
	0x03: "386", 0x15: "ppc64le", 0x16: "s390x", 0x3e: "amd64", 0xb7: "arm64", 0xf3: "riscv64",
}

// describeUnknownFormat describes a file that execve does not know how to run.
func (p Program) describeUnknownFormat() string {
	if bytes.HasPrefix(p.head, []byte("\x7fELF")) && len(p.head) >= 20 {
		machine := binary.LittleEndian.Uint16(p.head[18:])
		name, known := elfMachines[machine]
		if !known {
			name = fmt.Sprintf("machine %#x", machine)
		}
		return fmt.Sprintf("it is a binary for %s, and this node is %s", name, runtime.GOARCH)
	}
	if len(p.head) == 0 {
		return "it is empty, or cannot be read"
	}
	return `it is not a binary, and has no "#!" line: add one ("#!/bin/sh"), ` +
		`or give its interpreter before it`
}

// totalSize returns the number of bytes that strings occupy in a new process, including terminating
// zeros.
func totalSize(entries []string) int {
	total := 0
	for _, entry := range entries {
		total += len(entry) + 1
	}
	return total
}

// ReplaceSelf replaces this process by the program. It returns only if that fails. Its errors are those
// of [FindProgram] and [Program.Start].
func ReplaceSelf(argv, env []string) error {
	p, err := FindProgram(argv[0], "", env)
	if err != nil {
		return err
	}
	return p.explainError(syscall.Exec(p.execPath, argv, env), argv, env)
}

// describeDenial explains, as the end of a sentence, why this user may not execute a file: it names
// the directory on its way that the user may not enter, or else the file's mode, and where a symbolic
// link leads. It is empty if the user may execute the file.
func describeDenial(path string) string {
	denied, err := filepath.EvalSymlinks(path)
	failed, isPath := errors.AsType[*fs.PathError](err)
	isClosed := isPath && errors.Is(err, fs.ErrPermission)
	switch {
	case isClosed:
		denied = filepath.Dir(failed.Path) // which contains what could not be inspected
	case err != nil || mayExecute(denied):
		return ""
	}
	link := ""
	if to, err := os.Readlink(path); err == nil {
		link = "it is a symbolic link to " + to + "; "
	}
	info, err := os.Stat(denied)
	if err != nil {
		return link + err.Error()
	}
	owner := files.OwnerOf(info)
	if isClosed {
		return fmt.Sprintf("%sthis user (%d) may not enter %s, which belongs to user %d (mode %v): "+
			"use a program outside of it, or ask that user for access",
			link, os.Geteuid(), denied, owner, info.Mode())
	}
	return link + describeMode(denied, info)
}

// describeMode explains that the mode of a file does not allow this user to execute it.
func describeMode(path string, info fs.FileInfo) string {
	owner := files.OwnerOf(info)
	remedy := fmt.Sprintf("it belongs to user %d, so use another one, or ask that user for access", owner)
	if owner == os.Geteuid() {
		remedy = "chmod +x " + textutil.QuoteShellWord(path)
	}
	return fmt.Sprintf("its mode is %v, and this user (%d) may not execute it: %s",
		info.Mode(), os.Geteuid(), remedy)
}

// mayExecute reports whether this user may enter a directory, or execute a file.
func mayExecute(path string) bool {
	return !errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS), fs.ErrPermission)
}
