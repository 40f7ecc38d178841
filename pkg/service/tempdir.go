package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
)

// TempDir is the directory of this attempt on this node.
type TempDir struct {
	parent string // parent directory
	// onCreated is called with each directory that must be removed if this daemon is killed.
	onCreated func(files.OwnedPath)
	log       *zap.Logger
	timeout   time.Duration // time limit for creating the directory, because its disk may hang
	contexts  Contexts
	NoSockets bool // makes [TempDir.EnsureSocketDir] fail, for simulations without sockets

	credentialsMu sync.Mutex // locked before mu; held during disk access, which may hang

	mu  sync.Mutex
	dir *files.OwnedDir // removed at the end; guarded by mu
	// linkDir contains a short link to dir, if that was needed; removed too; guarded by mu
	linkDir *files.OwnedDir
	// directory created by [TempDir.WriteCredentials] for its files, if any; removed too; guarded by
	// mu
	keysDir *files.OwnedDir
	// keyFiles are the names of the files that [TempDir.WriteCredentials] has created in dir; guarded
	// by mu
	keyFiles []string
	// variables for the files of [TempDir.WriteCredentials]; nil before; guarded by mu
	credentialEnv map[string]string
}

// NewTempDir returns a [TempDir]. Its directory will be created inside in, on first use and within
// a time limit. owned is called with each directory that must be removed if this daemon is killed.
func NewTempDir(in string, within time.Duration, owned func(files.OwnedPath), log *zap.Logger, life Contexts) *TempDir {
	return &TempDir{parent: in, timeout: within, onCreated: owned, log: log, contexts: life}
}

// EnsureDir returns the directory. The first call creates it.
func (p *TempDir) EnsureDir() (string, error) {
	dir, err := p.ensure(&p.dir, p.createDir)
	if dir == nil {
		return "", err
	}
	return dir.Path(), nil
}

func (p *TempDir) createDir() (*files.OwnedDir, error) {
	made, err := files.MakeOwnedTemp(p.parent, "bu-")
	if err != nil {
		return nil, err
	}
	if exposure := signal.ExposureAbove(made.Path()); exposure.Reason != "" {
		p.log.Warn("other users could replace this node's temporary files: "+exposure.Reason,
			zap.String("fix", exposure.Remedy+", or give another --temp-dir"))
	}
	return made, nil
}

// ensure returns one of the directories, which the first call creates within the time limit. It
// returns nil if the daemon is ending.
func (p *TempDir) ensure(field **files.OwnedDir, create func() (*files.OwnedDir, error)) (*files.OwnedDir, error) {
	p.mu.Lock()
	dir := *field
	p.mu.Unlock()
	if dir != nil {
		return dir, nil
	}
	ctx, cancel := context.WithTimeoutCause(p.contexts.Run, p.timeout, health.ErrDeadline)
	defer cancel()
	return CallBounded(ctx, func() (*files.OwnedDir, error) {
		made, err := create()
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		// another call was faster, or the daemon is ending
		if *field != nil || p.contexts.Teardown.Err() != nil {
			go func() { _ = made.Remove() }()
			return *field, nil
		}
		*field = made
		p.onCreated(made.Owned())
		return made, nil
	})
}

// maxSocketDir is the maximum length of a directory for the daemon's own sockets.
const maxSocketDir = peerlink.MaxSocketPath - len("/meet")

// EnsureSocketDir returns a path of the directory that is short enough for the daemon's sockets.
func (p *TempDir) EnsureSocketDir() (string, error) {
	if p.NoSockets {
		return "", errors.New("cannot open sockets: they are disabled for this daemon")
	}
	return p.EnsureShortDir(maxSocketDir)
}

// shortParents are the directories in which [TempDir.EnsureShortDir] creates its link: the first one
// that serves.
var shortParents = []string{"/tmp", "/dev/shm", "/var/tmp"}

// EnsureShortDir returns a path of the directory that has at most maxLen bytes, for sockets in it; 0
// means any length. If the directory's own path is longer, the returned path is a link to it, in a
// private directory of its own.
func (p *TempDir) EnsureShortDir(maxLen int) (string, error) {
	dir, err := p.EnsureDir()
	if err != nil || maxLen == 0 || len(dir) <= maxLen {
		return dir, err
	}
	linkDir, err := p.ensure(&p.linkDir, func() (*files.OwnedDir, error) { return p.createLinkDir(dir, maxLen) })
	if linkDir == nil {
		return "", err
	}
	return filepath.Join(linkDir.Path(), linkName), nil
}

const linkName = "t"

// createLinkDir creates a private directory that contains a link to dir. The link's path has at
// most maxLen bytes, and no other user can replace it.
func (p *TempDir) createLinkDir(dir string, maxLen int) (*files.OwnedDir, error) {
	target, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var refused error
	for _, parent := range shortParents {
		made, err := files.MakeOwnedTemp(parent, "bu-")
		if err == nil {
			link := filepath.Join(made.Path(), linkName)
			exposure := signal.ExposureAbove(made.Path())
			switch {
			case len(link) > maxLen:
				err = fmt.Errorf("%s has more than %d bytes", link, maxLen)
			case exposure.Reason != "":
				err = errors.New(exposure.Reason)
			default:
				err = made.Root().Symlink(target, linkName)
			}
			if err == nil {
				p.log.Info("the path of the temporary directory is too long for sockets: they use a link to it",
					zap.String("link", link), zap.String("dir", dir))
				return made, nil
			}
			_ = made.Remove()
		}
		refused = errors.Join(refused, err)
	}
	return nil, fmt.Errorf("cannot create a short path for sockets: %s has %d bytes, at most %d are "+
		"accepted, and no link to it is possible (%w); "+
		"give a shorter --temp-dir", dir, len(dir), maxLen, refused)
}

// WriteCredentials writes the credentials for the framework's cluster to files that only this
// user's programs can find. It does so once, and returns the environment variables that lead to the
// files. self describes the node, except for these files. It returns nil variables if the framework
// has no credentials.
func (p *TempDir) WriteCredentials(f framework.Framework, self framework.Node,
	secret []byte) (map[string]string, error) {
	guarded, is := f.(framework.Authenticator)
	if env := p.CredentialEnv(); !is || env != nil {
		return env, nil
	}
	ctx, cancel := context.WithTimeoutCause(p.contexts.Run, p.timeout, health.ErrDeadline)
	defer cancel()
	return CallBounded(ctx, func() (map[string]string, error) {
		p.credentialsMu.Lock()
		defer p.credentialsMu.Unlock()
		if env := p.CredentialEnv(); env != nil { // another call was faster, and its files may be in use
			return env, nil
		}
		dir, isPrivate, err := p.createKeysDir(secret)
		if err != nil {
			return nil, err
		}
		if !isPrivate {
			self.TempDir = dir.Path()
		}
		credentials, err := guarded.NodeCredentials(self, secret)
		if err != nil {
			return nil, err
		}
		var names []string
		for name, data := range credentials.Files {
			if err := dir.Root().WriteFile(name, data, 0o600); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if isPrivate {
			p.keyFiles = names
		}
		p.credentialEnv = maps.Clone(credentials.Env)
		return p.credentialEnv, nil
	})
}

// createKeysDir creates the directory for files derived from a secret. It has the same name on all
// nodes. If another daemon has created it, the result is the node's private directory.
func (p *TempDir) createKeysDir(secret []byte) (dir *files.OwnedDir, isPrivate bool, err error) {
	path := filepath.Join(p.parent, keysDirName(secret))
	dir, err = files.MakeOwnedDir(path)
	if err == nil {
		p.onCreated(dir.Owned())
		p.mu.Lock()
		defer p.mu.Unlock()
		p.keysDir = dir
		return dir, false, nil
	}
	if errors.Is(err, fs.ErrExist) {
		if err := checkOwnDirectory(path); err != nil {
			return nil, false, err
		}
	}
	dir, err = p.ensure(&p.dir, p.createDir)
	if dir == nil && err == nil {
		err = context.Cause(p.contexts.Teardown)
	}
	return dir, true, err
}

// checkOwnDirectory returns an error unless path is a directory that only this user can change.
// Another user could have created it, and programs of other nodes may look for their keys there.
func checkOwnDirectory(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if owner := files.OwnerOf(info); !info.IsDir() || owner != os.Geteuid() ||
		info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("cannot write this run's keys to %s: it exists already (%v, owner uid %d) "+
			"and is not a private directory of yours; find out who created it",
			path, info.Mode(), owner)
	}
	return nil
}

// keysDirName returns the name of the directory for files derived from a secret. It cannot be
// guessed, and it is the same on all nodes, because some programs (NeMo RL's, for example) pass
// their variables to processes on other nodes. If the directory exists already, for example because
// another daemon of this run on the same host has created it, the node's private directory serves
// as well.
func keysDirName(secret []byte) string {
	sum := sha256.Sum256(append([]byte("directory "), secret...))
	return "bu-" + hex.EncodeToString(sum[:5])
}

// CredentialEnv returns the environment variables set by [TempDir.WriteCredentials]; nil before.
func (p *TempDir) CredentialEnv() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.credentialEnv
}

// Remove removes the directory, unless keep is set, and everything that [TempDir.WriteCredentials]
// has created. hurried means that the daemon was asked to end and may be killed soon, so that
// little time is left. If the disk hangs, Remove gives up.
func (p *TempDir) Remove(hurried, keep bool) {
	p.mu.Lock()
	dirs := []*files.OwnedDir{p.keysDir, p.linkDir, p.dir}
	var keyFiles []string
	if keep && p.dir != nil {
		dirs, keyFiles = dirs[:2], p.keyFiles
		p.log.Warn("kept the temporary directory of this node (--clean)", zap.String("dir", p.dir.Path()))
	}
	kept := p.dir
	p.mu.Unlock()
	dirs = slices.DeleteFunc(dirs, func(dir *files.OwnedDir) bool { return dir == nil })
	if len(dirs)+len(keyFiles) == 0 {
		return
	}
	within := removeTimeout
	if hurried {
		within = hurriedRemoveTimeout
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, health.ErrDeadline)
	defer cancel()
	_, err := CallBounded(ctx, func() (none struct{}, err error) {
		for _, name := range keyFiles {
			err = errors.Join(err, kept.Root().Remove(name))
		}
		for _, dir := range dirs {
			err = errors.Join(err, dir.Remove())
		}
		return none, err
	})
	if err != nil {
		paths := textutil.MapSlice(dirs, (*files.OwnedDir).Path)
		p.log.Warn("cannot remove the temporary directory: it stays", zap.Strings("dirs", paths), zap.Error(err))
	}
}

const (
	// removeTimeout bounds the removal of the private directory, which may contain many files of
	// services.
	removeTimeout = 10 * time.Second
	// hurriedRemoveTimeout is the same if the daemon was asked to end and may be killed.
	hurriedRemoveTimeout = 2 * time.Second
)
