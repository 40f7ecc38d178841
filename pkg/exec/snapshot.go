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

// snapshotTimeouts are the timeouts of the request for a snapshot.
var snapshotTimeouts = Timeouts{Accept: 10 * time.Second, AfterRun: 2 * time.Second,
	AfterCancel: 2 * time.Second, HeartbeatInterval: time.Second}

// CollectSnapshot runs a command on the nodes of a run that prints [stackdump.ChildReport]s as JSON
// lines, and combines them. Nodes that do not answer before ctx ends are listed as unreachable.
// When again is closed, CollectSnapshot no longer waits. It returns an error if no node answers, and
// [ErrRefused] if the request is wrong.
func CollectSnapshot(ctx context.Context, again <-chan struct{}, dir *signal.Dir, job record.Job,
	request Request) (snapshot stackdump.RunSnapshot, err error) {
	outputs := make(map[int]*bytes.Buffer)
	client := New(dir, job, request, peerlink.TCP{}, snapshotTimeouts, io.Discard,
		io.Discard).SetNodeWriter(func(node int) io.Writer {
		outputs[node] = new(bytes.Buffer)
		return outputs[node]
	})
	answers, err := client.Execute(ctx, again)
	if len(answers) == 0 || errors.Is(err, ErrRefused) {
		return snapshot, cmp.Or(err, errors.New("no node has answered"))
	}
	return newRunSnapshot(dir.Name(), job.Size, answers, outputs, err), nil
}

// newRunSnapshot combines the answers of the nodes, and lists those without a response.
func newRunSnapshot(run string, size int, answers []Result, outputs map[int]*bytes.Buffer,
	missing error) stackdump.RunSnapshot {
	var seen []stackdump.ChildReport
	var silent []stackdump.UnreachableNode
	nodes := make(map[int]bool)
	for _, node := range answers {
		index := record.NodeOfMember(node.NodeIndex, size)
		nodes[index] = true
		switch {
		case !node.Answered:
			silent = append(silent, stackdump.UnreachableNode{Node: index, Host: node.Host,
				Reason: fmt.Sprint(missing)})
		case node.Exit.Code != 0:
			silent = append(silent, stackdump.UnreachableNode{Node: index, Host: node.Host,
				Reason: cmp.Or(node.Exit.Failed, node.Exit.Exit)})
		}
		for line := range bytes.Lines(outputs[node.NodeIndex].Bytes()) {
			var one stackdump.ChildReport
			if json.Unmarshal(line, &one) == nil { // a truncated answer is that of a silent node
				one.Node, one.Member, one.Host = index, node.NodeIndex, node.Host
				seen = append(seen, one)
			}
		}
	}
	return stackdump.NewRunSnapshot(run, len(nodes), seen, silent)
}
