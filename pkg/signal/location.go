package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Location is the location of an attempt's run directory, and the identity of this node in the run.
type Location struct {
	LogDir    string // the user's log directory: absolute, shared by all nodes
	Run       string // the run directory's name in it
	Key       string // digest of facts that all nodes of the launch share
	NodeIndex int
	Size      int
	Host      string
	// IsNamed reports that the launcher names the run, and the user cannot.
	IsNamed bool
	Access
}

// OtherNameAdvice returns what to do if the name of the run is taken.
func (p Location) OtherNameAdvice() string {
	if p.IsNamed {
		return "give another --log-dir"
	}
	return "give another --job-id, or another --log-dir"
}

func (p Location) newDirError(path, remedy, format string, args ...any) error {
	return &DirError{Path: path, Host: p.Host, Problem: fmt.Sprintf(format, args...), Remedy: remedy}
}

// listLogDir makes the log directory if only its last part is missing, and lists it if it is safe:
// it belongs to this user, is not a link, and no other user can write to it. Its error is a
// *DirError, a *StallError, or temporary.
//
// Every node begins with a mkdir, which always goes to the server: an open or stat of a missing
// name might make the client cache that it is missing. If met is set, an earlier call has listed
// the directory, so neither the mkdir nor the check is repeated.
func (p Location) listLogDir(ctx context.Context, met bool) ([]string, error) {
	return guardedCall(ctx, p.Access, "inspect", p.LogDir, func(string) ([]string, error) {
		made, list, vet := os.ErrExist, p.FS.ListDir, p.ownerCheck(p.LogDir)
		if met {
			vet = nil
		} else {
			made, list = p.FS.ChangeName(OpMkdir, "", p.LogDir), p.FS.HoldDir
		}
		switch {
		case errors.Is(made, os.ErrNotExist):
			return nil, p.explainMkdir(made)
		case isTransient(made):
			return nil, made // the caller tries again: it may not exist yet
		}
		// The directory exists, or the listing shows why it does not.
		names, err := list(p.LogDir, vet)
		var refused *DirError
		switch {
		case err == nil, errors.As(err, &refused):
			return names, err
		case made != nil && !errors.Is(made, os.ErrExist):
			// Some servers refuse to make an existing directory.
			return nil, p.explainMkdir(made)
		case isTransient(err):
			return nil, err
		default:
			return nil, p.explainOpen(err)
		}
	})
}

// listVerified is like a first [Location.listLogDir], and repeated while its error is temporary.
func (p Location) listVerified(ctx context.Context) (names []string, err error) {
	err = p.retryTransient(func() (err error) {
		names, err = p.listLogDir(ctx, false)
		return err
	})
	return names, err
}

// ownerCheck returns a function that returns an error if the directory cannot be trusted.
func (p Location) ownerCheck(path string) func(FileAttributes) error {
	return func(facts FileAttributes) error { return p.checkOwner(path, facts) }
}

// checkOwner returns a *DirError if another user could create names in the directory.
func (p Location) checkOwner(path string, facts FileAttributes) error {
	if facts.Owner != os.Geteuid() {
		return p.newDirError(path, "give a --log-dir of your own",
			"it belongs to %s, and you are %s", describeUser(facts.Owner), describeUser(os.Geteuid()))
	}
	if mode := facts.Mode.Perm(); mode&0o022 != 0 {
		return p.newDirError(path, "run chmod go-w on it, or give another --log-dir",
			"its mode is %04o: other users could create files there", mode)
	}
	return nil
}

func (p Location) explainMkdir(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return p.newDirError(p.LogDir, "create it, or check that the file system is mounted on this node",
			"its parent %s does not exist", filepath.Dir(p.LogDir))
	case errors.Is(err, syscall.ENOTDIR):
		return p.newDirError(p.LogDir, "give a directory with --log-dir",
			"its parent %s is not a directory", filepath.Dir(p.LogDir))
	default:
		return p.newDirError(p.LogDir, remedyFor(err), "cannot create it: %v", bareErrno(err))
	}
}

func (p Location) explainOpen(err error) error {
	if !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP) {
		return p.newDirError(p.LogDir, writableRemedy, "cannot read it: %v", bareErrno(err))
	}
	if facts, lookErr := p.FS.Stat(p.LogDir); lookErr != nil || facts.Mode&os.ModeSymlink == 0 {
		return p.newDirError(p.LogDir, "give a directory with --log-dir", "it is not a directory")
	}
	// Not every file system can resolve links: sshfs does not.
	target, linkErr := p.FS.ReadLink(p.LogDir)
	switch {
	case linkErr != nil:
		return p.newDirError(p.LogDir, "give the directory itself with --log-dir", "it is a symbolic link")
	case !filepath.IsAbs(target):
		target = filepath.Join(filepath.Dir(p.LogDir), target)
	}
	return p.newDirError(p.LogDir, "give the directory itself: --log-dir="+target, "it is a symbolic link")
}

// unreadableError returns the error for a directory that this node cannot read.
func (p Location) unreadableError(path string, err error) error {
	return p.newDirError(path, "check the file system on this node", "cannot read it: %v", bareErrno(err))
}

const writableRemedy = "give a --log-dir that you can read and write"

func remedyFor(err error) string {
	if isFull(err) {
		return "free space or quota there, or give another --log-dir"
	}
	return writableRemedy
}

// isFull reports whether the file system, or the user's quota there, is full.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// bareErrno removes the path from an error, because the message already has it.
func bareErrno(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return err
}

func describeUser(uid int) string {
	id := strconv.Itoa(uid)
	if known, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("%s (uid %s)", known.Username, id)
	}
	return "uid " + id
}
