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
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// TempDir is the directory of this attempt on this node.
type TempDir struct {
	parent    string           // parent directory
	onCreated func(dir string) // called with each path that must be removed if this daemon is killed
	log       *zap.Logger
	timeout   time.Duration // time limit for creating the directory, because its disk may hang
	contexts  Contexts

	credentialsMu sync.Mutex // locked before mu; held during disk access, which may hang

	mu  sync.Mutex
	dir string // removed at the end; guarded by mu
	// directory created by [TempDir.WriteCredentials] for its files, if any; removed too; guarded by
	// mu
	keysDir string
	// keyFiles that [TempDir.WriteCredentials] has created; guarded by mu
	keyFiles []string
	// variables for the files of [TempDir.WriteCredentials]; nil before; guarded by mu
	credentialEnv map[string]string
}

// NewTempDir returns a [TempDir]. Its directory will be created inside in, on first use and within
// a time limit. owned is called with each path that must be removed if this daemon is killed.
func NewTempDir(in string, within time.Duration, owned func(dir string), log *zap.Logger, life Contexts) *TempDir {
	return &TempDir{parent: in, timeout: within, onCreated: owned, log: log, contexts: life}
}

// EnsureDir returns the directory. The first call creates it.
func (p *TempDir) EnsureDir() (string, error) {
	p.mu.Lock()
	dir := p.dir
	p.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	ctx, cancel := context.WithTimeoutCause(p.contexts.Run, p.timeout, health.ErrDeadline)
	defer cancel()
	return CallBounded(ctx, func() (string, error) {
		made, err := os.MkdirTemp(p.parent, "bu-")
		if err != nil {
			return "", err
		}
		if exposure := signal.ExposureAbove(made); exposure.Reason != "" {
			p.log.Warn("other users could replace this node's temporary files: "+exposure.Reason,
				zap.String("to mend it", exposure.Remedy+", or give another --temp-dir"))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		// another call was faster, or the daemon is ending
		if p.dir != "" || p.contexts.Teardown.Err() != nil {
			go func() { _ = os.Remove(made) }()
			return p.dir, nil
		}
		p.dir = made
		p.onCreated(made)
		return made, nil
	})
}

// WriteCredentials writes the credentials for the framework's cluster to files that only this
// user's programs can find. It does so once, and returns the environment variables that lead to the
// files. self describes the node, except for these files. It returns nil variables if the framework
// has no credentials.
func (p *TempDir) WriteCredentials(f framework.Framework, self framework.Node, secret []byte) (map[string]string, error) {
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
		// The directory has the same name on all nodes. If another daemon has created it, use the private
		// directory of the node.
		dir := filepath.Join(p.parent, keysDirName(secret))
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			if err := checkOwnDirectory(dir); err != nil {
				return nil, err
			}
		}
		if err == nil {
			p.onCreated(dir)
			p.mu.Lock()
			p.keysDir = dir
			p.mu.Unlock()
			self.TempDir = dir
		}
		// Write the files and publish them.
		credentials, err := guarded.NodeCredentials(self, secret)
		if err != nil {
			return nil, err
		}
		var files []string
		for name, data := range credentials.Files {
			path := filepath.Join(self.TempDir, name)
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return nil, err
			}
			files = append(files, path)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.keyFiles = files
		p.credentialEnv = maps.Clone(credentials.Env)
		return p.credentialEnv, nil
	})
}

// checkOwnDirectory returns an error unless path is a directory that only this user can change.
// Another user could have created it, and programs of other nodes may look for their keys there.
func checkOwnDirectory(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; !info.IsDir() || int(owner) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("cannot write this run's keys to %s: it exists already (%v, owner uid %d) and is not a private directory of yours; find out who created it",
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
	dirs := []string{p.keysDir, p.dir}
	if keep && p.dir != "" {
		dirs = append(p.keyFiles, p.keysDir)
		p.log.Warn("kept the temporary directory of this node (--clean)", zap.String("dir", p.dir))
	}
	dirs = slices.DeleteFunc(dirs, func(path string) bool { return path == "" })
	p.mu.Unlock()
	if len(dirs) == 0 {
		return
	}
	within := removeTimeout
	if hurried {
		within = hurriedRemoveTimeout
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, health.ErrDeadline)
	defer cancel()
	_, err := CallBounded(ctx, func() (none struct{}, err error) {
		for _, dir := range dirs {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return none, err
	})
	if err != nil {
		p.log.Warn("cannot remove the temporary directory: it stays", zap.Strings("dirs", dirs), zap.Error(err))
	}
}

const (
	// removeTimeout bounds the removal of the private directory, which may contain many files of
	// services.
	removeTimeout = 10 * time.Second
	// hurriedRemoveTimeout is the same if the daemon was asked to end and may be killed.
	hurriedRemoveTimeout = 2 * time.Second
)
