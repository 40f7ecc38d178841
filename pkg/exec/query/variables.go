package query

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// variablesTimeouts are the timeouts of the request for a node's variables.
var variablesTimeouts = exec.Timeouts{Accept: 10 * time.Second, AfterRun: time.Second, AfterCancel: time.Second, HeartbeatInterval: time.Second}

// ReadVariables returns the environment variables with one of the prefixes that the commands of
// "bringupd exec" have on a node, as NAME=VALUE.
func ReadVariables(ctx context.Context, dir *signal.Dir, job record.Job, node string, prefixes []string) (variables []string, err error) {
	var out bytes.Buffer
	request := exec.Request{Argv: []string{"env", "-0"}, Nodes: []string{node}}
	answers, err := exec.New(dir, job, request, peerlink.TCP{}, variablesTimeouts, &out, io.Discard).Execute(ctx, nil)
	for _, answer := range answers {
		if end := answer.Exit; err == nil && (end.Failed != "" || end.Code != 0) {
			err = errors.New(cmp.Or(end.Failed, end.Exit))
		}
	}
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(out.String(), "\x00") {
		isWanted := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
		if isWanted && !strings.HasPrefix(entry, process.MarkVariable+"=") { // the caller is no child of the daemon
			variables = append(variables, entry)
		}
	}
	return variables, nil
}
