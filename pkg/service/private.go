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

// Private is the directory of this attempt on this node.
type Private struct {
	in     string           // parent directory
	owned  func(dir string) // called with each path that must be removed if this daemon is killed
	log    *zap.Logger
	within time.Duration // time limit for creating the directory, because its disk may hang
	life   Life

	admitting sync.Mutex // locked before mu; held during disk access, which may hang

	mu    sync.Mutex
	made  string            // removed at the end; guarded by mu
	keys  string            // directory created by [Private.Admit] for its files, if any; removed too; guarded by mu
	files []string          // files that [Private.Admit] has created; guarded by mu
	env   map[string]string // variables for the files of [Private.Admit]; nil before; guarded by mu
}

// NewPrivate returns a [Private]. Its directory will be created inside in, on first use and within
// a time limit. owned is called with each path that must be removed if this daemon is killed.
func NewPrivate(in string, within time.Duration, owned func(dir string), log *zap.Logger, life Life) *Private {
	return &Private{in: in, within: within, owned: owned, log: log, life: life}
}

// Dir returns the directory. The first call creates it.
func (p *Private) Dir() (string, error) {
	p.mu.Lock()
	dir := p.made
	p.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	ctx, cancel := context.WithTimeoutCause(p.life.Run, p.within, health.ErrDeadline)
	defer cancel()
	return Answered(ctx, func() (string, error) {
		made, err := os.MkdirTemp(p.in, "bu-")
		if err != nil {
			return "", err
		}
		if exposure := signal.ExposureAbove(made); exposure.Seen != "" {
			p.log.Warn("other users could replace this node's temporary files: "+exposure.Seen,
				zap.String("to mend it", exposure.Mend+", or give another --temp-dir"))
		}
		return p.own(made), nil
	})
}

// own registers made as the private directory, unless there is one already. It returns the private
// directory.
func (p *Private) own(made string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != "" || p.life.Work.Err() != nil { // another call was faster, or the daemon is ending
		go func() { _ = os.Remove(made) }()
		return p.made
	}
	p.made = made
	p.owned(made)
	return made
}

// Admit writes the credentials for the framework's cluster to files that only this user's programs
// can find. It does so once, and returns the environment variables that lead to the files. self
// describes the node, except for these files. It returns nil variables if the framework has no
// credentials.
func (p *Private) Admit(f framework.Framework, self framework.Node, secret []byte) (map[string]string, error) {
	guarded, is := f.(framework.Guarded)
	if env := p.Env(); !is || env != nil {
		return env, nil
	}
	ctx, cancel := context.WithTimeoutCause(p.life.Run, p.within, health.ErrDeadline)
	defer cancel()
	return Answered(ctx, func() (map[string]string, error) {
		p.admitting.Lock()
		defer p.admitting.Unlock()
		if env := p.Env(); env != nil { // another call was faster, and its files may be in use
			return env, nil
		}
		// The directory has the same name on all nodes. If another daemon has created it, use the private
		// directory of the node.
		dir := filepath.Join(p.in, keysName(secret))
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			if err := ownDirectory(dir); err != nil {
				return nil, err
			}
		}
		if err == nil {
			p.owned(dir)
			p.mu.Lock()
			p.keys = dir
			p.mu.Unlock()
			self.TempDir = dir
		}
		// Write the files and publish them.
		credentials, err := guarded.Credentials(self, secret)
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
		p.files = files
		p.env = maps.Clone(credentials.Env)
		return p.env, nil
	})
}

// ownDirectory returns an error unless path is a directory that only this user can change. Another
// user could have created it, and programs of other nodes may look for their keys there.
func ownDirectory(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; !info.IsDir() || int(owner) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("cannot put this run's keys into %s: it is there already (%v, owner uid %d) and is no directory of yours alone; see who has made it",
			path, info.Mode(), owner)
	}
	return nil
}

// keysName returns the name of the directory for files derived from a secret. It cannot be guessed,
// and it is the same on all nodes, because some programs (NeMo RL's, for example) pass their
// variables to processes on other nodes. If the directory exists already, for example because
// another daemon of this run on the same host has created it, the node's private directory serves
// as well.
func keysName(secret []byte) string {
	sum := sha256.Sum256(append([]byte("directory "), secret...))
	return "bu-" + hex.EncodeToString(sum[:5])
}

// Env returns the environment variables set by [Private.Admit]; nil before.
func (p *Private) Env() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.env
}

// Remove removes the directory, unless keep is set, and everything that [Private.Admit] has
// created. hurried means that the daemon was asked to end and may be killed soon, so that little
// time is left. If the disk hangs, Remove gives up.
func (p *Private) Remove(hurried, keep bool) {
	p.mu.Lock()
	dirs := []string{p.keys, p.made}
	if keep && p.made != "" {
		dirs = append(p.files, p.keys)
		p.log.Warn("kept the temporary directory of this node (--clean)", zap.String("dir", p.made))
	}
	dirs = slices.DeleteFunc(dirs, func(path string) bool { return path == "" })
	p.mu.Unlock()
	if len(dirs) == 0 {
		return
	}
	within := removeTime
	if hurried {
		within = hurriedRemoveTime
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, health.ErrDeadline)
	defer cancel()
	_, err := Answered(ctx, func() (none struct{}, err error) {
		for _, dir := range dirs {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return none, err
	})
	if err != nil {
		p.log.Warn("left the temporary directory, which can't be removed", zap.Strings("dirs", dirs), zap.Error(err))
	}
}

const (
	// removeTime bounds the removal of the private directory, which may contain many files of
	// services.
	removeTime = 10 * time.Second
	// hurriedRemoveTime is the same if the daemon was asked to end and may be killed.
	hurriedRemoveTime = 2 * time.Second
)
