package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/test/users"
)

// guarded admits clients that have its file.
type guarded struct {
	framework.None
	err error
}

var _ framework.Authenticator = guarded{}

func (g guarded) NodeCredentials(node framework.Node, secret []byte) (framework.Credentials, error) {
	return framework.Credentials{
		Files: map[string][]byte{"key": secret}, Env: map[string]string{"KEY": filepath.Join(node.TempDir, "key")},
	}, g.err
}

func (guarded) WarnIfOpen(context.Context, framework.Node, framework.Endpoint, func(string)) {}

func newTempDir(t *testing.T, in string) *TempDir {
	life := Contexts{Run: t.Context(), Teardown: t.Context()}
	return NewTempDir(in, time.Minute, func(files.OwnedPath) {}, zap.NewNop(), life)
}

func TestAdmit(t *testing.T) {
	refused := errors.New("cannot make a key")
	for _, tc := range []struct {
		name string
		of   framework.Framework
		err  error
		file bool
	}{
		{"one that is guarded", guarded{}, nil, true},
		{"one that is open", framework.None{}, nil, false},
		{"one that fails", guarded{err: refused}, refused, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := t.TempDir()
			p := newTempDir(t, in)
			dir, err := p.EnsureDir()
			if err != nil {
				t.Fatal(err)
			}
			key := filepath.Join(in, keysDirName([]byte("secret")), "key")
			var want map[string]string
			if tc.file {
				want = map[string]string{"KEY": key}
			}
			for range 2 { // each service of a node requests it
				env, err := p.WriteCredentials(tc.of, framework.Node{TempDir: dir}, []byte("secret"))
				if diff := cmp.Diff(want, env); diff != "" || !errors.Is(err, tc.err) {
					t.Errorf("%v\n%s", err, diff)
				}
			}
			if diff := cmp.Diff(want, p.CredentialEnv()); diff != "" {
				t.Error(diff)
			}
			info, err := os.Stat(key)
			if tc.file != (err == nil) || tc.file && info.Mode() != 0o600 {
				t.Errorf("the file is %v: %v", info, err)
			}
			p.Remove(false, false)
			if left, err := os.ReadDir(in); err != nil || len(left) > 0 {
				t.Errorf("%v is left: %v", left, err)
			}
		})
	}
}

// TestKeepWithoutSecrets verifies that the kept part of a node's directory contains no secret,
// wherever the secret was stored.
func TestKeepWithoutSecrets(t *testing.T) {
	in := t.TempDir()
	// Another daemon's directory.
	if err := os.Mkdir(filepath.Join(in, keysDirName([]byte("secret"))), 0o700); err != nil {
		t.Fatal(err)
	}
	p := newTempDir(t, in)
	dir, err := p.EnsureDir()
	if err != nil {
		t.Fatal(err)
	}
	env, err := p.WriteCredentials(guarded{}, framework.Node{TempDir: dir}, []byte("secret"))
	if err != nil || filepath.Dir(env["KEY"]) != dir {
		t.Fatalf("the secret is in %v: %v", env, err)
	}
	p.Remove(false, true)
	if !exists(dir) || exists(env["KEY"]) {
		t.Errorf("the directory is there: %v; the secret: %v", exists(dir), exists(env["KEY"]))
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestKeysOfAStranger verifies that the directory of keys may exist if another daemon of the same
// user has made it. A directory that another user may have made is refused: programs of other nodes
// would find that user's keys.
func TestKeysOfAStranger(t *testing.T) {
	for name, plant := range map[string]func(dir string) error{
		"another user's": func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, int(users.Stranger.ID), int(users.Stranger.ID)))
		},
		"open to others": func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"a link":         func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		t.Run(name, func(t *testing.T) {
			users.Need(t)
			in := t.TempDir()
			if err := plant(filepath.Join(in, keysDirName([]byte("secret")))); err != nil {
				t.Fatal(err)
			}
			p := newTempDir(t, in)
			env, err := p.WriteCredentials(guarded{}, framework.Node{TempDir: in}, []byte("secret"))
			if err == nil || env != nil || !strings.Contains(err.Error(), "cannot write this run's keys to "+in) {
				t.Errorf("%v, %v", env, err)
			}
		})
	}
}

// TestShortDir verifies that a path of the directory is short enough for sockets, that it leads to
// the same directory, and that nothing remains.
func TestShortDir(t *testing.T) {
	for _, tc := range []struct {
		name      string
		more, max int
		link      bool
	}{
		{"any length", 200, 0, false},
		{"short enough", 0, 107, false},
		{"too long", 200, 102, true},
		{"too long for a framework", 40, 41, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), strings.Repeat("x", tc.more))
			if err := os.MkdirAll(in, 0o700); err != nil {
				t.Fatal(err)
			}
			var owned []string
			core, logs := observer.New(zap.InfoLevel)
			p := newTempDir(t, in)
			p.onCreated, p.log = func(dir files.OwnedPath) { owned = append(owned, dir.Path) }, zap.New(core)
			dir, err := p.EnsureDir()
			if err != nil {
				t.Fatal(err)
			}
			short, err := p.EnsureShortDir(tc.max)
			if err != nil {
				t.Fatal(err)
			}
			again, err := p.EnsureShortDir(tc.max)
			if err != nil || again != short || (short != dir) != tc.link || tc.max > 0 && len(short) > tc.max {
				t.Errorf("%s, then %s (%v) for %s", short, again, err, dir)
			}
			if to, err := filepath.EvalSymlinks(short); err != nil || to != dir {
				t.Errorf("%s leads to %s (%v), want %s", short, to, err, dir)
			}
			if want := map[bool]int{false: 1, true: 2}[tc.link]; len(owned) != want || logs.Len() != want-1 {
				t.Errorf("the guard removes %q; the log has %v", owned, logs.All())
			}
			if info, err := os.Stat(filepath.Dir(short)); tc.link && (err != nil || info.Mode().Perm() != 0o700) {
				t.Errorf("the link's directory: %v (%v)", info.Mode(), err)
			}
			p.Remove(false, tc.link) // a directory that is kept needs no link
			for _, path := range owned {
				if _, err := os.Lstat(path); (err == nil) != (tc.link && path == dir) {
					t.Errorf("%s: %v", path, err)
				}
			}
		})
	}
}

// TestNoShortDir verifies that the limit is reported if no link can be short enough, and that a
// daemon without sockets opens none.
func TestNoShortDir(t *testing.T) {
	p := newTempDir(t, t.TempDir())
	if dir, err := p.EnsureShortDir(3); err == nil || !strings.Contains(err.Error(), "at most 3 are accepted") {
		t.Errorf("%s, %v", dir, err)
	}
	p.NoSockets = true
	if dir, err := p.EnsureSocketDir(); err == nil {
		t.Errorf("%s is for sockets", dir)
	}
}

// TestTempDirExchanged verifies that the end of a daemon removes what it has made, and not another
// directory of the user, which a member of a group has moved to its path.
func TestTempDirExchanged(t *testing.T) {
	users.Need(t)
	project := users.Project(t)
	p := newTempDir(t, project)
	dir, err := p.EnsureDir()
	if err != nil {
		t.Fatal(err)
	}
	env, err := p.WriteCredentials(guarded{}, framework.Node{TempDir: dir}, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"data": dir, "other": filepath.Dir(env["KEY"])} {
		data := filepath.Join(project, name)
		err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "kept"), nil, 0o600),
			os.WriteFile(filepath.Join(path, "file"), nil, 0o600),
			users.Stranger.Command(t.Context(), project, "sh", "-c", `mv "$1" "$2.aside" && mv "$2" "$1"`, "sh",
				path, data).Run())
		if err != nil {
			t.Fatal(err)
		}
	}
	p.Remove(false, false)
	for name, path := range map[string]string{"data": dir, "other": filepath.Dir(env["KEY"])} {
		if !exists(filepath.Join(path, "kept")) {
			t.Errorf("a file of %s has gone", name)
		}
		if left, err := os.ReadDir(filepath.Join(project, name+".aside")); err != nil || len(left) > 0 {
			t.Errorf("%v is left: %v", left, err)
		}
	}
}
