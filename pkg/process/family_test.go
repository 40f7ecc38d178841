package process

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// table parses processes: number, parent, session, start, and the marks or a kind.
func table(t *testing.T, text string) (all []procStat) {
	t.Helper()
	for line := range strings.SplitSeq(text, "; ") {
		var p procStat
		if n, err := fmt.Sscan(line, &p.pid, &p.ppid, &p.sid, &p.start); n < 4 {
			t.Fatalf("%q: %v", line, err)
		}
		for _, word := range strings.Fields(line)[4:] {
			switch word {
			case "dead":
				p.dead = true
			case "kernel":
				p.kernel = true
			default:
				p.marks = append(p.marks, word)
			}
		}
		all = append(all, p)
	}
	return all
}

// TestFamily classifies the processes of a table. The child has PID 100, started at 1000, and its
// daemon has PID 50. In rows with "gone", the child was reaped at 2000.
func TestFamily(t *testing.T) {
	const daemon, child = "50 1 40 900; ", "100 50 100 1000; "
	for _, tc := range []struct {
		name, all string
		alive     []int
	}{
		{"the child", daemon + "100 50 100 1000", []int{100}},
		{"in its session, its parent gone", daemon + "101 1 100 1001", []int{101}},
		{"marked, in a session of its own, its parent gone", daemon + "101 1 101 1001 cafe.1", []int{101}},
		{"a descendant without mark in a session of its own", daemon + child + "101 100 101 1001; 102 101 101 1002",
			[]int{100, 101, 102}},
		{"listed before its parent", "12 101 12 1002; 101 100 101 1001; " + child + "50 1 40 900", []int{12, 101, 100}},
		{"an orphan without mark, its session's leader marked", daemon + "101 1 101 1001 cafe.1; 102 1 101 1002",
			[]int{101, 102}},
		{"an orphan without mark in a session whose leader has gone is unknown", daemon + "102 1 101 1002", nil},
		{"strangers", daemon + "1 0 1 0; 2 0 0 1 kernel; 300 1 300 1500", nil},
		{"the daemon's other child", daemon + child + "200 50 200 1100 cafe.2", []int{100}},
		{"a longer number is another child", daemon + "200 50 200 1100 cafe.12", nil},
		{"an inner daemon's child bears both marks", "200 1 200 1100 cafe.1 beef.1", []int{200}},
		{"the number given to another session", daemon + "100 1 100 5000; 101 100 100 5001", nil},
		{"the number given to another process", daemon + "100 77 70 5000; 101 1 100 1001", nil},
		{"gone: there when the leader ended", daemon + "101 1 100 2000", []int{101}},
		{"gone: in a session of that number, but later", daemon + "101 1 100 2001", nil},
		{"gone: later, but by one who was there", daemon + "101 1 100 1500; 102 101 100 3000", []int{101, 102}},
		{"gone: later, its leader there", daemon + child + "101 1 100 3000", []int{100, 101}},
		{"the parent's number given to a member later", child + "300 101 300 1001; 101 100 100 1002", []int{100, 101}},
		{"older than the child", "90 1 100 999; 91 1 91 999 cafe.1", nil},
		{"a zombie is dead, and a link", "100 50 100 1000 dead; 101 100 101 1001", []int{101}},
		{"ourselves", "60 50 60 1001 cafe.1", nil},
		{"all: a daemon's mark is that of its children",
			"200 1 200 1100 cafe.2; 201 1 201 1100 cafe.12", []int{200, 201}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := familySession{sid: 100, start: 1000}
			if strings.HasPrefix(tc.name, "gone: ") {
				root.lastOwned = 2000
			}
			c := familyCriteria{mark: "cafe.1", notBefore: 1000, sessions: []familySession{root}, ownPID: 60}
			if strings.HasPrefix(tc.name, "all: ") {
				c.mark, c.sessions = "cafe.", nil
			}
			var pids []int
			for _, p := range c.findMembers(table(t, tc.all)) {
				pids = append(pids, p.pid)
			}
			if diff := cmp.Diff(tc.alive, pids); diff != "" {
				t.Errorf("alive (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	const rest = " 1 2 3 0 -1 4194560 4 5 6 7 8 9 10 11 20 0 5 0 123456 1 2 3\n"
	plain := procStat{pid: 77, ppid: 1, pgid: 2, sid: 3, name: "sh", state: 'S', start: 123456, cpuTicks: 17,
		reapedCPUTicks: 21}
	with := func(change func(*procStat)) *procStat {
		p := plain
		change(&p)
		return &p
	}
	for _, tc := range []struct {
		name, text string
		want       *procStat // nil: an error
	}{
		{"plain", "77 (sh) S" + rest, &plain},
		{"brackets and blanks in the name", "77 (a) R (b)) S" + rest, with(func(p *procStat) { p.name = "a) R (b)" })},
		{"a zombie whose threads live", "77 (sh) Z" + rest, with(func(p *procStat) { p.state = 'Z' })},
		{"a zombie", "77 (sh) Z 1 2 3 0 -1 4194560 4 5 6 7 8 9 10 11 20 0 1 0 5",
			with(func(p *procStat) { p.state, p.dead, p.start = 'Z', true, 5 })},
		{"just being reaped", "77 (sh) X 0 -1 -1 0 -1 4194560 4 5 6 7 8 9 10 11 20 0 0 0 5",
			with(func(p *procStat) { p.ppid, p.pgid, p.sid, p.state, p.dead, p.start = 0, -1, -1, 'X', true, 5 })},
		{"a kernel thread", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2",
			&procStat{pid: 2, name: "kthreadd", state: 'S', kernel: true, start: 2}},
		{"empty", "", nil},
		{"short", "77 (sh) S 1 2 3", nil},
		{"no number", "77 (sh) S x" + rest, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseStat([]byte(tc.text))
			if (err != nil) != (tc.want == nil) {
				t.Fatalf("error %v", err)
			}
			if tc.want == nil {
				return
			}
			if diff := cmp.Diff(*tc.want, got, cmp.AllowUnexported(procStat{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithMark(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  []string
		want []string
	}{
		{"empty", nil, []string{"BRINGUPD_GUARD=cafe.1"}},
		{"in order", []string{"B=2", "A=1"}, []string{"B=2", "A=1", "BRINGUPD_GUARD=cafe.1"}},
		{"the last of a name counts", []string{"A=1", "B=2", "A=3"}, []string{"B=2", "A=3", "BRINGUPD_GUARD=cafe.1"}},
		{"what is no variable stays", []string{"A", "A=1", "A"}, []string{"A", "A=1", "A", "BRINGUPD_GUARD=cafe.1"}},
		{"an outer daemon's", []string{"BRINGUPD_GUARD=beef.7", "A=1"},
			[]string{"A=1", "BRINGUPD_GUARD=beef.7,cafe.1"}},
		{"in a job", []string{"SLURM_JOB_ID=17"}, []string{"SLURM_JOB_ID=17", "BRINGUPD_GUARD=cafe.1@SLURM_JOB_ID=17"}},
		{"in a job that can't be written", []string{"PBS_JOBID=1,2"},
			[]string{"PBS_JOBID=1,2", "BRINGUPD_GUARD=cafe.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			marked := exec.Cmd{Env: withMark(tc.env, "cafe.1", launcher.JobVariables())}
			if diff := cmp.Diff(tc.want, marked.Environ()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMarksIn(t *testing.T) {
	const inJob, inOther = "SLURM_JOB_ID=17\x00", "SLURM_JOB_ID=18\x00"
	for _, tc := range []struct {
		name, environ, limit string
		want                 []string
	}{
		{"none", "A=1\x00B=2\x00", "", nil},
		{"empty", "", "", nil},
		{"one", "A=1\x00BRINGUPD_GUARD=cafe.1\x00B=2\x00", "cafe.1", []string{"cafe.1"}},
		{"an outer one too", "BRINGUPD_GUARD=beef.7,cafe.1\x00", "", []string{"beef.7", "cafe.1"}},
		{"only as a whole name", "XBRINGUPD_GUARD=cafe.1\x00A=BRINGUPD_GUARD=cafe.1\x00", "", nil},
		{"of this job", inJob + "BRINGUPD_GUARD=cafe.1@SLURM_JOB_ID=17\x00", "", []string{"cafe.1"}},
		{"of another job", inOther + "BRINGUPD_GUARD=cafe.1@SLURM_JOB_ID=17\x00", "cafe.1", nil},
		{"the job scrubbed", "BRINGUPD_GUARD=cafe.1@SLURM_JOB_ID=17\x00", "", []string{"cafe.1"}},
		{
			"only the outer one is of this job", inOther +
				"BRINGUPD_GUARD=beef.7@SLURM_JOB_ID=18,cafe.1@SLURM_JOB_ID=17\x00",
			"", []string{"beef.7"},
		},
		{"the environment cleared", "", "cafe.1", []string{"cafe.1"}},
		{"the environment of another daemon's child", "BRINGUPD_GUARD=beef.7\x00", "cafe.1",
			[]string{"beef.7", "cafe.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, marksOf([]byte(tc.environ), tc.limit)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
