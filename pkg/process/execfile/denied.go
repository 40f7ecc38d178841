package execfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
)

// maxLinks is the maximum number of symbolic links that the kernel follows in one path.
const maxLinks = 40

// describeDenial explains, as the end of a sentence, why this user may not execute a file: it names
// the directory on its way that the user may not enter, or else the file's mode, and the file to
// which a symbolic link leads. It is empty if the user may execute the file.
func describeDenial(path string) string {
	target, denied := findDenial(path)
	if denied == "" {
		return ""
	}
	link := ""
	if target != filepath.Clean(path) {
		link = "it is a symbolic link to " + target + "; "
	}
	info, err := os.Stat(denied)
	if err != nil {
		return link + err.Error()
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if !info.IsDir() || denied == target {
		if owner == os.Geteuid() {
			return fmt.Sprintf("%sits mode is %v, and this user (%d) may not execute it: chmod +x %s", link, info.Mode(), os.Geteuid(), textutil.QuoteShellWord(target))
		}
		return fmt.Sprintf("%sits mode is %v, and this user (%d) may not execute it: it belongs to user %d, so use another one, or ask that user for access", link, info.Mode(), os.Geteuid(), owner)
	}
	return fmt.Sprintf("%sthis user (%d) may not enter %s, which belongs to user %d (mode %v): use a program outside of it, or ask that user for access",
		link, os.Geteuid(), denied, owner, info.Mode())
}

// findDenial follows a path and its symbolic links. It returns the path to which they lead, and the
// first directory on the way that this user may not enter, or that path if this user may not execute
// it; empty if there is neither. The path is complete except for links behind the directory.
func findDenial(path string) (target, denied string) {
	target, err := filepath.Abs(path)
	if err != nil {
		return path, ""
	}
	for range maxLinks {
		next, denied := followLink(target)
		if denied != "" || next == "" {
			return target, denied
		}
		target = next
	}
	return target, ""
}

// followLink returns a path with its first symbolic link replaced by the link's target, or the first
// part of the path that this user may not enter or execute. Both are empty if there is neither.
func followLink(path string) (next, denied string) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	at := "/"
	for i, part := range parts {
		if !mayExecute(at) {
			return "", at
		}
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		if err != nil {
			return "", "" // it has vanished
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		to, err := os.Readlink(at)
		if err != nil {
			return "", ""
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(at), to)
		}
		return filepath.Join(to, filepath.Join(parts[i+1:]...)), ""
	}
	if !mayExecute(at) {
		return "", at
	}
	return "", ""
}

// mayExecute reports whether this user may enter a directory, or execute a file.
func mayExecute(path string) bool {
	return !errors.Is(unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS), fs.ErrPermission)
}
