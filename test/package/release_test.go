//go:build packages

package packages

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSpellings checks how packaging/version.sh spells a version in each format.
func TestSpellings(t *testing.T) {
	for _, tt := range []struct{ number, commit, program, pack, wheel string }{
		{"0.1.0-dev", "0123456789ab", "0.1.0-dev+0123456789ab", "0.1.0~dev+git0123456789ab", "0.1.0.dev0"},
		{"0.1.0-dev", "01.dirty", "0.1.0-dev+01.dirty", "0.1.0~dev+git01.dirty", "0.1.0.dev0"},
		{"0.1.0-dev", "", "0.1.0-dev", "0.1.0~dev", "0.1.0.dev0"},
		{"0.1.0-rc1", "01", "0.1.0-rc1", "0.1.0~rc1", "0.1.0rc1"},
		{"0.1.0", "01", "0.1.0", "0.1.0", "0.1.0"},
		{"0.1.0", "01.dirty", "0.1.0+01.dirty", "0.1.0+git01.dirty", "0.1.0"},
	} {
		for format, want := range map[string]string{
			"program": tt.program, "package": tt.pack, "wheel": tt.wheel, "number": tt.number,
		} {
			got := command(t, repository, "env", "NUMBER="+tt.number, "COMMIT="+tt.commit,
				"sh", "packaging/version.sh", format)
			if got != want+"\n" {
				t.Errorf("%s %s is %q as %s: want %q", tt.number, tt.commit, got, format, want)
			}
		}
	}
}

// TestVersions checks that all packages say the version of the sources, each in its own spelling, and
// that the changelog has a heading for it.
func TestVersions(t *testing.T) {
	version := func(format string) string {
		return strings.TrimSpace(command(t, repository, "sh", "packaging/version.sh", format))
	}
	program, pack := version("program"), version("package")

	trees := unpackAll(t)
	modulefiles, err := os.ReadDir(trees["tarball"] + "/share/bringupd/modulefiles/bringupd")
	if err != nil || len(modulefiles) != 1 {
		t.Fatalf("%v: %d modulefiles: want 1", err, len(modulefiles))
	}
	wheel := filepath.Base(only(t, "*_x86_64.whl"))
	sbom := readSBOM(t, only(t, "*-static.cdx.json"))
	for what, v := range map[string][2]string{
		"the program":    {command(t, "", trees["tarball"]+"/bin/bringupd", "version"), "bringupd " + program + "\n"},
		"the .rpm's":     {command(t, trees["rpm"]+"/usr/bin", "./bringupd", "version"), "bringupd " + program + "\n"},
		"the static one": {command(t, "", trees["static"]+"/bin/bringupd", "version"), "bringupd " + program + "\n"},
		"the tarball": {filepath.Base(only(t, "*-static.tar.gz")),
			"bringupd-" + program + "-linux-amd64-static.tar.gz"},
		"the source":     {filepath.Base(only(t, "*-source.tar.gz")), "bringupd-" + program + "-source.tar.gz"},
		"the modulefile": {modulefiles[0].Name(), program},
		"the SBOM":       {sbom.Metadata.Component.Version, program},
		"the .deb":       {command(t, "", "dpkg-deb", "--field", only(t, "*.deb"), "Version"), pack + "\n"},
		"the .rpm": {command(t, "", "rpm", "-qp", "--queryformat=%{VERSION} %{LICENSE}", only(t, "*.rpm")),
			pack + " Apache-2.0"},
		"the wheel": {wheel[:strings.Index(wheel, "-py3")], "bringupd-" + version("wheel")},
	} {
		if v[0] != v[1] {
			t.Errorf("%s has %q: want %q", what, v[0], v[1])
		}
	}
	heading := regexp.MustCompile(`(?m)^## ` + regexp.QuoteMeta(version("number")) + `( \(.*\))?$`)
	if !heading.MatchString(read(t, repository+"/CHANGELOG.md")) {
		t.Errorf("CHANGELOG.md has no heading for %s", version("number"))
	}
}

// TestLicences checks that each package has the licences, the changelog and the manual page, and that
// each part of the SBOMs has a licence.
func TestLicences(t *testing.T) {
	for kind, root := range unpackAll(t) {
		share, licences := root+"/share", root+"/share/licenses/bringupd"
		third := "THIRD_PARTY_LICENSES"
		switch kind {
		case "deb":
			share = root + "/usr/share"
			licences, third = share+"/doc/bringupd", "copyright"
		case "rpm":
			share = root + "/usr/share"
			licences = share + "/licenses/bringupd"
		case "x86_64", "aarch64":
			share = glob(t, root+"/*.data/data/share")
			licences = glob(t, root+"/*.dist-info/licenses")
			metadata := read(t, glob(t, root+"/*.dist-info/METADATA"))
			if fields := regexp.MustCompile(`(?m)^License.*\n`).FindAllString(metadata, -1); strings.Join(fields, "") !=
				"License-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: NOTICE\n"+
					"License-File: THIRD_PARTY_LICENSES\n" {
				t.Errorf("%s: the metadata has %q", kind, fields)
			}
		}
		for installed, source := range map[string]string{
			licences + "/LICENSE": "LICENSE", licences + "/NOTICE": "NOTICE",
			licences + "/" + third: "THIRD_PARTY_LICENSES", share + "/doc/bringupd/CHANGELOG.md": "CHANGELOG.md",
		} {
			if read(t, installed) != read(t, filepath.Join(repository, source)) {
				t.Errorf("%s: %s differs from %s", kind, installed, source)
			}
		}
		read(t, share+"/man/man1/bringupd.1.gz")
	}
	for _, path := range []string{only(t, "*[0-9].cdx.json"), only(t, "*-static.cdx.json")} {
		sbom := readSBOM(t, path)
		for _, part := range append(sbom.Components, sbom.Metadata.Component) {
			if len(part.Licenses) != 1 || part.Licenses[0].Expression == "" {
				t.Errorf("%s: %s has the licences %+v: want 1", path, part.Name, part.Licenses)
			}
		}
	}
	marked := command(t, "", "rpm", "-qp", "--licensefiles", only(t, "*.rpm"))
	if want := "/usr/share/licenses/bringupd/LICENSE\n/usr/share/licenses/bringupd/NOTICE\n" +
		"/usr/share/licenses/bringupd/THIRD_PARTY_LICENSES\n"; marked != want {
		t.Errorf("the .rpm marks %q as licences: want %q", marked, want)
	}
}

// sbom is what the tests read of an SBOM.
type sbom struct {
	Metadata   struct{ Component sbomPart }
	Components []sbomPart
}

type sbomPart struct {
	Name, Version string
	Licenses      []struct{ Expression string }
}

func readSBOM(t *testing.T, path string) (s sbom) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, path)), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Components) == 0 {
		t.Fatalf("%s has no components", path)
	}
	return s
}

// unpackAll returns the folders with the content of each binary package.
func unpackAll(t *testing.T) map[string]string {
	t.Helper()
	trees := make(map[string]string)
	for _, kind := range []string{"tarball", "static", "deb", "rpm", "x86_64", "aarch64"} {
		trees[kind] = t.TempDir()
	}
	unpack(t, only(t, "*-linux-*[0-9].tar.gz"), trees["tarball"])
	unpack(t, only(t, "*-static.tar.gz"), trees["static"])
	command(t, "", "dpkg-deb", "--extract", only(t, "*.deb"), trees["deb"])
	command(t, "", "rpm", "--root", trees["rpm"], "--nodeps", "--install", only(t, "*.rpm"))
	for _, machine := range []string{"x86_64", "aarch64"} {
		command(t, "", "python3", "-m", "zipfile", "--extract", only(t, "*_"+machine+".whl"), trees[machine])
	}
	return trees
}

// glob returns the only path that matches the pattern.
func glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v: %d paths match %s: want 1", err, len(found), pattern)
	}
	return found[0]
}

// read returns the content of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
