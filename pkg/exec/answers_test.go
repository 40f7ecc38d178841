package exec_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/exec"
)

func TestReportAnswers(t *testing.T) {
	node := func(nodeIndex, code int) exec.Result {
		exit := exec.Exit{Code: code, Exit: fmt.Sprintf("exit code %d", code)}
		return exec.Result{NodeIndex: nodeIndex, Host: fmt.Sprintf("n%d", nodeIndex), Answered: true, Exit: exit}
	}
	lost := node(1, 76)
	lost.Exit.Failed = "the node is lost"
	silent := exec.Result{NodeIndex: 2, Host: "n2"}
	for _, tc := range []struct {
		name  string
		nodes []exec.Result
		err   error
		code  int
		says  string
	}{
		{"all is well", []exec.Result{node(0, 0), node(1, 0)}, nil, 0, ""},
		{"the highest of several, which is not the last", []exec.Result{node(0, 3), node(1, 7), node(2, 5)}, nil, 7,
			"n0: exit code 3\nn1: exit code 7\nn2: exit code 5\n"},
		{"a node is lost", []exec.Result{node(0, 0), lost}, nil, 76, "n1: the node is lost\n"},
		{"the run was stopped, and the command with it", []exec.Result{node(0, 143)}, nil, 143,
			"n0: exit code 143\n"},
		{"the run has ended, and one says nothing of it", []exec.Result{node(0, 1), silent}, exec.ErrRunOver, 76,
			"n0: exit code 1\nn2: no answer: the run has ended in the meantime\n"},
		{"the run has ended before anybody began", nil, exec.ErrRunOver, 76,
			"cannot run the command: the run has ended in the meantime; check the run " +
				"with bringupd status; its bringupd may also be older than exec\n"},
		{"nobody has looked at it", nil, exec.ErrNoAnswer, 76,
			"cannot run the command: the run's head does not respond; check the run " +
				"with bringupd status; its bringupd may also be older than exec\n"},
		{"who reads has gone", []exec.Result{silent}, unix.EPIPE, 141, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said strings.Builder
			say := func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }
			if code, err := exec.ReportAnswers(tc.nodes, tc.err, say); err != nil || code != tc.code ||
				said.String() != tc.says {
				t.Errorf("it ends with %d, want %d, and %v; it says\n%s", code, tc.code, err, &said)
			}
		})
	}
	for _, odd := range []error{fmt.Errorf("%w: no", exec.ErrRefused), errors.New("odd")} {
		if _, err := exec.ReportAnswers(nil, odd, nil); !errors.Is(err, odd) {
			t.Errorf("%v becomes %v", odd, err)
		}
	}
}
