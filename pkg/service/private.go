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

// Private is the attempt's own directory on this node.
type Private struct {
	in     string           // of which it is a part
	owned  func(dir string) // told of what is to be removed when this daemon is killed
	log    *zap.Logger
	within time.Duration // its disk may take to make it
	life   Life

	admitting sync.Mutex // over p.mu: its disk may hang

	mu    sync.Mutex
	made  string            // removed at the end; guarded by mu
	keys  string            // where Admit has put its files, if not there; removed, too; guarded by mu
	files []string          // that Admit has put there; guarded by mu
	env   map[string]string // of what Admit has put there; nil before; guarded by mu
}

// NewPrivate returns a directory that is to be made in another, within a time. The
// one that is made is told to owned: should this daemon be killed, it is to be removed.
func NewPrivate(in string, within time.Duration, owned func(dir string), log *zap.Logger, life Life) *Private {
	return &Private{in: in, within: within, owned: owned, log: log, life: life}
}

// Dir returns the directory, which it makes the first time.
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

// own takes a directory that was made for the private one, and returns that.
func (p *Private) own(made string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != "" || p.life.Work.Err() != nil { // another was first, or it comes too late
		go func() { _ = os.Remove(made) }()
		return p.made
	}
	p.made = made
	p.owned(made)
	return made
}

// Admit puts what lets a node's programs into their framework's cluster where only
// they find it, the first time, and returns the variables by which they do. The node
// is described but for them.
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
		if env := p.Env(); env != nil { // another was first, and they may be in use
			return env, nil
		}
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

// ownDirectory returns an error if what has the path is anything but a directory that this user alone can change. A
// stranger could have made it: programs of other nodes may look for their keys there.
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

// keysName names the directory of what is made of a secret. It is the same on all nodes: programs pass their variables on
// to others of theirs, on other nodes, as those of NeMo RL do. Nobody can guess it. Where it is there already, by another
// daemon of this run on the same host, say, the node's private directory does as well.
func keysName(secret []byte) string {
	sum := sha256.Sum256(append([]byte("directory "), secret...))
	return "bu-" + hex.EncodeToString(sum[:5])
}

// Env returns the variables that Admit has; nil before.
func (p *Private) Env() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.env
}

// Remove removes the directory, unless it is to be kept, and what Admit has made; or leaves it on a disk that
// hangs. Who is in a hurry was told to end, and may be killed.
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
	// removeTime is how long the removal of the private directory may take: it may
	// be full of what services have left.
	removeTime = 10 * time.Second
	// hurriedRemoveTime is the same where the daemon was told to end, and may be
	// killed.
	hurriedRemoveTime = 2 * time.Second
)
