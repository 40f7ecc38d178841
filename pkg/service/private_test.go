package service

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/framework"
)

// guarded lets in who has its file.
type guarded struct {
	framework.None
	err error
}

var _ framework.Guarded = guarded{}

func (g guarded) Credentials(node framework.Node, secret []byte) (framework.Credentials, error) {
	return framework.Credentials{
		Files: map[string][]byte{"key": secret}, Env: map[string]string{"KEY": filepath.Join(node.TempDir, "key")},
	}, g.err
}

func (guarded) Strangers(context.Context, framework.Node, framework.Endpoint, func(string)) {}

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
			p := NewPrivate(in, time.Minute, func(string) {}, zap.NewNop(), Life{Run: t.Context(), Work: t.Context()})
			dir, err := p.Dir()
			if err != nil {
				t.Fatal(err)
			}
			key := filepath.Join(in, keysName([]byte("secret")), "key")
			var want map[string]string
			if tc.file {
				want = map[string]string{"KEY": key}
			}
			for range 2 { // each service of a node asks for it
				env, err := p.Admit(tc.of, framework.Node{TempDir: dir}, []byte("secret"))
				if diff := cmp.Diff(want, env); diff != "" || !errors.Is(err, tc.err) {
					t.Errorf("%v\n%s", err, diff)
				}
			}
			if diff := cmp.Diff(want, p.Env()); diff != "" {
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

// What is kept of a node's directory has no secret in it, wherever that was put.
func TestKeepWithoutSecrets(t *testing.T) {
	in := t.TempDir()
	if err := os.Mkdir(filepath.Join(in, keysName([]byte("secret"))), 0o700); err != nil { // another daemon's
		t.Fatal(err)
	}
	p := NewPrivate(in, time.Minute, func(string) {}, zap.NewNop(), Life{Run: t.Context(), Work: t.Context()})
	dir, err := p.Dir()
	if err != nil {
		t.Fatal(err)
	}
	env, err := p.Admit(guarded{}, framework.Node{TempDir: dir}, []byte("secret"))
	if err != nil || filepath.Dir(env["KEY"]) != dir {
		t.Fatalf("the secret is in %v: %v", env, err)
	}
	p.Remove(false, true)
	if !exists(dir) || exists(env["KEY"]) {
		t.Errorf("the directory is there: %v; the secret: %v", exists(dir), exists(env["KEY"]))
	}
}

// What a program passes on to another node is found there, under the same path; two daemons of a host do not meet.
func TestAdmitElsewhere(t *testing.T) {
	in := t.TempDir()
	keys := map[string]bool{}
	for range 2 {
		p := NewPrivate(in, time.Minute, func(string) {}, zap.NewNop(), Life{Run: t.Context(), Work: t.Context()})
		dir, err := p.Dir()
		if err != nil {
			t.Fatal(err)
		}
		env, err := p.Admit(guarded{}, framework.Node{TempDir: dir}, []byte("secret"))
		if err != nil || !exists(env["KEY"]) {
			t.Errorf("there is no %s: %v", env["KEY"], err)
		}
		keys[env["KEY"]] = true
	}
	if !keys[filepath.Join(in, keysName([]byte("secret")), "key")] || len(keys) != 2 || keysName([]byte("secret")) == keysName([]byte("another")) {
		t.Errorf("the keys are %v", keys)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
