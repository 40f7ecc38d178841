//go:build packages

// Package packages installs the files that make package creates, as users do, in file systems that
// contain nothing else of this project.
package packages

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const repository = "../.."

// dist is the folder with the packages under test.
var dist string

// TestMain builds the packages.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if dist, err = os.MkdirTemp("", "bringupd-package-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(dist)
		build := exec.Command("make", "package", "DIST="+dist)
		build.Dir, build.Stderr = repository, os.Stderr
		if err := build.Run(); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// TestSameBytes checks that builds of the same commit are identical, also in another folder, with
// another umask, and in another time zone.
func TestSameBytes(t *testing.T) {
	other, again := filepath.Join(t.TempDir(), "elsewhere"), t.TempDir()
	command(t, "", "cp", "-a", repository, other)
	command(t, "", "chmod", "-R", "go=", other)
	command(t, other, "sh", "-c",
		`umask 077 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 make package DIST="$1"`, "sh", again)
	command(t, "", "diff", "-r", dist, again)
	command(t, dist, "sha256sum", "--check", "--strict", "SHA256SUMS")
}

// TestDeb checks the .deb in a new Debian: the README's first job runs as an ordinary user, and
// removing the package leaves nothing behind.
func TestDeb(t *testing.T) {
	root := debian(t)
	before := files(t, root)
	command(t, "", "cp", only(t, "*.deb"), root+"/tmp/bringupd.deb")
	inside(t, root, "dpkg --install /tmp/bringupd.deb && rm /tmp/bringupd.deb")
	for _, path := range []string{
		"man/man1/bringupd.1.gz", "bash-completion/completions/bringupd",
		"zsh/vendor-completions/_bringupd",
		"fish/vendor_completions.d/bringupd.fish", "doc/bringupd/deploy/slurm/ray.sbatch",
		"doc/bringupd/deploy/slurm/prolog.sh", "doc/bringupd/deploy/nhc/bringupd.nhc",
		"bringupd/deploy/prometheus/dashboard.json",
		"bringupd/spack/packages/bringupd/package.py", "doc/bringupd/copyright",
	} {
		if _, err := os.Stat(filepath.Join(root, "usr/share", path)); err != nil {
			t.Error(err)
		}
	}
	out := inside(t, root,
		"su -s /bin/sh nobody -c 'mkdir /tmp/work && cd /tmp/work && cp -r /usr/share/bringupd/examples . && "+
			strings.ReplaceAll(firstJob(t), "'", `'\''`)+"' && rm -r /tmp/work")
	if !strings.Contains(out, "hello from the driver on ") ||
		!strings.Contains(out, " node 0 of 4\n") {
		t.Errorf("the README's first job printed\n%s", out)
	}
	inside(t, root, "dpkg --purge bringupd")
	after := files(t, root)
	for path := range after {
		if !before[path] {
			t.Errorf("left behind: %s", path)
		}
	}
	for path := range before {
		if !after[path] {
			t.Errorf("gone, and was not ours: %s", path)
		}
	}
}

// TestRpm checks that the .rpm requires only the C library, and is removed completely.
func TestRpm(t *testing.T) {
	root, rpm := t.TempDir(), only(t, "*.rpm")
	if out := command(t, "", "rpm", "-qp", "--requires",
		rpm); !regexp.MustCompile(`^libc\.so\.6\(GLIBC_[0-9.]+\)\(64bit\)\n$`).MatchString(out) {
		t.Errorf("it requires %s", out)
	}
	command(t, "", "rpm", "-K", rpm)
	command(t, "", "rpm", "--root", root, "--nodeps", "--install", rpm) // no C library in root
	command(t, "", "rpm", "--root", root, "--erase", "bringupd")
	for path := range files(t, root) {
		if strings.Contains(path, "bringupd") { // directories of the distribution stay
			t.Errorf("left behind: %s", path)
		}
	}
}

// TestStatic checks that the static binary needs no other file, not even a shell.
func TestStatic(t *testing.T) {
	root := t.TempDir()
	unpack(t, only(t, "*-static.tar.gz"), root)
	for _, dir := range []string{"proc", "tmp", "dev"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	command(t, "", "mknod", root+"/dev/null", "c", "1", "3")
	want := command(t, "", root+"/bin/bringupd", "version")
	out := command(t, "", "unshare", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc="+root+"/proc", "chroot", root,
		"/bin/bringupd", "local", "--nodes=2", "--log-dir=/tmp/logs", "--",
		"/bin/bringupd", "version")
	if out != want {
		t.Errorf("the job printed %q: want %q", out, want)
	}
}

// TestModulefile checks that the modulefile finds the folder in which it was unpacked.
func TestModulefile(t *testing.T) {
	root := t.TempDir()
	unpack(t, only(t, "*-linux-*[0-9].tar.gz"), root)
	load := exec.Command("/usr/share/lmod/lmod/libexec/lmod", "sh", "load", "bringupd")
	load.Env = append(os.Environ(), "MODULEPATH="+root+"/share/bringupd/modulefiles")
	var errs bytes.Buffer
	load.Stderr = &errs
	out, err := load.Output()
	if err != nil || !regexp.MustCompile(
		`(?m)^(export )?PATH="?`+regexp.QuoteMeta(root)+`/bin:`).Match(out) {
		t.Errorf("it was loaded with %v: %s%s", err, out, &errs)
	}
}

// firstJob returns the first job of the README, with the path of the installed bringupd.
func firstJob(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile(repository + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	const source = "    CGO_ENABLED=0 go run ./cmd/"
	_, job, found := strings.Cut(string(readme), "\n"+source)
	if !found {
		t.Fatalf("cannot find the README's first job: no line begins with %q", source)
	}
	job, _, _ = strings.Cut(job, "\n")
	return job
}

// debian returns a new copy of BRINGUPD_TEST_DEBIAN, which make test has created with debootstrap.
func debian(t *testing.T) string {
	t.Helper()
	made := os.Getenv("BRINGUPD_TEST_DEBIAN")
	if made == "" {
		t.Fatal("cannot run without a Debian: BRINGUPD_TEST_DEBIAN must name the root that debootstrap has made")
	}
	root := filepath.Join(t.TempDir(), "debian")
	command(t, "", "cp", "-a", made, root)
	return root
}

// inside runs a shell script in the root, in its own PID namespace, and returns its output.
func inside(t *testing.T, root, script string) string {
	t.Helper()
	return command(t, "", "unshare", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc="+root+"/proc", "chroot", root, "/bin/sh", "-c", script)
}

func unpack(t *testing.T, tarball, root string) {
	t.Helper()
	command(t, "", "tar", "-C", root, "--strip-components=1", "-xzf", tarball)
}

// only returns the single package whose name matches the pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	return glob(t, filepath.Join(dist, pattern))
}

// files returns all paths below root, except for the databases and logs of package managers.
func files(t *testing.T, root string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		inner := strings.TrimPrefix(path, root)
		if err == nil && d.IsDir() && (inner == "/var" || inner == "/proc") {
			return filepath.SkipDir
		}
		all[inner] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// command runs a program, which must succeed, and returns its standard output.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	var errs bytes.Buffer
	run := exec.CommandContext(t.Context(), name, args...)
	run.Dir, run.Stderr = dir, &errs
	run.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG")
	})
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}
