package exec

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var snapshotTimeouts = Timeouts{Accept: 10 * time.Second, AfterRun: 2 * time.Second, AfterCancel: 2 * time.Second}

type nodeText struct {
	Result
	text    bytes.Buffer // the standard output
	problem string       // why the answer is missing or incomplete; empty if it is not
}

// askNodes runs a request on nodes of a run, and returns their answers. It returns an error if no
// node answers.
func askNodes(ctx context.Context, again <-chan struct{}, dir *signal.Dir, job record.Job,
	request Request) ([]*nodeText, error) {
	texts := make(map[int]*nodeText)
	client := New(dir, job, request, peerlink.TCP{}, snapshotTimeouts, io.Discard, io.Discard)
	client.nodeWriter = func(node int) io.Writer {
		texts[node] = new(nodeText)
		return &texts[node].text
	}
	results, err := client.Execute(ctx, again)
	if len(results) == 0 || errors.Is(err, ErrRefused) {
		return nil, cmp.Or(err, errors.New("no node has answered"))
	}
	var answers []*nodeText
	for _, result := range results {
		answer := texts[result.NodeIndex]
		answer.Result = result
		switch end := result.Exit; {
		case !result.Answered:
			answer.problem = fmt.Sprint(err)
		case end.Code != 0:
			answer.problem = cmp.Or(end.Failed, end.Exit)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// CollectSnapshot runs a command on the nodes of a run that prints [stackdump.ChildReport]s as JSON
// lines, and combines them. Nodes that do not answer before ctx ends are listed as unreachable.
// When again is closed, CollectSnapshot no longer waits. It returns an error if no node answers, and
// [ErrRefused] if the request is wrong.
func CollectSnapshot(ctx context.Context, again <-chan struct{}, dir *signal.Dir, job record.Job,
	request Request) (snapshot stackdump.RunSnapshot, err error) {
	answers, err := askNodes(ctx, again, dir, job, request)
	if err != nil {
		return snapshot, err
	}
	var seen []stackdump.ChildReport
	var silent []stackdump.UnreachableNode
	nodes := make(map[int]bool)
	for _, answer := range answers {
		index := record.NodeOfMember(answer.NodeIndex, job.Size)
		nodes[index] = true
		if answer.problem != "" {
			silent = append(silent, stackdump.UnreachableNode{Node: index, Host: answer.Host, Reason: answer.problem})
		}
		for line := range bytes.Lines(answer.text.Bytes()) {
			var one stackdump.ChildReport
			if json.Unmarshal(line, &one) == nil { // a truncated answer is that of a silent node
				one.Node, one.Member, one.Host = index, answer.NodeIndex, answer.Host
				seen = append(seen, one)
			}
		}
	}
	return stackdump.NewRunSnapshot(dir.Name(), len(nodes), seen, silent), nil
}
