package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/exec"
)

func TestExecConclude(t *testing.T) {
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
			"bringupd: n0: exit code 3\nbringupd: n1: exit code 7\nbringupd: n2: exit code 5\n"},
		{"a node is lost", []exec.Result{node(0, 0), lost}, nil, 76, "bringupd: n1: the node is lost\n"},
		{"the run was stopped, and the command with it", []exec.Result{node(0, 143)}, nil, 143,
			"bringupd: n0: exit code 143\n"},
		{"the run has ended, and one says nothing of it", []exec.Result{node(0, 1), silent}, exec.ErrRunOver, 76,
			"bringupd: n0: exit code 1\nbringupd: n2: no answer: the run has ended in the meantime\n"},
		{"the run has ended before anybody began", nil, exec.ErrRunOver, 76,
			"bringupd: cannot run the command: the run has ended in the meantime; check the run " +
				"with bringupd status; its bringupd may also be older than exec\n"},
		{"nobody has looked at it", nil, exec.ErrNoAnswer, 76,
			"bringupd: cannot run the command: the run's head does not respond; check the run " +
				"with bringupd status; its bringupd may also be older than exec\n"},
		{"who reads has gone", []exec.Result{silent}, unix.EPIPE, 141, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			errs := open(t, filepath.Join(t.TempDir(), "err"))
			e := &execCmd{invocation: &invocation{streams: config.Streams{Err: errs}}}
			if err := e.reportAnswers(tc.nodes, tc.err); err != nil || e.exitCode != tc.code ||
				content(t, errs.Name()) != tc.says {
				t.Errorf("it ends with %d, want %d, and %v; it says\n%s", e.exitCode, tc.code, err,
					content(t, errs.Name()))
			}
		})
	}
	e := &execCmd{invocation: &invocation{}}
	if err := e.reportAnswers(nil, fmt.Errorf("%w: no", exec.ErrRefused)); !config.IsUsageError(err) {
		t.Errorf("a refusal is %v", err)
	}
	odd := errors.New("odd")
	if err := e.reportAnswers(nil, odd); !errors.Is(err, odd) {
		t.Errorf("what is odd is %v", err)
	}
}
