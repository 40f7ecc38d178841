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

// TestInstallations installs a package in a new Debian 13: an ordinary user runs the README's jobs
// and finds the manual page, and removing the package leaves no file behind.
func TestInstallations(t *testing.T) {
	for name, tc := range map[string]struct {
		pattern, prefix, install, remove string // the commands get the root and the package
		has                              []string
	}{
		"deb": {pattern: "*.deb", prefix: "/usr",
			install: `cp "$2" "$1/tmp" && chroot "$1" dpkg --install "/tmp/${2##*/}" && rm "$1/tmp/${2##*/}"`,
			remove:  `chroot "$1" dpkg --purge bringupd`,
			has: []string{"zsh/vendor-completions/_bringupd", "doc/bringupd/LICENSE", "doc/bringupd/copyright",
				"doc/bringupd/deploy/slurm/ray.sbatch", "doc/bringupd/deploy/slurm/prolog.sh",
				"doc/bringupd/deploy/nhc/bringupd.nhc", "bringupd/deploy/prometheus/dashboard.json",
				"bringupd/spack/packages/bringupd/package.py"}},
		"rpm": {pattern: "*.rpm", prefix: "/usr",
			install: `rpm --root "$1" --nodeps --install "$2"`, // no RPM has the C library in a Debian
			remove:  `rpm --root "$1" --erase bringupd`,
			has: []string{"zsh/site-functions/_bringupd", "licenses/bringupd/LICENSE",
				"doc/bringupd/deploy/slurm/ray.sbatch", "bringupd/spack/packages/bringupd/package.py"}},
		"wheel": {pattern: "*_x86_64.whl", prefix: "/opt/venv",
			install: `cp "$2" "$1/tmp" && chroot "$1" /opt/venv/bin/pip install --no-index "/tmp/${2##*/}" &&
				rm "$1/tmp/${2##*/}"`,
			remove: `chroot "$1" /opt/venv/bin/pip uninstall --yes bringupd`,
			has:    []string{"zsh/site-functions/_bringupd", "doc/bringupd/CHANGELOG.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			root, file := debian(t), only(t, tc.pattern)
			command(t, "", "rpm", "--root", root, "--initdb")
			inside(t, root, "python3 -m venv /opt/venv")
			before := files(t, root)
			command(t, "", "sh", "-euc", tc.install, "sh", root, file)
			for _, path := range append(tc.has, "man/man1/bringupd.1.gz",
				"bash-completion/completions/bringupd", "fish/vendor_completions.d/bringupd.fish") {
				if _, err := os.Stat(filepath.Join(root, tc.prefix, "share", path)); err != nil {
					t.Error(err)
				}
			}

			command(t, "", "mkdir", root+"/tmp/work")
			command(t, "", "cp", "-r", repository+"/examples", root+"/tmp/work")
			command(t, "", "ln", "-s", "examples/hello.sh", root+"/tmp/work/app") // the reader's own program
			script := "set -eu; cd /tmp/work; PATH=" + tc.prefix + "/bin:$PATH\n" +
				strings.Join(append(jobs(t), "man bringupd"), "\n")
			out := inside(t, root, "chown nobody /tmp/work && su -s /bin/sh nobody -c '"+
				strings.ReplaceAll(script, "'", `'\''`)+"' && rm -r /tmp/work")
			for _, want := range []string{"hello from the driver on ", " node 0 of 4\n", "\nEXIT STATUS\n"} {
				if !strings.Contains(out, want) {
					t.Errorf("the README's jobs and man printed no %q:\n%s", want, out)
				}
			}

			command(t, "", "sh", "-euc", tc.remove, "sh", root)
			compareFiles(t, before, files(t, root))
		})
	}
}

// TestRpm checks that the .rpm requires only the C library, and that in a root with no other
// directories than all RPM-based systems have it is removed completely.
func TestRpm(t *testing.T) {
	root, rpm := t.TempDir(), only(t, "*.rpm")
	if out := command(t, "", "rpm", "-qp", "--requires",
		rpm); !regexp.MustCompile(`^libc\.so\.6\(GLIBC_[0-9.]+\)\(64bit\)\n$`).MatchString(out) {
		t.Errorf("it requires %s", out)
	}
	command(t, "", "rpm", "-K", rpm)
	command(t, "", "mkdir", "-p", root+"/usr/bin", root+"/usr/share/man/man1", root+"/usr/share/doc")
	command(t, "", "rpm", "--root", root, "--initdb")
	before := files(t, root)
	command(t, "", "rpm", "--root", root, "--nodeps", "--install", rpm) // no C library in root
	command(t, "", "rpm", "--root", root, "--erase", "bringupd")
	compareFiles(t, before, files(t, root))
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

// jobs returns the README's jobs on one machine, with the installed bringupd.
func jobs(t *testing.T) (all []string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^    (?:CGO_ENABLED=0 go run \./cmd/)?(bringupd local .*?)(?: +#.*)?$`)
	for _, match := range line.FindAllStringSubmatch(read(t, repository+"/README.md"), -1) {
		all = append(all, match[1])
	}
	if len(all) == 0 {
		t.Fatalf("cannot find the README's jobs: no line matches %s", line)
	}
	return all
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

// inside runs a shell script in the root, with /sys and in its own PID namespace, and returns its
// output.
func inside(t *testing.T, root, script string) string {
	t.Helper()
	return command(t, "", "unshare", "--mount", "--pid", "--fork", "--kill-child",
		"--mount-proc="+root+"/proc", "sh", "-euc",
		`mount --rbind /sys "$1/sys" && exec chroot "$1" /bin/sh -c "$2"`, "sh", root, script)
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

// files returns all paths below root, those of directories with a slash at the end. It omits man's
// index, which Debian updates after each change.
func files(t *testing.T, root string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		inner := strings.TrimPrefix(path, root)
		if err == nil && d.IsDir() {
			if inner == "/var/cache/man" || inner == "/proc" {
				return filepath.SkipDir
			}
			inner += "/"
		}
		all[inner] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ofPip matches directories of a virtual environment that pip leaves behind when they are empty.
var ofPip = regexp.MustCompile(`^(/opt/venv)?/share/([a-z-]+/)?$`)

// compareFiles checks that installing and removing a package has changed no path.
func compareFiles(t *testing.T, before, after map[string]bool) {
	t.Helper()
	for path := range after {
		if !before[path] && !ofPip.MatchString(path) {
			t.Errorf("left behind: %s", path)
		}
	}
	for path := range before {
		if !after[path] {
			t.Errorf("gone, and was not ours: %s", path)
		}
	}
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
