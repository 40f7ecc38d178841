package runs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/users"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestSummarizeBlames counts users and runs. The runs of one user, however many, count less than
// those of two.
func TestSummarizeBlames(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 12, 1, 12, minute, 0, 0, time.UTC) }
	of := func(host, run string, user, minute int) runs.Blame {
		return runs.Blame{Host: host, Run: run, User: user, At: at(minute), Cause: run + " failed"}
	}
	all := []runs.Blame{
		of("n1", "/a/1.0", 7, 1), of("n1", "/a/2.0", 7, 5), of("n1", "/a/3.0", 7, 3), of("n1", "/a/3.0", 7, 3),
		of("n2", "/a/1.0", 7, 1), of("n2", "/b/1.0", 3, 2),
		of("n3", "/c/1.0", 9, 4), of("n4", "/c/1.0", 9, 4), of("n5", "/c/2.0", 9, 6),
		{Host: "n5", Run: "/c/3.0", User: 9, At: at(7)}, // of an unknown cause
	}
	n2 := runs.BadNode{Host: "n2", Runs: 2, Users: []int{3, 7}, LastAt: at(2), LastRun: "/b/1.0",
		LastCause: "/b/1.0 failed"}
	for _, tc := range []struct {
		name     string
		blames   []runs.Blame
		minUsers int
		want     []runs.BadNode
	}{
		{"nothing", nil, 1, []runs.BadNode{}},
		{"two users", all, 2, []runs.BadNode{n2}},
		{"all", all, 1, []runs.BadNode{n2,
			{Host: "n1", Runs: 3, Users: []int{7}, LastAt: at(5), LastRun: "/a/2.0", LastCause: "/a/2.0 failed"},
			{Host: "n5", Runs: 2, Users: []int{9}, LastAt: at(7), LastRun: "/c/3.0", LastCause: "/c/2.0 failed"},
			{Host: "n3", Runs: 1, Users: []int{9}, LastAt: at(4), LastRun: "/c/1.0", LastCause: "/c/1.0 failed"},
			{Host: "n4", Runs: 1, Users: []int{9}, LastAt: at(4), LastRun: "/c/1.0", LastCause: "/c/1.0 failed"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, runs.SummarizeBlames(tc.blames, tc.minUsers)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// site is a directory with the log directories of users.
type site struct {
	t   *testing.T
	dir string
	now time.Time
}

func newSite(t *testing.T) site {
	t.Helper()
	return site{t, t.TempDir(), time.Now().Truncate(time.Second)}
}

func (s site) must(errs ...error) {
	s.t.Helper()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// path returns a path below a user's log directory, which it creates.
func (s site) path(user string, below ...string) string {
	path := filepath.Join(append([]string{s.dir, user, "bringupd-logs"}, below...)...)
	s.must(os.MkdirAll(filepath.Dir(path), 0o700))
	return path
}

// write writes a file that was changed the given time ago, as were the directory of a run.
func (s site) write(path, text string, ago time.Duration) {
	s.t.Helper()
	at := s.now.Add(-ago)
	s.must(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600),
		os.Chtimes(path, at, at), os.Chtimes(filepath.Dir(path), at, at))
}

// result writes the result of a run.
func (s site) result(user, run string, ago time.Duration, result record.Result) {
	s.t.Helper()
	result.Version = record.ResultVersion
	text, err := json.Marshal(result)
	s.must(err)
	s.write(s.path(user, run, signal.NameResult), string(text), ago)
}

// owned makes everything of a user's the user's.
func (s site) owned(user string, id uint32) {
	s.t.Helper()
	s.must(filepath.WalkDir(filepath.Join(s.dir, user), func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(id), int(id)))
	}))
}

// read reads the log directories of the users.
func (s site) read(query runs.BlameQuery, of ...string) (runs.BadNodes, error) {
	var dirs []string
	for _, user := range of {
		dirs = append(dirs, filepath.Join(s.dir, user, "bringupd-logs"))
	}
	return runs.ReadBadNodes(s.t.Context(), dirs, query)
}

// TestReadBadNodes reads the runs of two users, and compares all that is printed with a golden file.
// The directory of one is given twice. A list beside a run counts if it has no result.
func TestReadBadNodes(t *testing.T) {
	users.Need(t)
	s := newSite(t)
	s.result("ada", "7.0", 2*time.Hour, record.Result{Reason: "node 1 (n1): Xid 79 of GPU 3\n\x1b[31mred",
		BadNodes: []string{"n1"}})
	s.write(s.path("ada", signal.BadNodesDir, "7.0"), "n1\n", 2*time.Hour)
	s.result("ada", "8.0", time.Hour, record.Result{Reason: "lost node 2 (n2)", BadNodes: []string{"n2", "n12"},
		NodeLists: record.NodeLists{Dropped: []record.DroppedNode{{Host: "n12", Reason: "gpu.count: 7 of 8"}}}})
	s.result("ada", "9.0", 50*time.Hour, record.Result{Reason: "old", BadNodes: []string{"n2"}})
	s.result("ada", "10.0", time.Minute, record.Result{Outcome: "ok"})
	s.write(s.path("bob", signal.BadNodesDir, "20.0"), "n1\nn3.site\n", 10*time.Minute)
	s.must(os.MkdirAll(s.path("bob", "21.0", signal.ControlDir), 0o700)) // it runs
	s.owned("ada", users.Job.ID)
	s.owned("bob", users.Stranger.ID)
	var out bytes.Buffer
	for _, query := range []runs.BlameQuery{{MinUsers: 1}, {MinUsers: 1, MaxAge: 24 * time.Hour}, {MinUsers: 2}} {
		found, err := s.read(query, "ada", "bob", "ada")
		s.must(err)
		fmt.Fprintf(&out, "least number of users %d, since %s, directories %d, problems %q:\n%s\n%s\n\n",
			query.MinUsers, query.MaxAge, found.Directories, found.Problems, found.Text(s.now), found.HostList())
		if query.MinUsers == 2 {
			found.Nodes[0].LastAt = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
			text, err := json.MarshalIndent(found, "", "  ")
			s.must(err)
			out.Write(bytes.ReplaceAll(text, []byte(s.dir), nil))
		}
	}
	golden := filepath.Join("testdata", "badnodes.txt")
	if *update {
		s.must(os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	s.must(err)
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestHostileLogDirectories verifies that users can blame nodes only in their own name, and only
// hosts, and that nothing else in their directories has an effect.
func TestHostileLogDirectories(t *testing.T) {
	users.Need(t)
	blaming := func(hosts ...string) record.Result { return record.Result{Reason: "why", BadNodes: hosts} }
	for _, tc := range []struct {
		name  string
		plant func(s site, logs string) // in the stranger's log directory
		// nodes are those that the stranger's directory adds to the victim's n1, with the number of users.
		nodes    string
		problems int
	}{
		{"nothing", func(site, string) {}, "n1:1", 0},
		{"a run of their own", func(s site, _ string) { s.result("mallory", "1.0", 0, blaming("n1")) }, "n1:2", 0},
		{"a link to a run", func(s site, logs string) {
			s.must(os.Symlink(s.path("ada", "7.0"), filepath.Join(logs, "7.0")))
		}, "n1:1", 0},
		{"a link to a result", func(s site, logs string) {
			s.must(os.Mkdir(filepath.Join(logs, "7.0"), 0o700),
				os.Symlink(s.path("ada", "7.0", signal.NameResult), filepath.Join(logs, "7.0", signal.NameResult)))
		}, "n1:1", 1},
		{"a hard link to a list", func(s site, logs string) {
			s.must(os.Mkdir(filepath.Join(logs, signal.BadNodesDir), 0o700),
				os.Link(s.path("ada", "7.0", signal.NameResult), filepath.Join(logs, signal.BadNodesDir, "8.0")))
		}, "n1:1", 1},
		{"a link to the lists", func(s site, logs string) {
			s.must(os.Symlink(s.path("ada", signal.BadNodesDir), filepath.Join(logs, signal.BadNodesDir)))
		}, "n1:1", 1},
		{"pipes", func(s site, logs string) {
			s.must(os.MkdirAll(filepath.Join(logs, "7.0"), 0o700), syscall.Mkfifo(filepath.Join(logs, "8.0"), 0o600),
				syscall.Mkfifo(filepath.Join(logs, "7.0", signal.NameResult), 0o600),
				syscall.Mkfifo(filepath.Join(logs, signal.BadNodesDir), 0o600))
		}, "n1:1", 1},
		{"a huge result", func(s site, logs string) {
			s.result("mallory", "7.0", 0, blaming("n2"))
			s.must(os.Truncate(filepath.Join(logs, "7.0", signal.NameResult), 1<<40))
		}, "n1:1", 1},
		{"no JSON", func(s site, logs string) {
			s.write(filepath.Join(logs, "7.0", signal.NameResult), strings.Repeat("[", 1<<20), 0)
		}, "n1:1", 1},
		{"another format", func(s site, logs string) {
			s.write(filepath.Join(logs, "7.0", signal.NameResult), `{"v":99,"bad_nodes":["n2"]}`, 0)
		}, "n1:1", 1},
		{"words that are no hosts", func(s site, _ string) {
			s.result("mallory", "7.0", 0, blaming("ALL", "n[1-9]", "n2,n3", "-n4", "n5;reboot", "n\x1b[31m6",
				"", "None", strings.Repeat("n", 254), "n7"))
		}, "n7:1 n1:1", 1},
		{"many nodes", func(s site, _ string) {
			hosts := make([]string, 12_000)
			for i := range hosts {
				hosts[i] = fmt.Sprintf("x%05d", i)
			}
			s.result("mallory", "7.0", 0, blaming(hosts...))
		}, "n1:1 and 10000 more", 1},
		{"as many nodes as are read", func(s site, _ string) {
			hosts := make([]string, 10_000)
			for i := range hosts {
				hosts[i] = fmt.Sprintf("x%05d", i)
			}
			s.result("mallory", "7.0", 0, blaming(hosts...))
		}, "n1:1 and 10000 more", 0},
		{"a huge run directory", func(s site, logs string) {
			for i := range 2000 {
				s.write(filepath.Join(logs, "7.0", fmt.Sprintf("x%d", i)), "", 0)
			}
		}, "n1:1", 0},
		{"a run that is another's", func(s site, _ string) { // as in a directory of a group
			s.result("mallory", "7.0", 0, blaming("n2"))
			s.must(os.Chown(s.path("mallory", "7.0"), 0, 0))
		}, "n1:1", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			s.result("ada", "7.0", time.Hour, blaming("n1"))
			s.write(s.path("ada", signal.BadNodesDir, "7.0"), "n1\n", time.Hour)
			s.owned("ada", users.Job.ID)
			logs := s.path("mallory")
			s.must(os.Mkdir(logs, 0o700))
			if tc.name != "a run that is another's" {
				tc.plant(s, logs)
			}
			s.owned("mallory", users.Stranger.ID)
			if tc.name == "a run that is another's" {
				tc.plant(s, logs)
				s.must(os.Chown(s.path("mallory", "7.0", signal.NameResult), int(users.Stranger.ID), 0))
			}
			// The owner of a hard link is that of the file.
			s.owned("ada", users.Job.ID)
			found, err := s.read(runs.BlameQuery{MinUsers: 1}, "ada", "mallory")
			s.must(err)
			var nodes []string
			for _, n := range found.Nodes {
				if n.Host[0] == 'n' {
					nodes = append(nodes, fmt.Sprintf("%s:%d", n.Host, len(n.Users)))
				}
			}
			got := strings.Join(nodes, " ")
			if more := len(found.Nodes) - len(nodes); more > 0 {
				got += fmt.Sprintf(" and %d more", more)
			}
			if got != tc.nodes || len(found.Problems) != tc.problems || found.Directories != 2 {
				t.Errorf("the nodes are %s, want %s; problems %q, want %d", got, tc.nodes, found.Problems, tc.problems)
			}
		})
	}
}

// TestUnreadableLogDirectories verifies that directories that cannot be read do not stop the others,
// and that one of them must be read.
func TestUnreadableLogDirectories(t *testing.T) {
	s := newSite(t)
	s.result("ada", "7.0", time.Hour, record.Result{BadNodes: []string{"n1"}})
	s.must(os.Mkdir(filepath.Join(s.dir, "link"), 0o700), os.Symlink(s.path("ada"), s.path("link")),
		os.Mkdir(filepath.Join(s.dir, "pipe"), 0o700), syscall.Mkfifo(s.path("pipe"), 0o600))
	found, err := s.read(runs.BlameQuery{MinUsers: 1}, "link", "pipe", "none", "ada")
	if err != nil || found.Directories != 1 || len(found.Problems) != 3 || found.HostList() != "n1" {
		t.Errorf("found %+v: %v", found, err)
	}
	// A slash at the end would make the kernel follow the link.
	found, err = runs.ReadBadNodes(t.Context(), []string{s.path("link") + "/"}, runs.BlameQuery{MinUsers: 1})
	if _, is := errors.AsType[*signal.DirError](err); !is || found.Directories != 0 {
		t.Errorf("found %+v: %v", found, err)
	}
}
