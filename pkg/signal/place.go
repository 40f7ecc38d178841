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

// Place is the location of an attempt's run directory, and the identity of this node in the run.
type Place struct {
	LogDir string // the user's log directory: absolute, shared by all nodes
	Run    string // the run directory's name in it
	Key    string // digest of facts that all nodes of the launch share
	Rank   int
	Size   int
	Host   string
	Access
}

func (p Place) refuse(path, mend, format string, args ...any) error {
	return &DirError{Path: path, Host: p.Host, Seen: fmt.Sprintf(format, args...), Mend: mend}
}

// look makes the log directory if only its last part is missing, and lists it if it is safe: it
// belongs to this user, is not a link, and no other user can write to it. Its error is a *DirError,
// a *StallError, or temporary.
//
// Every node begins with a mkdir, which always goes to the server: an open or stat of a missing
// name might make the client cache that it is missing. If met is set, an earlier call has listed
// the directory, so neither the mkdir nor the check is repeated.
func (p Place) look(ctx context.Context, met bool) ([]string, error) {
	return guarded(ctx, p.Meter, "look into", p.LogDir, func() ([]string, error) {
		made, list, vet := os.ErrExist, p.Share.List, p.vetting(p.LogDir)
		if met {
			vet = nil
		} else {
			made, list = p.Share.Change(MakeDir, "", p.LogDir), p.Share.Hold
		}
		switch {
		case errors.Is(made, os.ErrNotExist):
			return nil, p.explainMkdir(made)
		case passing(made):
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
		case passing(err):
			return nil, err
		default:
			return nil, p.explainOpen(err)
		}
	})
}

// fileSystem returns the file system of the log directory.
func (p Place) fileSystem(ctx context.Context) (FileSystem, error) {
	return guarded(ctx, p.Meter, "look into", p.LogDir, func() (FileSystem, error) { return p.Share.Kind(p.LogDir) })
}

// vetting returns a function that returns an error if the directory cannot be trusted.
func (p Place) vetting(path string) func(Facts) error {
	return func(facts Facts) error { return p.trust(path, facts) }
}

// trust returns a *DirError if another user could create names in the directory.
func (p Place) trust(path string, facts Facts) error {
	if facts.Owner != os.Geteuid() {
		return p.refuse(path, "give a --log-dir of your own",
			"it belongs to %s, and you are %s", userName(facts.Owner), userName(os.Geteuid()))
	}
	if mode := facts.Mode.Perm(); mode&0o022 != 0 {
		return p.refuse(path, "run chmod go-w on it, or give another --log-dir",
			"its mode is %04o: others could plant files there", mode)
	}
	return nil
}

func (p Place) explainMkdir(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return p.refuse(p.LogDir, "make it, or see whether the file system is mounted on this node",
			"its parent %s does not exist", filepath.Dir(p.LogDir))
	case errors.Is(err, syscall.ENOTDIR):
		return p.refuse(p.LogDir, "give a directory with --log-dir", "its parent %s is not a directory", filepath.Dir(p.LogDir))
	default:
		return p.refuse(p.LogDir, mendFor(err), "cannot make it: %v", errno(err))
	}
}

func (p Place) explainOpen(err error) error {
	if !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP) {
		return p.refuse(p.LogDir, writableMend, "cannot read it: %v", errno(err))
	}
	if facts, lookErr := p.Share.Look(p.LogDir); lookErr != nil || facts.Mode&os.ModeSymlink == 0 {
		return p.refuse(p.LogDir, "give a directory with --log-dir", "it is not a directory")
	}
	// Not every file system can resolve links: sshfs does not.
	target, linkErr := p.Share.Target(p.LogDir)
	switch {
	case linkErr != nil:
		return p.refuse(p.LogDir, "give the directory itself with --log-dir", "it is a symbolic link")
	case !filepath.IsAbs(target):
		target = filepath.Join(filepath.Dir(p.LogDir), target)
	}
	return p.refuse(p.LogDir, "give the directory itself: --log-dir="+target, "it is a symbolic link")
}

// unread returns the error for a directory that this node cannot read.
func (p Place) unread(path string, err error) error {
	return p.refuse(path, "see whether the file system is well on this node", "cannot read it: %v", errno(err))
}

// explainInTheWay describes what has the name of the run directory.
func (p Place) explainInTheWay(ctx context.Context, path string) error {
	what := "it is a file"
	target, err := guarded(ctx, p.Meter, "follow", path, func() (string, error) { return p.Share.Target(path) })
	if err == nil {
		what = "it is a symbolic link to " + target
	}
	return p.refuse(path, "remove it, or give another --log-dir", "%s, where the run directory is to be", what)
}

const writableMend = "give a --log-dir that you can read and write"

// mendFor returns the remedy for a directory that is not writable.
func mendFor(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "free space or quota there, or give another --log-dir"
	}
	return writableMend
}

// errno removes the path from an error, because the message already has it.
func errno(err error) error {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return err
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if known, err := user.LookupId(id); err == nil {
		return fmt.Sprintf("%s (uid %s)", known.Username, id)
	}
	return "uid " + id
}
