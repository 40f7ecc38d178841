package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/test/users"
)

// siteFile returns the path of a site's file with this text, which belongs to root alone.
func siteFile(t *testing.T, text string) string {
	t.Helper()
	users.Need(t)
	path := filepath.Join(t.TempDir(), "bringupd.yaml")
	for _, err := range []error{os.Chmod(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// job has the values of some settings of a job.
type job struct {
	peer                                   time.Duration
	checks                                 []string
	framework, auth, gpuCheck, logDir, cmd string
	gpus                                   int
}

func (j *job) settings() config.List {
	return config.List{
		config.NewDuration("peer-timeout", &j.peer, ""),
		config.NewWordList("check", "ID=WORD", &j.checks, ""),
		config.NewText("framework", "WORD", &j.framework, ""),
		config.NewChoice("framework-auth", []string{"auto", "own", "off"}, &j.auth, ""),
		config.NewText("gpu-check", "WORD", &j.gpuCheck, ""),
		config.NewNumber("gpus-per-node", &j.gpus, 0, 8, ""),
		config.NewText("log-dir", "DIR", &j.logDir, ""),
		config.NewText("setup-cmd", "COMMAND", &j.cmd, ""),
	}
}

// given is a value from a source other than the site's file.
type given struct {
	from   config.Source
	line   string
	name   string
	values []string
}

// resolve applies the values of all sources, in the order in which a program reads them.
func (j *job) resolve(t *testing.T, path string, others ...given) (config.List, error) {
	t.Helper()
	all := j.settings()
	for _, one := range others {
		all.FindSetting(one.name).OfferValues(one.from, one.line, one.values...)
	}
	err := all.OfferSite(path)
	for _, s := range all {
		if err == nil {
			err = s.ApplyValues()
		}
	}
	return all, err
}

// origin returns the source of a setting as --dry-run shows it.
func origin(all config.List, name string) string {
	top := all.Document("", nil)
	at := slices.IndexFunc(top.Content, func(node *yaml.Node) bool { return node.Value == name })
	return top.Content[at+1].LineComment
}

// TestSitePrecedence verifies the order of the five sources of a value, that an empty first value of a
// list drops those of the site, and that a run records values of the site like all others.
func TestSitePrecedence(t *testing.T) {
	path := siteFile(t, "peer-timeout: 2s\ncheck: [a=off, b=off]\n")
	flag, variable, file := config.SourceFlag, config.SourceVariable, config.SourceFile
	for name, tc := range map[string]struct {
		path   string
		others []given
		peer   time.Duration
		checks []string
		from   [2]string // of both
	}{
		"default": {path: path + ".none", peer: time.Second, from: [2]string{"default", "default"}},
		"site": {path: path, peer: 2 * time.Second, checks: []string{"a=off", "b=off"},
			from: [2]string{path + ":1", path + ":2"}},
		"file": {path: path, others: []given{{file, "job.yaml:1", "peer-timeout", []string{"3s"}},
			{file, "job.yaml:2", "check", []string{"b=fail"}}},
			peer: 3 * time.Second, checks: []string{"a=off", "b=off", "b=fail"},
			from: [2]string{"job.yaml:1", path + ":2, job.yaml:2"}},
		"variable": {path: path, others: []given{{variable, "", "peer-timeout", []string{"4s"}},
			{file, "job.yaml:1", "peer-timeout", []string{"3s"}}, {variable, "", "check", []string{"c=off"}}},
			peer: 4 * time.Second, checks: []string{"a=off", "b=off", "c=off"},
			from: [2]string{"BRINGUPD_PEER_TIMEOUT", path + ":2, BRINGUPD_CHECK"}},
		"flag": {path: path, others: []given{{flag, "", "peer-timeout", []string{"5s"}},
			{variable, "", "peer-timeout", []string{"4s"}}, {flag, "", "check", []string{"", "c=off"}}},
			peer: 5 * time.Second, checks: []string{"c=off"}, from: [2]string{"--peer-timeout", "--check"}},
		"no site, and its values dropped": {path: path + ".none", peer: time.Second,
			others: []given{{flag, "", "check", []string{""}}}, from: [2]string{"default", "--check"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := job{peer: time.Second}
			all, err := j.resolve(t, tc.path, tc.others...)
			from := [2]string{origin(all, "peer-timeout"), origin(all, "check")}
			if err != nil || j.peer != tc.peer || !slices.Equal(j.checks, tc.checks) || from != tc.from {
				t.Errorf("got %v, %v of %q, %v", j.peer, j.checks, from, err)
			}
		})
	}
	all, err := new(job).resolve(t, path)
	flags := all.GivenFlags(new(job).settings())
	want := []string{"--peer-timeout=2s", "--check=a=off", "--check=b=off"}
	if err != nil || !slices.Equal(flags, want) {
		t.Errorf("a run records %q, %v", flags, err)
	}
}

// TestSiteOfOtherJobs verifies that a default which is not for this job is not used, and that it
// never counts as given for it.
func TestSiteOfOtherJobs(t *testing.T) {
	t.Setenv("USER", "alice")
	t.Setenv("UNSET", "")
	started := job{auth: "auto", gpuCheck: "auto", gpus: -1}
	gpus := given{config.SourceFlag, "", "gpus-per-node", []string{"0"}}
	for text, tc := range map[string]struct {
		others []given
		want   job
	}{
		"gpu-check: require":  {nil, job{auth: "auto", gpuCheck: "require", gpus: -1}},
		"gpu-check: strict":   {[]given{gpus}, job{auth: "auto", gpuCheck: "auto"}},
		"gpu-check: off":      {[]given{gpus}, job{auth: "auto", gpuCheck: "off"}},
		"framework-auth: own": {nil, job{auth: "own", gpuCheck: "auto", gpus: -1}},
		"log-dir: /s/${USER}/x": {
			nil, job{auth: "auto", gpuCheck: "auto", gpus: -1, logDir: "/s/alice/x"}},
		"log-dir: /s/$UNSET/x":               {nil, started},
		"lifeline: off":                      {nil, started}, // a setting of other subcommands
		"peer-timeout:\nx-note: any\n# none": {nil, started},
		"framework-auth: own\ngpu-check: off": {
			[]given{{config.SourceVariable, "", "framework", []string{"dask"}}},
			job{auth: "auto", gpuCheck: "off", gpus: -1, framework: "dask"}},
	} {
		j := started
		all, err := j.resolve(t, siteFile(t, text), tc.others...)
		if err != nil || !reflect.DeepEqual(j, tc.want) {
			t.Errorf("%s: %v, %+v", text, err, j)
		}
		for _, s := range all {
			if s.Source == config.SourceSite && s.IsGivenForJob() {
				t.Errorf("%s: %s is given for the job", text, s.Name)
			}
		}
	}
}

// TestSiteRefused verifies that a file which cannot be used ends the program with a usage error that
// names it, which every node reports itself.
func TestSiteRefused(t *testing.T) {
	for text, line := range map[string]string{
		"framework: ray":               ":1",
		"driver: [a]":                  ":1",
		"roles: [{name: a}]":           ":1",
		"# job\nsetup-cmd: a":          ":2",
		"chekc: a":                     ":1",
		"peer-timeout: soon":           ":1",
		"check: [a=off]\ncheck: a=off": ":2",
		"peer-timeout: [1s, 2s]":       ":1",
		"log-dir: a: b":                ":1",
		"- a":                          ":1",
	} {
		path := siteFile(t, text)
		_, err := new(job).resolve(t, path)
		if !config.IsUsageError(err) || config.IsSameUsageError(err) ||
			!strings.HasPrefix(err.Error(), "cannot ") || !strings.Contains(err.Error(), path+line) {
			t.Errorf("%s: %v", text, err)
		}
	}
	path := siteFile(t, "peer-timeout: 2s\n")
	if err := os.Chown(path, int(users.Stranger.ID), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := new(job).resolve(t, path); !config.IsUsageError(err) || config.IsSameUsageError(err) {
		t.Errorf("a file of another user: %v", err)
	}
	// Nothing in it can count for these settings.
	all := new(job).settings()[:1]
	all[0].OfferValues(config.SourceFlag, "", "1s")
	if err := all.OfferSite(path); err != nil {
		t.Error(err)
	}
}

// TestNameSources verifies that an error which names a flag also names the site's line that sets it.
func TestNameSources(t *testing.T) {
	path := siteFile(t, "gpu-check: require\npeer-timeout: 2s\n")
	all, err := new(job).resolve(t, path, given{config.SourceVariable, "", "framework", []string{"ray"}})
	if err != nil {
		t.Fatal(err)
	}
	for problem, want := range map[string]string{
		"cannot use --peer-timeout": path + ":2", "cannot use --framework=ray": "BRINGUPD_FRAMEWORK", "cannot": "",
	} {
		err := all.NameSources(config.UsageErrorf("%s", problem))
		if rest, has := strings.CutPrefix(err.Error(), problem); !has || !strings.Contains(rest, want) ||
			(rest == "") != (want == "") || config.IsSameUsageError(err) == (want == path+":2") {
			t.Errorf("%s: %v", problem, err)
		}
	}
}
