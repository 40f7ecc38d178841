package process

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// TestFamily classifies the processes of a table. The child has PID 100, started at 1000, and its
// daemon has PID 50.
func TestFamily(t *testing.T) {
	const mark = "cafe.1"
	ours := familySession{sid: 100, start: 1000}
	gone := familySession{sid: 100, start: 1000, lastOwned: 2000}
	daemon := procStat{pid: 50, ppid: 1, sid: 40, start: 900}
	child := procStat{pid: 100, ppid: 50, sid: 100, start: 1000}
	for _, tc := range []struct {
		name  string
		root  familySession
		mark  string
		all   []procStat
		alive []int
	}{
		{"the child", ours, mark, []procStat{daemon, child}, []int{100}},
		{"in its session, its parent gone", ours, mark,
			[]procStat{daemon, {pid: 101, ppid: 1, sid: 100, start: 1001}}, []int{101}},
		{"marked, in a session of its own, its parent gone", ours, mark,
			[]procStat{daemon, {pid: 101, ppid: 1, sid: 101, start: 1001, marks: []string{mark}}}, []int{101}},
		{"a descendant without mark in a session of its own", ours, mark,
			[]procStat{daemon, child, {pid: 101, ppid: 100, sid: 101, start: 1001}, {pid: 102, ppid: 101, sid: 101, start: 1002}},
			[]int{100, 101, 102}},
		{"listed before its parent", ours, mark,
			[]procStat{{pid: 12, ppid: 101, sid: 12, start: 1002}, {pid: 101, ppid: 100, sid: 101, start: 1001}, child, daemon},
			[]int{12, 101, 100}},
		{"an orphan without mark, its session's leader marked", ours, mark,
			[]procStat{daemon, {pid: 101, ppid: 1, sid: 101, start: 1001, marks: []string{mark}}, {pid: 102, ppid: 1, sid: 101, start: 1002}},
			[]int{101, 102}},
		{"an orphan without mark in a session whose leader has gone is unknown", ours, mark,
			[]procStat{daemon, {pid: 102, ppid: 1, sid: 101, start: 1002}}, nil},
		{"strangers", ours, mark,
			[]procStat{daemon, {pid: 1, sid: 1}, {pid: 2, kernel: true, sid: 0, start: 1}, {pid: 300, ppid: 1, sid: 300, start: 1500}}, nil},
		{"the daemon's other child", ours, mark,
			[]procStat{daemon, child, {pid: 200, ppid: 50, sid: 200, start: 1100, marks: []string{"cafe.2"}}}, []int{100}},
		{"a longer number is another child", ours, mark,
			[]procStat{daemon, {pid: 200, ppid: 50, sid: 200, start: 1100, marks: []string{"cafe.12"}}}, nil},
		{"a daemon's mark is that of all its children", familySession{}, "cafe.",
			[]procStat{{pid: 200, ppid: 1, sid: 200, start: 1100, marks: []string{"cafe.2"}}, {pid: 201, ppid: 1, sid: 201, start: 1100, marks: []string{"cafe.12"}}},
			[]int{200, 201}},
		{"an inner daemon's child bears both marks", ours, mark,
			[]procStat{{pid: 200, ppid: 1, sid: 200, start: 1100, marks: []string{mark, "beef.1"}}}, []int{200}},
		{"the number given to another session", ours, mark,
			[]procStat{daemon, {pid: 100, ppid: 1, sid: 100, start: 5000}, {pid: 101, ppid: 100, sid: 100, start: 5001}}, nil},
		{"the number given to another process", ours, mark,
			[]procStat{daemon, {pid: 100, ppid: 77, sid: 70, start: 5000}, {pid: 101, ppid: 1, sid: 100, start: 1001}}, nil},
		{"there when the leader ended", gone, mark,
			[]procStat{daemon, {pid: 101, ppid: 1, sid: 100, start: 2000}}, []int{101}},
		{"in a session of that number, but later", gone, mark,
			[]procStat{daemon, {pid: 101, ppid: 1, sid: 100, start: 2001}}, nil},
		{"later, but by one who was there", gone, mark,
			[]procStat{daemon, {pid: 101, ppid: 1, sid: 100, start: 1500}, {pid: 102, ppid: 101, sid: 100, start: 3000}}, []int{101, 102}},
		{"the parent's number given to a member later", ours, mark,
			[]procStat{child, {pid: 300, ppid: 101, sid: 300, start: 1001}, {pid: 101, ppid: 100, sid: 100, start: 1002}}, []int{100, 101}},
		{"older than the child", ours, mark,
			[]procStat{{pid: 90, ppid: 1, sid: 100, start: 999}, {pid: 91, ppid: 1, sid: 91, start: 999, marks: []string{mark}}}, nil},
		{"a zombie is dead, and a link", ours, mark,
			[]procStat{{pid: 100, ppid: 50, sid: 100, start: 1000, dead: true}, {pid: 101, ppid: 100, sid: 101, start: 1001}}, []int{101}},
		{"later, its leader there", familySession{sid: 100, start: 1000, lastOwned: 2000}, mark,
			[]procStat{daemon, child, {pid: 101, ppid: 1, sid: 100, start: 3000}}, []int{100, 101}},
		{"ourselves", ours, mark, []procStat{{pid: 60, ppid: 50, sid: 60, start: 1001, marks: []string{mark}}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := familyCriteria{mark: tc.mark, notBefore: 1000, sessions: []familySession{tc.root}, ownPID: 60}
			var pids []int
			for _, p := range c.findMembers(tc.all) {
				pids = append(pids, p.pid)
			}
			if diff := cmp.Diff(tc.alive, pids); diff != "" {
				t.Errorf("alive (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	rest := " 1 2 3 0 -1 4194560 4 5 6 7 8 9 10 11 20 0 5 0 123456 1 2 3\n"
	for _, tc := range []struct {
		name string
		text string
		want procStat
		bad  bool
	}{
		{"plain", "77 (sh) S" + rest, procStat{pid: 77, ppid: 1, pgid: 2, sid: 3, name: "sh", state: 'S', start: 123456, cpuTicks: 17, reapedCPUTicks: 21}, false},
		{"brackets and blanks in the name", "77 (a) R (b)) S" + rest,
			procStat{pid: 77, ppid: 1, pgid: 2, sid: 3, name: "a) R (b)", state: 'S', start: 123456, cpuTicks: 17, reapedCPUTicks: 21}, false},
		{"a zombie whose threads live", "77 (sh) Z" + rest, procStat{pid: 77, ppid: 1, pgid: 2, sid: 3, name: "sh", state: 'Z', start: 123456, cpuTicks: 17, reapedCPUTicks: 21}, false},
		{"a zombie", "77 (sh) Z 1 2 3 0 -1 4194560 4 5 6 7 8 9 10 11 20 0 1 0 5",
			procStat{pid: 77, ppid: 1, pgid: 2, sid: 3, name: "sh", state: 'Z', dead: true, start: 5, cpuTicks: 17, reapedCPUTicks: 21}, false},
		{"just being reaped", "77 (sh) X 0 -1 -1 0 -1 4194560 4 5 6 7 8 9 10 11 20 0 0 0 5",
			procStat{pid: 77, ppid: 0, pgid: -1, sid: -1, name: "sh", state: 'X', dead: true, start: 5, cpuTicks: 17, reapedCPUTicks: 21}, false},
		{"a kernel thread", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2",
			procStat{pid: 2, name: "kthreadd", state: 'S', kernel: true, start: 2}, false},
		{"empty", "", procStat{}, true},
		{"short", "77 (sh) S 1 2 3", procStat{}, true},
		{"no number", "77 (sh) S x" + rest, procStat{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseStat([]byte(tc.text))
			if (err != nil) != tc.bad {
				t.Fatalf("error %v, want one: %v", err, tc.bad)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(procStat{})); diff != "" {
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
		{"an outer daemon's", []string{"BRINGUPD_GUARD=beef.7", "A=1"}, []string{"A=1", "BRINGUPD_GUARD=beef.7,cafe.1"}},
		{"in a job", []string{"SLURM_JOB_ID=17"}, []string{"SLURM_JOB_ID=17", "BRINGUPD_GUARD=cafe.1@SLURM_JOB_ID=17"}},
		{"in a job that can't be written", []string{"PBS_JOBID=1,2"}, []string{"PBS_JOBID=1,2", "BRINGUPD_GUARD=cafe.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, (&exec.Cmd{Env: withMark(tc.env, "cafe.1", launcher.JobVariables())}).Environ()); diff != "" {
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
			"only the outer one is of this job", inOther + "BRINGUPD_GUARD=beef.7@SLURM_JOB_ID=18,cafe.1@SLURM_JOB_ID=17\x00",
			"", []string{"beef.7"},
		},
		{"the environment cleared", "", "cafe.1", []string{"cafe.1"}},
		{"the environment of another daemon's child", "BRINGUPD_GUARD=beef.7\x00", "cafe.1", []string{"beef.7", "cafe.1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, marksOf([]byte(tc.environ), tc.limit)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
