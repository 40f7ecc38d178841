package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestAptWaitsForLocks runs the real apt-get, on files of its own, while this process holds one of
// its locks: it must be tried again until the lock is free. Other errors end it.
func TestAptWaitsForLocks(t *testing.T) {
	for _, tc := range []struct{ name, lock, pkg, want string }{
		{name: "apt-get update", lock: "lib/apt/lists/lock", pkg: "installed", want: "waits\nok\n"},
		{name: "apt-get install", lock: "lib/dpkg/lock-frontend", pkg: "installed", want: "waits\nok\n"},
		{name: "no lock", lock: "unrelated", pkg: "installed", want: "ok\n"},
		{name: "no such package", lock: "unrelated", pkg: "unknown", want: "failed\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			t.Setenv("APT_CONFIG", write(t, root+"/apt.conf", `Dir "`+root+`/";
Dir::Bin::methods "/usr/lib/apt/methods";
Dir::Bin::dpkg "/usr/bin/dpkg";
`))
			write(t, root+"/etc/apt/sources.list", "")
			write(t, root+"/var/cache/apt/archives/partial/none", "")
			write(t, root+"/var/lib/apt/lists/partial/none", "")
			write(t, root+"/var/lib/dpkg/status", `Package: installed
Status: install ok installed
Version: 1
Architecture: all
Maintainer: nobody
Description: a package without files

`)
			lock, err := os.Create(write(t, root+"/var/"+tc.lock, ""))
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if err := syscall.FcntlFlock(lock.Fd(), syscall.F_SETLK,
				&syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
				t.Fatal(err)
			}

			// In place of a pause, it waits until this test has unlocked the file.
			cmd := exec.CommandContext(t.Context(), "sh", "-c", `. test/setup.sh
				id() { echo 0; }
				sleep() { echo waits; read -r _; }
				if debian 1 `+tc.pkg+`; then echo ok; else echo failed; fi`)
			cmd.Dir = "../../.."
			var errs strings.Builder
			cmd.Stderr = &errs
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out := bufio.NewReader(pipe)
			first, _ := out.ReadString('\n')
			lock.Close()
			_, _ = io.WriteString(in, "\n") // it has ended if it does not wait
			rest, _ := io.ReadAll(out)
			if err := cmd.Wait(); err != nil || first+string(rest) != tc.want {
				t.Errorf("it printed %q and ended with %v: want %q\n%s", first+string(rest), err, tc.want, &errs)
			}
		})
	}
}

// TestAnnounceInstallsNothing calls all functions of test/setup.sh that the parts need with
// ANNOUNCE=1, on a machine without programs: they must call none and write nothing.
func TestAnnounceInstallsNothing(t *testing.T) {
	programs, cache := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	for name, text := range map[string]string{"id": "echo 0", "ls": "exit 1"} {
		if err := os.Chmod(write(t, programs+"/"+name, "#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script := ". test/setup.sh\n"
	for _, p := range allParts {
		for _, name := range p.needs {
			script += "have_" + name + "\n"
		}
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = "../../.."
	cmd.Env = []string{"ANNOUNCE=1", "PATH=" + programs, "HOME=/nonexistent", "XDG_CACHE_HOME=" + cache}
	out, _ := cmd.CombinedOutput()
	form := regexp.MustCompile(`^(\d+ MB: \S.*|NOT RUN: .*)\n$`)
	for line := range strings.Lines(string(out)) {
		if !form.MatchString(line) {
			t.Errorf("it printed %q", line)
		}
	}
	for _, want := range []string{" MB: Debian's gcc libc6-dev\n", " MB: PyPI's ray-"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if _, err := os.Stat(cache); !os.IsNotExist(err) {
		t.Errorf("%s exists: %v", cache, err)
	}
}

// write writes a file in a folder, which it creates, and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
