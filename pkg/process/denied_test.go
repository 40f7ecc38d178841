package process

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/test/users"
)

// TestDeniedByMode verifies that the mode of a file explains why execve has refused it, on a file
// system on which access(2) accepts every file.
func TestDeniedByMode(t *testing.T) {
	path := t.TempDir() + "/plain"
	write(t, path, "#!/bin/sh\n", 0o644)
	err := Program{execPath: path, file: path}.explainError(syscall.EACCES, nil, nil)
	if !errors.Is(err, ErrNotExecutable) || !strings.Contains(err.Error(), "chmod +x "+path) {
		t.Errorf("%v", err)
	}
}

// TestDeniedPrograms verifies that the directory that this user may not enter is named, with the
// link that leads there, or the mode of a file of another user.
func TestDeniedPrograms(t *testing.T) {
	users.Need(t)
	home, dir := users.Stranger.Dir(t), users.Job.Dir(t)
	write(t, home+"/python/bin/python3", "#!/bin/sh\nexit 0\n", 0o755)
	write(t, home+"/private", "#!/bin/sh\nexit 0\n", 0o744)
	for name, to := range map[string]string{
		"python": "python3", "python3": home + "/python/bin/python3", "private": home + "/private",
	} {
		if err := os.Symlink(to, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir+"/ray", "#!"+dir+"/python\n", 0o755)
	user, stranger := strconv.Itoa(int(users.Job.ID)), strconv.Itoa(int(users.Stranger.ID))
	for _, err := range []error{
		os.Chmod(home, 0o711), os.Chmod(home+"/python", 0o700),
		os.Chown(home+"/python", int(users.Stranger.ID), -1), os.Chown(home+"/private", int(users.Stranger.ID), -1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	users.Job.Do(t, func() {
		link := "it is a symbolic link to python3; this user (" + user + ") may not enter " + home +
			"/python, which belongs to user " + stranger + " (mode drwx------)"
		for name, want := range map[string]string{
			"python": link,
			"ray":    "",
			"private": "it is a symbolic link to " + home +
				"/private; its mode is -rwxr--r--, and this user (" + user +
				") may not execute it: it belongs to user " + stranger,
		} {
			p, err := FindProgram(dir+"/"+name, "", nil)
			if name == "ray" {
				if err == nil {
					err = p.explainError(syscall.EACCES, nil, nil)
				}
				want = "its interpreter is " + dir + "/python (first line): " + link
			}
			if !errors.Is(err, ErrNotExecutable) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want one that contains %q", name, err, want)
			}
			if strings.Contains(err.Error(), "chmod") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
